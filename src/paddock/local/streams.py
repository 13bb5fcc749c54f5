"""What comes of a process's output: its pipes, the log behind them, and what the console shows."""

from __future__ import annotations

import os

from paddock.local.console import is_one_place, prefix_of, shown_keys
from paddock.local.output import Stream

TYPE_CHECKING = False
if TYPE_CHECKING:
    from paddock.core.job import Job
    from paddock.core.plan import Plan, Proc
    from paddock.local.logs import LogDir

PIPE_BYTES = 1 << 18
F_SETPIPE_SZ = 1031  # fcntl.h


class Streams:
    """Opens the streams of one attempt's processes, procs; error_files as in SharedEnv."""

    def __init__(
        self, job: Job, log_dir: LogDir, plan: Plan, procs: tuple[Proc, ...], error_files: str
    ) -> None:
        self._job = job
        self._log_dir = log_dir
        self._plan = plan
        self._error_files = error_files
        self._shown = shown_keys(job.logs.tail, procs)
        self._has_one_console = bool(job.record) or is_one_place(1, 2)

    def open(self, proc: Proc, again: int = 0) -> tuple[Stream, tuple[int, int]]:
        """Pipes and the log behind them, and what becomes stdout and stderr.

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
        times = self._log_dir.open_times(proc, plan.attempt)
        if again:  # what the one before has written comes first; no log is no reason to fail
            file_fd = self._log_dir.open(proc, max(1, plan.attempt), "")
        else:
            file_fd = self._log_dir.open(proc, plan.attempt, header)
        stream = Stream(
            (proc.role, proc.rank),
            read_fd,
            file_fd,
            self._log_dir.log_path(proc),
            bool(shown & 1),
            prefix_of(job, proc, len(self._shown)),
        )
        stream.times = times
        stream.header = header.encode() if again else b""
        if self._error_files and proc.role == "worker":
            stream.error_file = f"{self._error_files}-{proc.rank}.json"
        # One pipe keeps the order of what a process writes, so two only where they part.
        if shown == 0 or (shown == 3 and self._has_one_console):
            return stream, (write_fd, write_fd)
        errors_read, errors_write = _open_pipe(is_large=bool(shown & 2))
        stream.set_apart(errors_read, bool(shown & 2))
        return stream, (write_fd, errors_write)


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
