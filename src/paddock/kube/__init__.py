"""Kubernetes behind a small interface: what is read of its objects, and the calls that are made.

objects.py: the slim shapes that are cached. client.py: the interface and its errors.
http_client.py: the real thing. Tests have an API server in memory behind the same interface.
"""
