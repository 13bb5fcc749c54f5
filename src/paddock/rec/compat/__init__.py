"""PaddleRec 0.1 to 1.8: its two forms of config.yaml, and model.py with class Model and its hooks.

v01         config.yaml of 0.1: `train:` and `evaluate:`
v18         config.yaml of 1.8: lists of runners, phases and datasets
model_base  ModelBase, which a user's Model builds on, and other names of paddlerec.core
hooks       loads a user's Model, behind the hooks of a DygraphModel
"""
