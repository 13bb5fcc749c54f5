"""Submission: the same job over ssh, Slurm, Open MPI, Kubernetes or a script, one set of verbs.

    words.py        states, handles, submissions, plans, statuses: what everybody speaks
    table.py        the backends: the only list of their names
    backend.py      what a backend offers
    registry.py     the runs of this user: pointers to where the truth is
    flags.py        the words of `paddock submit` beside launch's own
    directives.py   #PADDOCK lines of a script
    merge.py        pieces of many processes -> one stream in order of time
    text.py         states, plans and statuses as people read them
    launches.py     what `paddock launch` runs on this machine: no place to submit to
    sites/          where jobs can run: paddock.toml, sites.toml, conf.py, backend.yaml
    files/          a directory of the user's, and the launcher itself, on their way to hosts
    node/           what runs on those hosts
    common/         what slurm, mpi and script share: a job is a directory that the hosts see
    ssh/ slurm/ mpi/ kubernetes/ script/   one backend each: pure builders and parsers, one driver

Architecture: a submission is planned (pure), shown, recorded, and then carried out as planned.
"""
