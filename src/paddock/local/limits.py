"""What this process may use: open files, cores."""

from __future__ import annotations

import os

from paddock.errors import UsageError

FILES_PER_PROC = 6  # a pipe, a pidfd, a log, a port mark, and two spare
FILES_OTHER = 128
# Without the spare ones: below this the job would die half started.
FILES_PER_PROC_MIN = 4
FILES_OTHER_MIN = 24


def allow_files(nprocs: int, connections: int) -> None:
    """Raise the soft limit as far as this job needs; the ranks inherit it, so no further.

    Raises UsageError when the hard limit, which only root can raise, is too low.
    """
    import resource

    wanted = FILES_OTHER + FILES_PER_PROC * nprocs + 2 * connections
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    least = FILES_OTHER_MIN + FILES_PER_PROC_MIN * nprocs + connections
    if hard != resource.RLIM_INFINITY and hard < least:
        raise UsageError(
            f"{nprocs} processes here and {connections} other nodes need about {least} open "
            f"files, this user may have {hard}",
            hint="raise the limit (ulimit -Hn, limits.conf(5)), or start fewer",
        )
    if soft != resource.RLIM_INFINITY and soft < wanted:
        limit = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, limit), hard))


def usable_cores() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
