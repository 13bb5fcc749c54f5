"""Bundled models train with PyTorch or Paddle; their tables are here or on the servers.

learner       loads, trains and exports a bundled model; the framework and the rule of a run
formats       the formats of its data
"""
