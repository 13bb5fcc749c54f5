"""The operator: the PaddleJob custom resource and its controller.

Pure: spec, names, environment, pods, outcome, policies/, status, reconcile (values in, values
out). Shell: runtime/ (caches, queue, leader election, events, metrics) and run.py.
"""
