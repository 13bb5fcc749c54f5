"""Models of PaddleRec 0.1 to 1.8: model.py with class Model and its hooks, in dygraph form."""
