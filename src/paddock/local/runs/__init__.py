"""A launch as a run of this user.

entry    its id, and its entry in the registry
record   its directory: small files of JSON
events   the states it was in, a line each
orphans  processes of a run whose launcher and guardian were killed
control  ask its launcher, on the control socket
"""
