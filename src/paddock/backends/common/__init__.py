"""What several backends share.

folder.py        jobs in directories that this machine and the hosts share: slurm, mpi, script
planned.py       lines that their plans have in common (pure)
recorded.py      what launchers have recorded there -> the hosts of the job (pure)
environment.py   which variables go with a job (pure)
"""
