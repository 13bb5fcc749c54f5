"""The code that several backends share.

folder     jobs in directories that this machine and the hosts share: slurm, mpi, script
histories  copies of what the launchers of a job have recorded
news       what their latest rows tell of the job now
planned    the common parts of plans; which variables go with a job (pure)
recorded   status.json of the launchers -> the hosts of the job (pure)
"""
