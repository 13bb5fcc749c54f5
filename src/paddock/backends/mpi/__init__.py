"""Jobs by mpirun: it starts one launcher on each host; they rendezvous and start the ranks.

    plan     submission -> the command line of mpirun, its error messages, the files for it (pure)
    state    the files of a job's directory -> the job's status (pure)
    driver   the backend: a job daemon on this machine runs mpirun

The job's directory is on a file system that this machine and the hosts share.
"""
