"""An attempt of all nodes, as the coordinator knows it, and the processes of one node in it.

attempt     the attempt as the coordinator knows it: members, exits; then its verdict or a restart
policy      is a failed attempt restarted, and after how long
exits       how a process or node ended, and which of them is the root cause
termination  the message of a launcher in a pod, and what the last lines of others say of an end
supervisor  one node's processes: start, SIGTERM, grace period, SIGKILL
warming     the state machine of a node's warm server: import, then fork ranks (--warm)
"""
