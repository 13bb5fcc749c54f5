"""What other launchers and platforms spell otherwise. Each is read only where somebody uses it.

torchrun.py    torchrun's own flags, and PET_* variables
allocation.py  what Slurm, MPI and PBS tell the processes that they start
placement.py   what follows from that for the job
hostlist.py    lists of hosts as Slurm and Open MPI shorten them
hostfile.py    the file of hosts that PBS gives
paddlejob.py   a PaddleJob of the operator, on one machine
container.py   a container of its pods: command, variables, limits
"""
