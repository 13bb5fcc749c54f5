"""The operator on a real API server: how fast, how many requests, how much memory, how long away.

Pods are played by a fake kubelet (kubelet.py): the control plane has no node. The peer is
paddle-operator v0.3.5; it cannot be run here, its figures were measured elsewhere and are named so.
"""
