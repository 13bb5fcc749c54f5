"""The bundled models, each a folder with config.yaml and model.py; `-m paddock.models.rank.dnn`."""
