"""The job as its leader (coordinator) sees it: which nodes are in, when an attempt may start.

messages         between leader and members; the events and actions of the job's state machine
membership       that state machine: rendezvous, attempts, restarts, verdict
state            what it knows; its parts are member_table, quorum and handoff
member_table     the nodes that are in
wait             min and max nodes: when an attempt may start
quorum, handoff  the nodes whose votes count; what survives a failover (change of leader)
leaving          nodes that leave, and who leads then
leader_conflict  two leaders of one job: which steps down
"""
