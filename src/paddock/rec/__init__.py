"""Recommendation models from PaddleRec's two files: config.yaml and backend.yaml."""
