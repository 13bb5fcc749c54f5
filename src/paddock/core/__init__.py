"""The decisions about a job: values in, values out. Imports nothing that acts.

job, hosts, plan       intent, facts, decision
messages               the messages between leader (coordinator) and members
membership             the state machine of the whole job: rendezvous, restarts, verdict
state                  what that machine knows; its parts are the next four
member_table, attempt  the nodes that are in; the attempt that runs
quorum, handoff        the nodes whose votes count; what survives a failover (change of leader)
rendezvous_wait        min and max nodes: when an attempt may start
judging, policy        after an attempt: the verdict with the exit code, or a restart
exits                  how a process or node ended, and which of them is the root cause
leaving                nodes that leave, and who leads then
leader_conflict        two leaders of one job: which steps down
supervisor, warming    one node's processes (SIGTERM, grace period); its warm server (--warm)
endpoint, secrets      addresses as text; which values are hidden
value                  frozen values, and the types of their fields
"""
