"""A primary and its replica: one log on two servers, and a lease that says which one serves.

state         ReplicaState: terms, what is in sync, what may be acknowledged; times in, actions out
lease         the rules of the lease and the witness's register
replication   Replication, what the rest of a server asks; by itself that of one that is alone
pair          Pair: runs the state with clocks and threads
feed          the primary's half: sends the log to a replica that follows
follower      the replica's half: receives the log, truncates or restores its own
witness       keeps the leases on its disk, for pairs of servers
log_identity  server id, term and member of the log in a data directory
"""
