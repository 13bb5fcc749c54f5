"""Jobs under Slurm: one sbatch script, one job directory on the file system that the nodes share.

    script   submission -> plan, and the sbatch script with the reason of each line (pure)
    arrays   how a job becomes an array, and what is in the directory of each task (pure)
    setup    lines of the user's shell that run before the launchers (pure)
    parse    output and error messages of Slurm, and the job's own files -> status, error (pure)
    driver   the backend

Job directory (0700), beside the files that backends/node/jobdir.py lists:

    .paddock/job.sbatch    the script          .paddock/token   the job's key (0600), until its end
    .paddock/job.json      what was submitted  .paddock/program the launcher
    .paddock/env           what --env sets (0600), until the job's end
    .paddock/slurm.json    cluster and number  .paddock/stop    a stop was requested
    .paddock/state.json    the last state, by the script; it outlives slurmctld's memory
"""
