"""Jobs by mpirun: it starts one launcher on each host, which find one another and start the ranks.

command.py   the words that mpirun is started with (pure)
plan.py      submission -> plan, files and all (pure)
state.py     what the job's directory says -> the job's status (pure)
driver.py    the backend: an attendant on this machine holds mpirun

The job's directory is on a file system that this machine and the hosts share.
"""
