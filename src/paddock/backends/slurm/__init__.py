"""Jobs under Slurm: one sbatch script, one job directory on the file system that the nodes share.

    plan     submission -> plan: files, steps, table (pure)
    script   submission -> the sbatch script, with the reason of each line (pure)
    parse    output of squeue and sacct, and the job's own files -> the job's status (pure)
    errors   complaints of Slurm's commands -> an error with a hint (pure)
    folder   Slurm's own files in the job directory: cluster and number, stop, state
    driver   the backend

Job directory (0700), beside the files of docs/reference/job-directory:

    .paddock/job.sbatch    the script          .paddock/token   the job's key (0600), until its end
    .paddock/job.json      what was submitted  .paddock/program the launcher
    .paddock/env           what --env sets (0600), until the job's end
    .paddock/slurm.json    cluster and number  .paddock/stop    paddock stop was there
    .paddock/state.json    the job's state by the script; it stays when Slurm has forgotten the job
"""
