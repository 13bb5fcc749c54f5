"""The log directory: a folder for each run, so that two jobs never mix and nothing is overwritten.

    HERE/workerlog.N, serverlog.N, heterlog.N   output of local process N (0600)
    HERE/workerlog.N.times                      when its lines came (times.py)
    HERE/launcher.log                           all that the launcher says
    HERE/endpoints.log                          endpoints of the latest attempt
    HERE/ps/<run>-<attempt>/server-N/           state of Paddock's servers; gone after success
    HERE/.paddock/<uid>/                        PADDOCK_RUN_DIR, scratch of this run

HERE is log/runs/<run id>/, a directory for each run. log/latest leads to that of the run which was
started last, and so do log/workerlog.N, log/endpoints.log and log/launcher.log.

With --log-dir, HERE is that directory: logs are appended to, .paddock/lock is held while a job
writes there (lock.py), and a second job writes into HERE/<job_id>-<uid>-<pod>/ instead, and says
so. HERE/runs/<run id>/ has the times and the control socket then.
"""

from __future__ import annotations

import errno
import os
import stat

from paddock.errors import Problem, UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from paddock.core.job import Job
    from paddock.core.plan import Plan, Proc
    from paddock.local.output.lock import DirectoryLock
    from paddock.local.output.times import LineTimes

FILE_MODE = 0o600
# Windows has none of them.
SAFE_FLAGS = sum(getattr(os, n, 0) for n in ("O_CLOEXEC", "O_NOFOLLOW", "O_NONBLOCK"))
LAUNCHER_LOG = "launcher.log"
LOG_NAMES = {"worker": "workerlog", "ps": "serverlog", "heter": "heterlog"}
RUNS, LATEST = "runs", "latest"
LINKED = (*LOG_NAMES.values(), "endpoints", "launcher")  # names in front of the dot


def log_folder(directory: str) -> str:
    """The path of --log-dir: {node} is this host's name, so that hosts that share it do not mix."""
    if "{node}" in directory:
        name = os.uname().nodename if hasattr(os, "uname") else os.environ.get("COMPUTERNAME", "")
        directory = directory.replace("{node}", safe_name(name))
    try:
        return os.path.abspath(directory or ".")
    except FileNotFoundError:  # the working directory was removed: nothing can be made there
        return os.path.join("/proc/self/cwd", directory)


def has_own_folder(job: Job) -> bool:
    """Return True if each run's logs have a directory of their own: no --log-dir was given."""
    source = job.sources.get("logs.directory")
    return not job.record and (source is None or source.kind == "default")


def run_folder(job: Job, run_id: str) -> str:
    """The directory of a run, below that of its logs."""
    return os.path.join(log_folder(job.logs.directory), RUNS, run_id)


def check_log_dir(directory: str) -> Problem | None:
    """Make a log_dir and return what is wrong with it, before anything is written or started."""
    path = log_folder(directory)
    try:
        _make_directory(path, 0o777)
        if os.access(path, os.W_OK | os.X_OK):
            return None
        why = os.strerror(errno.EACCES)
    except OSError as error:
        why = error.strerror or str(error)
    return _unwritable(directory, why)


def _unwritable(directory: str, why: str) -> Problem:
    return Problem(f"log_dir '{directory}' is not writable: {why}", "choose another with --log-dir")


