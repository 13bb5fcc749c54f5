"""Starting one process: posix_spawn (vfork-cheap), a group of its own, a pidfd to watch it by."""

from __future__ import annotations

import errno
import os
from time import monotonic_ns

from paddock.core.exits import Exit
from paddock.core.value import replace
from paddock.errors import EXIT_NOT_EXECUTABLE, EXIT_NOT_FOUND, EXIT_OWN_FAULT

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from paddock.core.plan import Proc
    from paddock.local.output import Stream

# Python ignores two of these; a program started by a launcher expects the defaults (subprocess,
# restore_signals). SIGTERM is how we ask it to end, also where our parent ignored that.
SIGTERM = 15
DEFAULT_SIGNALS = (13, 15, 25)  # SIGPIPE, SIGTERM, SIGXFSZ
# The machine's fault, not the program's: out of processes, memory or files (fork(2)).
SHORTAGES = (errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE)


class Child:
    """A started process."""

    __slots__ = ("key", "pid", "pidfd", "proc", "stream")

    def __init__(self, proc: Proc, pid: int, pidfd: int, stream: Stream) -> None:
        self.proc = proc
        self.key = (proc.role, proc.rank)
        self.pid = pid
        self.pidfd = pidfd
        self.stream = stream


def spawn(
    argv: tuple[str, ...], env: Mapping[str, str], stdin: int, stdout: int, stderr: int
) -> int:
    """Start a program in a process group of its own; returns its pid. Raises OSError."""
    return os.posix_spawnp(
        argv[0],
        argv,
        env,
        file_actions=[
            (os.POSIX_SPAWN_DUP2, stdin, 0),
            (os.POSIX_SPAWN_DUP2, stdout, 1),
            (os.POSIX_SPAWN_DUP2, stderr, 2),
        ],
        setpgroup=0,
        setsigmask=[],
        setsigdef=DEFAULT_SIGNALS,
    )


def open_pidfd(pid: int) -> int:
    """A descriptor that is ready when the process has ended."""
    return os.pidfd_open(pid)  # Linux 5.3; close-on-exec


def spawn_failure(proc: Proc, attempt: int, error: OSError, program: str, log: str) -> Exit:
    """The end of a process that never began."""
    code = EXIT_NOT_FOUND if isinstance(error, FileNotFoundError) else EXIT_NOT_EXECUTABLE
    return replace(
        _end_of(proc, attempt, log),
        code=EXIT_OWN_FAULT if error.errno in SHORTAGES else code,
        cause="not-found" if code == EXIT_NOT_FOUND else "not-executable",
        tail=f"{program}: {error.strerror}",
    )


def stopped_before_start(proc: Proc, attempt: int, log: str) -> Exit:
    """The end of a process that was still to be started when it was told to end."""
    return replace(_end_of(proc, attempt, log), signal=SIGTERM, cause="signal")


def _end_of(proc: Proc, attempt: int, log: str) -> Exit:
    return Exit(
        role=proc.role,
        rank=proc.rank,
        node_rank=proc.node_rank,
        host=proc.host,
        attempt=attempt,
        at_ns=monotonic_ns(),
        log=log,
    )
