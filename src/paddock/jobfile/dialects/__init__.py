"""Spellings of other launchers and platforms. Each is read only where it is used.

torchrun     torchrun's own flags, and PET_* variables
allocation   what Slurm, MPI and PBS tell the processes that they start
placement    what follows from that for the job
hostlist     lists of hosts as Slurm and Open MPI shorten them
hostfile     the file of hosts that PBS gives
paddlejob    a PaddleJob of the operator, on one machine
container    a container of its pods: command, variables, limits
"""
