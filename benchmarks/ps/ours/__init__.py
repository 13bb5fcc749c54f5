"""Paddock's parameter server, driven by the same operations as the peer.

micro.py, train.py and the others are scripts of one trainer process; job.py starts the servers.
"""
