"""A client of etcd v3, with the standard library only. It knows nothing of jobs and agents.

address    ``etcd://user:password@host:port,...?ca=file``, as users write it
client     the calls, each within its seconds: transactions, leases; endpoints, TLS, tokens
reply      the answers of etcd as values, and its errors
"""
