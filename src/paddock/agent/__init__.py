"""The launcher of a node: which node leads the job, and how nodes talk. See docs/architecture.md.

launcher               the launcher of a node: event loop, member, record; its exit code
rendezvous             how a node joins a job of several nodes, and which node leads at first
leadership             lead, follow or seek: that state machine; majority elections without etcd
etcd_election          elections of the leader through etcd
transport              sockets, TLS, the handshake, messages as lines, heartbeats and leases
coordinator, member    the two sides: the leader's, and that of each node
signals                signals to the launcher, and those that its guardian forwards
view                   the state of the job on this node: rows of status.json and verdict.json
control                the control socket: status, stop, events
recorder, run_record   files of --record; the entry of every launch in the user's registry
"""
