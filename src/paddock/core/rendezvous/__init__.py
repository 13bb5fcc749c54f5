"""The coordinator's state machine: which nodes are in, when an attempt may start, restarts.

messages         between leader and members; the events and actions of the job's state machine
membership       that state machine: rendezvous, attempts, restarts, verdict
state            the coordinator's state; its parts are member_table and quorum
member_table     the nodes that are in
wait             min and max nodes: when an attempt may start
quorum           the nodes whose votes count; the handoff and budget that survive a failover
leaving          nodes that leave as planned, and the transfer of leadership
leader_conflict  two leaders of one job: which steps down
"""
