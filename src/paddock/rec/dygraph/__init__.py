"""PaddleRec 2.x model folders, unchanged: config.yaml, net.py, dygraph_model.py, *_reader.py."""
