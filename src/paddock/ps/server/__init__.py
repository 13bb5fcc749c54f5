"""A server: sockets and threads, the tables, and the fold over records that is its state.

main           `paddock pserver`: reads flags, recovers, serves, ends
options        its flags; own_endpoint finds which server of the job this process is
serve          Server: listens, and holds what its connections share
session        one connection: receives frames, answers them in order
engine         the one way to a change: checks, logs, applies, waits for disk and replica
records        the class of each record, and those of the job: members, steps, offsets
table_records  the records of one table: pushes, values, learning rate
log_record     what every record has: locks, check, apply, answer
store          the state of one server: records are applied to it
tables         a table with its locks
recovery       from a data directory to a state, and snapshots
snapshot_view  the state at one record, read while pushes go on; and LOAD, which takes one over
services       what server 0 hosts besides tables: key-values, and the dispatcher of data
own_endpoint   which of the job's endpoints this server has
"""
