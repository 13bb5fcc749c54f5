"""Start one process: posix_spawn (vfork-cheap), a process group of its own, a pidfd to watch it.

The preparation too: the limit of open files; the pipes of a process's output, the log
behind them, and the part that the console shows.
"""

from __future__ import annotations

import errno
import os
from time import monotonic_ns

from paddock.contracts.environment import REPORT_FD
from paddock.core.attempt.exits import Exit
from paddock.errors import EXIT_NOT_EXECUTABLE, EXIT_NOT_FOUND, EXIT_OWN_FAULT, UsageError
from paddock.local.loop import READ, Loop
from paddock.local.output.console import is_one_place, prefix_of, shown_keys
from paddock.local.output.streams import ProcessStream

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    from paddock.contracts.environment import SharedEnv
    from paddock.core.job import Job
    from paddock.core.plan import Plan, Proc
    from paddock.local.output.logs import LogDir

# Python ignores two of these; a program started by a launcher expects the defaults (subprocess,
# restore_signals). SIGTERM is how we ask it to end, also where our parent ignored that.
SIGKILL = 9
DEFAULT_SIGNALS = (13, 15, 25)  # SIGPIPE, SIGTERM, SIGXFSZ
# The machine's fault, not the program's: out of processes, memory or files (fork(2)).
SHORTAGES = (errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE)
FILES_PER_PROC = 9  # those below, and two spare
FILES_OTHER = 128
# Below this the job would die half started: while ranks start, both ends of their pipes are open.
# Measured with 10, 40 and 80 ranks, by the least limit that works: 7 each, and 4 to 19 beside.
FILES_PER_PROC_MIN = 7
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


PIPE_BYTES = 1 << 18
F_SETPIPE_SZ = 1031  # fcntl.h


REPORT_BYTES = 1 << 16
FIONREAD = 0x541B  # of Linux (ioctl_tty(2)); the module with its name would be one more import
# stdout, stderr, and if there can be one the pipe of reports (watch/rank.py): what of a process.
OUTPUTS = (1, 2, REPORT_FD)


class ReportReader:
    """Reads a rank's reports of its progress, in any thread; closed once nobody has it."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def read(self) -> bytes:
        """Read the reports since the last time; b"" for none."""
        try:
            return os.read(self._fd, REPORT_BYTES)
        except BlockingIOError:
            return b""

    @property
    def is_waiting(self) -> bool:
        """True if there are reports to read."""
        from fcntl import ioctl

        return any(ioctl(self._fd, FIONREAD, bytes(4)))

    def __del__(self) -> None:
        os.close(self._fd)


class ChildProcess:
    """A started process. pidfd: ready when it has ended; close-on-exec (Linux 5.3)."""

    __slots__ = ("key", "pid", "pidfd", "proc", "reports", "stream")

    def __init__(
        self, proc: Proc, pid: int, stream: ProcessStream, reports: ReportReader | None
    ) -> None:
        self.proc = proc
        self.key = (proc.role, proc.rank)
        self.pid = pid
        self.pidfd = os.pidfd_open(pid)
        self.stream = stream
        self.reports = reports


def has_stdin(proc: Proc) -> bool:
    """Return True for the one process that reads the launcher's standard input."""
    return proc.role == "worker" and proc.rank == 0


def spawn(
    argv: tuple[str, ...],
    env: Mapping[str, str],
    has_stdin: bool,
    outputs: Sequence[int],
    allow_tracer: Callable[[], object] | None = None,
) -> int:
    """Start a program in a process group of its own; returns its pid. Raises OSError.

    outputs: descriptors, of OUTPUTS. allow_tracer: called in the new process before exec(2).
    """
    if allow_tracer is not None:
        return _fork(argv, env, has_stdin, outputs, allow_tracer)
    null = os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0
    # Also where the two are one: then it stays open over exec (glibc 2.29, musl 1.1.24).
    pairs = zip(outputs, OUTPUTS, strict=False)
    return os.posix_spawnp(
        argv[0],
        argv,
        env,
        file_actions=[
            (os.POSIX_SPAWN_DUP2, 0, 0) if has_stdin else null,
            *((os.POSIX_SPAWN_DUP2, fd, number) for fd, number in pairs),
        ],
        setpgroup=0,
        setsigmask=[],
        setsigdef=DEFAULT_SIGNALS,
    )


def _fork(
    argv: tuple[str, ...],
    env: Mapping[str, str],
    has_stdin: bool,
    outputs: Sequence[int],
    allow_tracer: Callable[[], object],
) -> int:
    """Start a program as posix_spawnp(3) does, in milliseconds more."""
    import signal
    from subprocess import DEVNULL, Popen

    def before_exec() -> None:
        signal.set_wakeup_fd(-1)  # it is the launcher's
        allow_tracer()
        os.setpgid(0, 0)
        for number in DEFAULT_SIGNALS:
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        for fd, number in zip(outputs, OUTPUTS, strict=False):
            os.dup2(fd, number)
            os.set_inheritable(number, True)  # also where the two are one

    stdin = 0 if has_stdin else DEVNULL
    process = Popen(argv, env=env, stdin=stdin, close_fds=False, preexec_fn=before_exec)
    process.returncode = 0  # it is ours to wait for
    return process.pid


