"""The job as its leader (coordinator) sees it: which nodes are in, when an attempt may start.

messages         between leader and members; the events and actions of the job's state machine
membership       that state machine: rendezvous, attempts, restarts, verdict
state            what it knows; its parts are member_table and quorum
member_table     the nodes that are in
wait             min and max nodes: when an attempt may start
quorum           the nodes whose votes count; the handoff and budget that survive a failover
leaving          nodes that leave, and who leads then
leader_conflict  two leaders of one job: which steps down
"""
