"""Jobs on a Ray cluster that is there already: an actor on each node in place of sshd.

plan     submission -> what Ray is asked for, the nodes that it gives, and the plan (pure)
client   a connection to the relay, which it starts when there is none; and the pipe in ssh's place
relay    the program that is connected to Ray, for all commands of this user
actor    the actor on a node: runs the program of backends/node, and holds the job's resources
driver   the backend: that of ssh, over these connections

    paddock -- client (a pipe) -- relay -- Ray -- actor -- node/main.py -- daemon -- paddock launch

relay alone imports Ray. Neither the launcher nor a rank is a process of Ray's.
"""
