"""Facts about this host.

devices      the accelerators
addresses    the address by which the node is known, and all addresses
ports        ports reserved until a rank binds them; the process that holds one
credentials  the job key and the TLS contexts, from files
"""