class LogDir:
    """The log directory of one node's part of a job. Close it when the job has ended."""

    def __init__(
        self, job: Job, uid: str, pod_name: str, run_id: str = "", spare: str = ""
    ) -> None:
        """run_id: "" for one without a record. spare: where logs go when log/ cannot be written.

        Without a spare directory, a new one below $TMPDIR. Raises UsageError when nothing can be
        written, or the directory that the user has chosen cannot.
        """
        self.note = ""
        self._overwrite = job.logs.overwrite
        self._seen: set[str] = set()
        wanted = log_folder(job.logs.directory)
        self.path = self.shown = wanted
        self._lock: DirectoryLock | None = None
        self._times = ""  # where the times are, if not beside their logs
        try:
            if run_id and has_own_folder(job):
                self.path = run_folder(job, run_id)
                try:
                    _make_directory(os.path.join(self.path, ".paddock"), 0o700)
                except OSError as error:
                    self._go_elsewhere(wanted, spare or _new_temporary(uid, error), error)
            else:
                try:
                    self._take_shared(job, uid, pod_name)
                except OSError as error:
                    if not has_own_folder(job):
                        raise
                    self._go_elsewhere(wanted, _new_temporary(uid, error), error)
                if run_id and not job.record:
                    self._times = run_folder(job, run_id)
                    _make_directory(self._times, 0o777)
            self.has_times = bool(run_id or job.record)
            self.run_dir = os.path.join(self.path, ".paddock", uid)
            _make_directory(self.run_dir, 0o700)
        except OSError as error:
            why = error.strerror or str(error)
            raise UsageError.of([_unwritable(job.logs.directory, why)]) from error

    def _go_elsewhere(self, wanted: str, path: str, error: OSError) -> None:
        self.path = self.shown = path
        self.note = f"{wanted} is not writable ({error.strerror}): the logs are in {path}"

    def _take_shared(self, job: Job, uid: str, pod_name: str) -> None:
        """Take a directory that other runs write to as well, before and after this one."""
        wanted = self.path
        self._lock = held = _lock(wanted)
        if not held.is_held:
            name = f"{safe_name(job.job_id)}-{uid[:8]}-{pod_name}"
            self.path = self.shown = os.path.join(wanted, name)
            self.note = f"another job writes to {wanted}{held.hint}"
            self.note += f"; this one's logs are in {self.path}"
            self._lock = _lock(self.path)
        for entry in os.scandir(self.path):
            if _is_our_link(entry):
                os.unlink(entry.path)  # of a run without --log-dir: its log lies elsewhere

    def link(self) -> None:
        """Let log/latest, log/workerlog.N and so on lead to this run's; best effort.

        A file in the way, of a run with --log-dir, gets another name.
        """
        if self.shown == self.path:
            return
        try:
            # launcher.log gets its first line in a moment, when the ranks have begun.
            own = {LAUNCHER_LOG, *(n for n in os.listdir(self.path) if _is_linked(n))}
            for entry in os.scandir(self.shown):
                if _is_our_link(entry) and entry.name not in own:
                    os.unlink(entry.path)
            _link(f"{RUNS}/{os.path.basename(self.path)}", os.path.join(self.shown, LATEST))
            for name in own:
                _link(f"{LATEST}/{name}", os.path.join(self.shown, name))
        except OSError:
            return

    @property
    def directory(self) -> str:
        """The directory of this run alone."""
        return self._times or self.path

    def log_path(self, proc: Proc) -> str:
        """The log file of a process of this node."""
        return os.path.join(self.path, f"{LOG_NAMES[proc.role]}.{proc.local_rank}")

    def open(self, proc: Proc, *, is_needed: bool) -> int:
        """Open the log of a process for appending; a later attempt never truncates.

        Returns a descriptor, or -1 where one that is not needed cannot be opened. Raises
        UsageError.
        """
        path = self.log_path(proc)
        flags = self._append_flags(path)
        self._seen.add(path)
        try:
            return _open_regular(path, flags)
        except OSError as error:
            if not is_needed:
                return -1
            raise UsageError(
                f"log file '{path}' cannot be opened: {error.strerror}",
                hint="choose another --log-dir",
            ) from error

    def open_times(self, proc: Proc, attempt: int, offset: int) -> LineTimes | None:
        """Open the times of the lines from this offset of a log on; None where that fails."""
        from paddock.local.output.times import SUFFIX, LineTimes  # once the ranks have started

        name = os.path.basename(self.log_path(proc)) + SUFFIX
        is_new = not (offset or attempt)
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | SAFE_FLAGS | is_new * os.O_TRUNC
        has_end = bool(self._times)
        try:
            fd = _open_regular(os.path.join(self._times or self.path, name), flags)
            return LineTimes(fd, offset, proc.role, proc.rank, attempt, has_end=has_end)
        except OSError:
            return None

    def _append_flags(self, path: str) -> int:
        is_emptied = self._overwrite and path not in self._seen
        return os.O_WRONLY | os.O_CREAT | os.O_APPEND | SAFE_FLAGS | is_emptied * os.O_TRUNC

    def write_endpoints(self, plan: Plan) -> None:
        """Write endpoints.log as the users' documents show it; best effort."""
        lines = ["PADDLE_TRAINER_ENDPOINTS:"]
        lines += [p.endpoint for p in plan.of_role("worker")]
        servers = plan.of_role("ps")
        if servers:
            lines += ["PADDLE_PSERVERS_IP_PORT_LIST:", *(p.endpoint for p in servers)]
        self.write_private("endpoints.log", "\n".join(lines) + "\n")

    def write_private(self, name: str, text: str) -> None:
        """Write a file below the log directory, mode 0600; a full disk does not stop a job."""
        path = os.path.join(self.path, name)
        try:
            fd = _open_regular(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | SAFE_FLAGS)
            with open(fd, "w", encoding="utf-8", errors="replace") as f:
                f.write(text)
        except OSError:
            return

    def appender(self, name: str, text: str) -> Callable[[], None]:
        """Return a function that appends to a file below the log directory; best effort."""
        path = os.path.join(self.path, name)
        flags = self._append_flags(path)
        self._seen.add(path)

        def append() -> None:
            try:
                fd = _open_regular(path, flags)
                with open(fd, "w", encoding="utf-8", errors="replace") as f:
                    f.write(text)
            except OSError:
                return

        return append

    def make_private(self, path: str) -> None:
        """Make a directory that others cannot read. Raises UsageError."""
        try:
            _make_directory(path, 0o700)
        except OSError as error:
            raise UsageError(
                f"directory '{path}' for the servers' data cannot be made: {error.strerror}",
                hint="choose another with --log-dir",
            ) from error

    def remove_empty(self, places: list[str]) -> list[str]:
        """Remove the parents of these directories that are empty; returns the others."""
        left = []
        for parent in dict.fromkeys(map(os.path.dirname, places)):
            try:
                os.rmdir(parent)
            except FileNotFoundError:
                continue
            except OSError:
                left.append(parent)
        try:
            os.rmdir(os.path.join(self.path, "ps"))
        except OSError:
            pass  # earlier runs have left something, or there is none
        return left

    def close(self) -> None:
        """Remove the run directory if it is empty, and release the lock."""
        try:
            os.rmdir(self.run_dir)
        except OSError:
            pass  # something was left there on purpose
        if self._lock is not None:
            self._lock.release()


