"""What several backends share.

folder.py     jobs in directories that this machine and the hosts share: slurm, mpi, script
planned.py    what their plans have in common; which variables go with a job (pure)
recorded.py   what launchers have recorded there -> the hosts of the job (pure)
"""
