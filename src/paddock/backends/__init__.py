"""Submission: a job over ssh, Slurm, Open MPI, Kubernetes, Ray or a script, one set of verbs.

    types        job states, handles, sites, submissions, plans, statuses, log queries
    table        the backends: the only list of their names
    backend      the interface that every backend implements
    registry     the entries of this user's runs: handles, details, events
    status       find the runs that words name, and ask their backends how they are
    submit       read a submission from its arguments, and start it
    after        find and wait for the runs of `paddock submit --after`
    flags        the flags of `paddock submit` beside launch's own; #PADDOCK lines of a script
    merge        log chunks of many processes -> one stream in order of time
    text         states, plans and statuses as people read them
    launches     runs of `paddock launch` on this machine: status, logs, stop; no submissions
    sweeps       many runs of one grid: the points, their states, the table
    sites        where jobs can run: paddock.toml, sites.toml, conf.py, backend.yaml
    files        staging: the user's package and the launcher, sent to hosts
    node         the remote agent: the program that answers a submitter on those hosts
    common       the folder backend that slurm, mpi and script share

    ssh, slurm, mpi, kubernetes, ray, script   one each: pure builders and parsers, one driver

Architecture: a submission is planned (pure), shown, recorded, and then carried out as planned.
"""
