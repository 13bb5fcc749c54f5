"""An attempt: the processes of a node, how they end, and what follows from that.

attempt          the attempt as the coordinator knows it: members, exits, why it stops
supervisor       one node's processes: start, SIGTERM, grace period, SIGKILL
exits            how a process or node ended, and which of them is the root cause
judging, policy  after an attempt: the verdict with the exit code, or a restart
warming          the warm server of a node (--warm)
"""
