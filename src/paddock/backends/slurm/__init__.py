"""Jobs under Slurm: one sbatch script, one job directory on the file system that the nodes share.

    script.py   submission -> the sbatch script, with the reason of each line (pure)
    parse.py    what squeue, sacct and the job's own files say -> the job's status (pure)
    errors.py   what Slurm's commands complain of -> what is wrong, and what to do (pure)
    folder.py   the job directory: made, filled, copied, removed
    driver.py   the backend

Job directory (0700), beside the files of docs/reference/job-directory:

    .paddock/job.sbatch    the script          .paddock/token   the job's key (0600), until its end
    .paddock/job.json      what was submitted  .paddock/program the launcher
    .paddock/env           what --env sets (0600), until the job's end
    .paddock/slurm.json    cluster and number  .paddock/stop    paddock stop was there
    .paddock/state.json    how the script knows the job is; Slurm forgets, this stays
"""
