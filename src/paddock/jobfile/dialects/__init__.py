"""Spellings of other launchers and platforms. Each is read only where it is used.

torchrun     torchrun's own flags, and PET_* variables
allocation   what Slurm, MPI and PBS tell their processes, and what follows for the job
hostlist     lists of hosts as Slurm and Open MPI shorten them
paddlejob    a PaddleJob of the operator, on one machine
written      a Job as words of `paddock launch`, and as a PaddleJob
container    a container of its pods: command, variables, limits
"""
