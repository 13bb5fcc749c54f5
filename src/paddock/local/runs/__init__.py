"""A launch as a run of this user.

entry    its id, and its entry in the registry
record   its directory: small files of JSON
events   the states it was in, a line each
control  ask its launcher, on the control socket
"""
