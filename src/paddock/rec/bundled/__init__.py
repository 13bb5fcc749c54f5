"""Bundled models train with PyTorch or Paddle; their tables are here or on the servers.

learner       loads and trains a bundled model; the framework and the device of a run
formats       the formats of its data
optimizer     hyper_parameters.optimizer -> the servers' rule and the rate over the steps
local_tables  the parameter server's tables in this process
export        a model as a plain program of the framework loads it
"""
