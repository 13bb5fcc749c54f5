"""Submission: the same job over ssh, Slurm, Open MPI, Kubernetes or a script, one set of verbs.

    words.py      states, handles, submissions, plans, statuses: what everybody speaks
    backend.py    what a backend offers, and the table of them
    registry.py   the runs of this user: pointers to where the truth is
    sites.py      where jobs can run: paddock.toml, sites.toml, conf.py, backend.yaml
    profile.py    those files, laid over one another; site_keys.py, site_check.py: what may be said
    hostfile.py   hosts as people write them; fabric.py, paddlerec.py: the old tools' files
    folder.py     a job's directory on a shared file system; recorded.py: its hosts, as recorded
    flags.py      the words of `paddock submit` beside launch's own
    package.py    a directory of the user's, to hosts; ignore.py, hashes.py: what is in it
    data.py       numbered files are dealt out to nodes
    spread.py     many hosts get a package from one another
    merge.py      pieces of many processes -> one stream in order of time
    program.py    the launcher as an archive, for hosts that have only python3
    node/         what runs on those hosts
    launches.py   what `paddock launch` runs on this machine: no place to submit to
    ssh/ slurm/ mpi/ kubernetes/ script/   one backend each: pure builders and parsers, one driver

Architecture: a submission is planned (pure), shown, recorded, and then carried out as planned.
"""