def _new_temporary(uid: str, error: OSError) -> str:
    """Make a directory of our own below $TMPDIR. Raises the error if that cannot be written too.

    For a container whose user owns nothing else: neither the working directory nor a home.
    """
    path = os.path.join(os.environ.get("TMPDIR") or "/tmp", f"paddock-{uid}-{os.urandom(4).hex()}")
    try:
        os.mkdir(path, 0o700)
    except OSError:
        raise error from None
    return path


def _is_our_link(entry: os.DirEntry[str]) -> bool:
    return entry.is_symlink() and os.readlink(entry.path) == f"{LATEST}/{entry.name}"


def _is_linked(name: str) -> bool:
    """Return True if the name is of a log that users look for right in the log directory."""
    head, _, tail = name.partition(".")
    return head in LINKED and (tail == "log" or tail.isdigit())


def _link(target: str, path: str) -> None:
    """Make a symbolic link, replacing the file that is there. Raises OSError."""
    if not os.path.islink(path) and os.path.exists(path):
        os.rename(path, f"{path}.before")
    temporary = f"{path}.{os.getpid()}"
    os.symlink(target, temporary)
    os.replace(temporary, path)


def _open_regular(path: str, flags: int) -> int:
    """Open a file of ours: no link that leads elsewhere, no FIFO that would make us wait."""
    fd = os.open(path, flags, FILE_MODE)
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file")
        os.fchmod(fd, FILE_MODE)
    except OSError:
        os.close(fd)
        raise
    return fd


def _make_directory(path: str, mode: int) -> None:
    """Make a directory and its parents; its owner may use it, whatever the umask says."""
    try:
        os.mkdir(path, mode)
    except FileExistsError:
        if not os.path.isdir(path):
            raise
        return
    except FileNotFoundError:
        _make_directory(os.path.dirname(path), 0o777)
        os.mkdir(path, mode)
    made = stat.S_IMODE(os.stat(path).st_mode)
    if made & 0o700 != 0o700:
        os.chmod(path, made | 0o700)


def _lock(path: str) -> DirectoryLock:
    from paddock.local.output.lock import lock  # a directory of the run's own needs none

    inner = os.path.join(path, ".paddock")
    _make_directory(path, 0o777)
    _make_directory(inner, 0o700)
    return lock(
        _open_regular(os.path.join(inner, "lock"), os.O_RDWR | os.O_CREAT | SAFE_FLAGS), inner
    )


def safe_name(text: str) -> str:
    """A job id as part of a file name.

    >>> safe_name("a/b c"), safe_name("..")
    ('a_b_c', '_')
    """
    kept = "".join(c if c.isalnum() or c in "-_." else "_" for c in text)[:80]
    return kept if kept.strip(".") else "_"
