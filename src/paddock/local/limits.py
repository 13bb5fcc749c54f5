"""How many files this process may have open."""

from __future__ import annotations

FILES_PER_PROC = 6  # a pipe, a pidfd, a log, a port mark, and two spare
FILES_OTHER = 128


def allow_files(nprocs: int, connections: int) -> None:
    """Raise the soft limit towards the hard one if this job needs more; best effort."""
    import resource

    wanted = FILES_OTHER + FILES_PER_PROC * nprocs + 2 * connections
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        limit = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, limit), hard))
