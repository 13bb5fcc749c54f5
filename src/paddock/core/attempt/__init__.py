"""An attempt: the processes of a node, how they end, and what follows from that.

attempt     the attempt as the coordinator knows it: members, exits; then its verdict or a restart
policy      is a failed attempt restarted, and after how long
exits       how a process or node ended, and which of them is the root cause
supervisor  one node's processes: start, SIGTERM, grace period, SIGKILL
warming     the warm server of a node (--warm)
"""
