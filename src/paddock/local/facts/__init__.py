"""Facts about this host.

devices      the accelerators
addresses    the address by which the node is known, and all addresses
ports        free ports, kept free until a rank takes them
portowner    the process that holds a port
oom          OOM kills of this cgroup, and its memory limit
credentials  the job key and the TLS contexts, from files
"""