def spawn_failure(proc: Proc, attempt: int, error: OSError, program: str, log: str) -> Exit:
    """The Exit of a process that could not be started."""
    code, cause = EXIT_NOT_EXECUTABLE, "not-executable"
    if isinstance(error, FileNotFoundError):
        code, cause = EXIT_NOT_FOUND, "not-found"
    elif error.errno in SHORTAGES:
        code, cause = EXIT_OWN_FAULT, "no-resources"
    return end_of(proc, attempt, log, code=code, cause=cause, tail=f"{program}: {error.strerror}")


def end_of(proc: Proc, attempt: int, log: str, **more: Any) -> Exit:
    """The Exit of a process that has just ended, or was not started. more: other fields of it."""
    return Exit(
        role=proc.role,
        rank=proc.rank,
        node_rank=proc.node_rank,
        host=proc.host,
        attempt=attempt,
        at_ns=monotonic_ns(),
        log=log,
        **more,
    )


class Hook:
    """The user's own shell command before each attempt (--elastic-pre-hook), as it runs: pid.

    The loop calls on_end(exit code), unless the hook was cancelled before.
    """

    def __init__(
        self, command: str, env: Mapping[str, str], loop: Loop, on_end: Callable[[int], None]
    ) -> None:
        self._loop = loop
        self._on_end = on_end
        self.pid = os.posix_spawn(
            "/bin/sh",
            ["/bin/sh", "-c", command],
            env,
            setpgroup=0,
            setsigmask=[],
            setsigdef=DEFAULT_SIGNALS,
        )
        self._pidfd = os.pidfd_open(self.pid)
        loop.watch(self._pidfd, READ, self._ended)

    def _ended(self, _events: int) -> None:
        self._on_end(os.waitstatus_to_exitcode(self._reap()))

    def cancel(self) -> None:
        """Kill the hook and its children, without waiting for their end."""
        os.killpg(self.pid, SIGKILL)
        self._loop.watch(self._pidfd, READ, self._forget)

    def _forget(self, _events: int) -> None:
        self._reap()

    def _reap(self) -> int:
        self._loop.unwatch(self._pidfd)
        os.close(self._pidfd)
        try:
            return os.waitpid(self.pid, 0)[1]
        except ChildProcessError:
            return 0  # cancelled, and swept away with all the rest


class Streams:
    """Opens the streams of one attempt's processes, procs. reports: by role and rank."""

    def __init__(
        self, job: Job, log_dir: LogDir, plan: Plan, procs: tuple[Proc, ...], shared: SharedEnv
    ) -> None:
        self._job = job
        self._log_dir = log_dir
        self._plan = plan
        self._shared = shared
        self.reports: dict[tuple[str, int], ReportReader] = {}
        self._shown = shown_keys(job.logs.tail, procs)
        self._has_one_console = bool(job.record) or is_one_place(1, 2)

    def open(self, proc: Proc, again: int = 0) -> tuple[ProcessStream, tuple[int, ...]]:
        """Open the pipes and the log behind them; returns the stream, and ends as of OUTPUTS.

        again: 0 for the first start in this attempt. Raises UsageError.
        """
        job, plan = self._job, self._plan
        shown = job.logs.streams_of(proc.local_rank)
        if (proc.role, proc.rank) not in self._shown:
            shown = 0
        read_fd, write_fd = _open_pipe(is_large=bool(shown))
        header = (
            f"\n----- paddock: job {plan.job_id}, attempt {plan.attempt}, {proc.name}, "
            f"run {plan.uid}{f', restart {again} in place' if again else ''} -----\n"
        )
        log_dir = self._log_dir
        stream = ProcessStream(
            (proc.role, proc.rank),
            read_fd,
            # Later no log is no reason to fail.
            log_dir.open(proc, is_needed=not (plan.attempt or again)),
            log_dir.log_path(proc),
            bool(shown & 1),
            prefix_of(job, proc, len(self._shown)),
        )
        stream.header = header.encode()
        if log_dir.has_times:
            stream.open_times = lambda offset: log_dir.open_times(proc, plan.attempt, offset)
        if self._shared.error_files and proc.role == "worker":
            stream.error_file = f"{self._shared.error_files}-{proc.rank}.json"
        # One pipe keeps the order of what a process writes, so two only where they part.
        errors_write = write_fd
        if shown in (1, 2) or (shown == 3 and not self._has_one_console):
            errors_read, errors_write = _open_pipe(is_large=bool(shown & 2))
            stream.set_apart(errors_read, bool(shown & 2))
        if not self._shared.takes_reports:
            return stream, (write_fd, errors_write)
        # A full one takes no more: no rank waits.
        reports_read, reports_write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self.reports[stream.key] = ReportReader(reports_read)
        return stream, (write_fd, errors_write, reports_write)


def _open_pipe(*, is_large: bool) -> tuple[int, int]:
    read_fd, write_fd = os.pipe2(os.O_CLOEXEC)
    os.set_blocking(read_fd, False)
    if is_large:
        import fcntl

        try:
            fcntl.fcntl(read_fd, F_SETPIPE_SZ, PIPE_BYTES)
        except OSError:
            pass  # over the user's pipe budget: the default size does
    return read_fd, write_fd
