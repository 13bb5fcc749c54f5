"""Facts about this host.

devices      the accelerators
addresses    the address by which the node is known, and all addresses
ports        free ports, kept free until a rank takes them; the process that holds one
credentials  the job key and the TLS contexts, from files
"""
