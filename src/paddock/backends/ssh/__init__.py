"""Jobs over the user's own OpenSSH, on hosts that have sshd and python3, and nothing else.

command    the command line of ssh, and what its failures mean (pure)
plan       submission -> plan, and what each host is asked to do (pure)
channel    a connection to one host
pool       the connections of this process; the same request to all hosts, every failure named
transfer   files sent before the start, and fetched at the end
state      states of the hosts -> the job's status (pure)
lines      logs of all hosts as one stream
attached   the console of a foreground job: its submitter stays
driver     the backend
"""
