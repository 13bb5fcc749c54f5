"""The launcher of a node: which node leads the job, and how nodes talk. See docs/architecture.md.

launcher               the launcher of a node, from the first rank to the exit code
rendezvous             how a node joins a job of several nodes, and which node leads at first
leadership             the state machine of leadership, and elections without etcd
etcd_election          elections of the leader through etcd
transport              sockets, TLS, the handshake, messages as lines, heartbeats and leases
coordinator, member    the two sides: the leader's, and that of each node
view                   the state of the job on this node: rows of status.json and verdict.json
control                the socket on which it answers
recorder, run_record   the record of --record; the record of every launch
"""
