"""Jobs over the user's own OpenSSH, on hosts that have sshd and python3, and nothing else.

command.py   what is said to ssh, and what it says when it fails (pure)
plan.py      submission -> plan, and what each host is asked to do (pure)
channel.py   one connection to one host
fleet.py     the same request to all hosts at once; every failure named
state.py     what the hosts say -> the job's status (pure)
attached.py  the console of a job that its submitter stays with
driver.py    the backend
"""
