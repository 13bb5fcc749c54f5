"""Kubernetes behind a small interface: what is read of its objects, and the calls that are made.

objects.py: the slim shapes that are cached. client.py: the interface and its errors. lightkube.py:
the real thing. memory/: an API server in memory, for the simulator and for users' tests.
"""
