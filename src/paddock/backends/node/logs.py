"""The logs of a job on one host, as one stream in the order in which their lines came.

    DIR/log/workerlog.N            one host's directory
    DIR/log/HOST/workerlog.N       a directory that hosts share
    .../workerlog.N.times          time and rank of lines (local/output/times.py); a log without one
                                   comes whole, as of its last change, under its own name

Logs of a launch are in its directory, or in that of --log_dir, which other launches append to; the
times are in its own directory then, and tell which part of a log is its.

A row is (wall clock ns of this host, label, whole lines); the times never go back. While it follows
a job, a row without lines comes five times a second: nothing older than its time will come.
"""

from __future__ import annotations

import heapq
import os
import stat
import time
from collections import deque

from paddock.backends.types import LogQuery, process_name
from paddock.local.output.times import RECORD_BYTES, SUFFIX, read_times
from paddock.watch.history import FILE as HISTORY

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    Row = tuple[int, str, bytes]

ROUND_SECONDS = 0.2
BLOCK_BYTES = 1 << 18
LINE_BYTES = 1 << 20  # data without a newline is cut into lines of this length
KINDS = ("workerlog", "serverlog", "heterlog")
RUNS = "runs"  # below log/: of launches that this directory saw before
DEPTH = 2  # of directories below log/: a host's, and that of a job that found it in use
READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def rows(
    directory: str,
    query: LogQuery,
    *,
    host: str = "",
    is_shared: bool = False,
    is_over: Callable[[], bool] = lambda: True,
    nap: Callable[[float], None] = time.sleep,
) -> Iterator[Row]:
    """Yield the output of a job's processes on this host.

    host: its name in labels. is_shared: the directories in log/ are named after hosts. is_over():
    nothing more will be written; called again and again while the query follows.
    """
    host = host or os.uname().nodename

    def find() -> Iterator[LogFile]:
        for path, below in _find(os.path.join(directory, "log")):
            yield LogFile(path, below if is_shared and below else host, query)

    return _rows(find, query, is_over, nap)


def launch_rows(
    directory: str,
    place: str,
    query: LogQuery,
    *,
    host: str,
    is_over: Callable[[], bool],
    is_closed: bool,
) -> Iterator[Row]:
    """Yield the output of the ranks of one launch on this machine.

    directory: of the launch. place: the directory of its logs. is_closed: the launch has ended, so
    lines appended to a log since are not its.
    """

    def find() -> Iterator[LogFile]:
        for name, path in launch_logs(directory, place):
            yield LogFile(path, host, query, os.path.join(directory, name), is_closed=is_closed)

    return _rows(find, query, is_over)


def histories(directory: str) -> list[str]:
    """Return the histories of a job's launchers: beside their logs, in log/ or right below it."""
    found = []
    for folder, names, files in os.walk(os.path.join(directory, "log")):
        if HISTORY in files:
            found.append(os.path.join(folder, HISTORY))
        depth = os.path.relpath(folder, directory).count(os.sep)
        names[:] = [name for name in sorted(names) if depth < DEPTH and name != RUNS]
    return found


def launch_logs(directory: str, place: str) -> Iterator[tuple[str, str]]:
    """Yield the logs of a launch: their names, and where they are."""
    try:
        names = sorted(os.listdir(directory))
    except OSError:
        return
    for name in names:
        kind, _, number = name.removesuffix(SUFFIX).partition(".")
        is_wanted = name.endswith(SUFFIX) is not (directory == place)
        if is_wanted and kind in KINDS and number.isdigit():
            name = name.removesuffix(SUFFIX)
            yield name, os.path.join(place, name)


def last_lines(rows: Iterable[Row], tail: int) -> Iterator[Row]:
    """Yield the last `tail` lines, a row each; then every row that comes after a row without lines.

    >>> list(last_lines([(1, "a", b"1\\n2\\n"), (2, "b", b"3\\n"), (3, "", b"")], 2))
    [(1, 'a', b'2\\n'), (2, 'b', b'3\\n'), (3, '', b'')]
    """
    kept: deque[Row] = deque(maxlen=tail)
    left = iter(rows)
    for at_ns, label, data in left:
        if not data:
            yield from kept
            kept.clear()
            yield at_ns, label, data
            break
        lines = data.removesuffix(b"\n").rsplit(b"\n", tail)[-tail:] if tail else []
        kept.extend((at_ns, label, line + b"\n") for line in lines)
    yield from kept
    yield from left


def _rows(
    find: Callable[[], Iterator[LogFile]],
    query: LogQuery,
    is_over: Callable[[], bool],
    nap: Callable[[float], None] = time.sleep,
) -> Iterator[Row]:
    found = _grown(find, query, is_over, nap)
    return found if query.tail is None else last_lines(found, query.tail)


def _grown(
    find: Callable[[], Iterator[LogFile]],
    query: LogQuery,
    is_over: Callable[[], bool],
    nap: Callable[[float], None],
) -> Iterator[Row]:
    logs: dict[str, LogFile] = {}
    said_ns = 0
    while True:
        is_last = not query.follow or is_over()
        now_ns = time.time_ns()
        for log in find():
            logs.setdefault(log.path, log)
        grown = [log.grow(now_ns, said_ns, is_last=is_last) for log in logs.values()]
        yield from heapq.merge(*grown)
        if is_last:
            for log in logs.values():
                log.close()
            return
        said_ns = now_ns
        yield now_ns, "", b""
        nap(ROUND_SECONDS)


def _find(folder: str, below: str = "", depth: int = DEPTH) -> Iterator[tuple[str, str]]:
    """Yield logs, and the directory right below log/ in which they are. Links are not followed."""
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError:
        return  # it is not there yet
    for entry in entries:
        kind, _, number = entry.name.partition(".")
        if kind in KINDS and number.isdigit():
            yield entry.path, below
        elif depth and entry.name[0] != "." and entry.is_dir(follow_symlinks=False):
            yield from _find(entry.path, below or entry.name, depth - 1)


class LogFile:
    """A log file and its times, read as they grow."""

    def __init__(
        self, path: str, host: str, query: LogQuery, base: str = "", *, is_closed: bool = False
    ) -> None:
        """Open nothing yet. base: path of the log with the times, which tell this run's part."""
        self.path = path
        self._base = base or path
        self._is_closed = is_closed
        self.host = host
        self._ranks = query.ranks
        self._since_ns = int(query.since * 1e9)
        self._until_ns = int(query.until * 1e9)
        self._fd = -1
        self._times_fd = -1
        self._forget()

    def _forget(self) -> None:
        """Start again at the beginning of the file."""
        self._at = 0  # the next byte of the log, and of its times
        self._times_at = 0
        self._records: deque[tuple[int, int, tuple[str, int, int] | None]] = deque()
        self._latest = 0  # offset of them all
        self._rest = b""
        self._is_torn = False  # next comes the rest of a line that was left out
        self._label = f"{self.host} {os.path.basename(self.path)}"
        self._is_wanted = not self._ranks
        self._came_ns = 0

    def close(self) -> None:
        """Close the log and its times."""
        for fd in (self._fd, self._times_fd):
            if fd >= 0:
                os.close(fd)
        self._fd = self._times_fd = -1

    def grow(self, now_ns: int, said_ns: int, *, is_last: bool) -> Iterator[Row]:
        """Yield rows since the last call, none older than said_ns or younger than now_ns."""
        if self._fd < 0:
            self._fd = _open(self.path)
        if self._fd < 0:
            return
        found = os.fstat(self._fd)
        if found.st_size < self._at:
            self._forget()  # it was emptied (--log_overwrite)
        self._read_times()  # after the size: a record comes before its bytes
        size = found.st_size
        if self._base != self.path:  # the log of several runs
            if not self._records and not self._latest:
                return
            if self._at == 0 and self._records:
                self._at = self._records[0][0]
            if self._is_closed:
                size = min(size, self._latest)
        self._came_ns = max(self._came_ns, said_ns)
        if self._times_fd < 0:
            self._came_ns = min(max(self._came_ns, found.st_mtime_ns), max(now_ns, said_ns))
        yield from self._read(size, now_ns)
        if is_last and self._rest:
            yield self._came_ns, self._label, self._take_rest()

    def _read(self, size: int, now_ns: int) -> Iterator[Row]:
        records = self._records
        is_choosy = bool(self._ranks or self._since_ns or self._until_ns)
        block, block_at, block_end = b"", 0, 0
        while self._at < size:
            while records and records[0][0] <= self._at:
                _, came_ns, who = records.popleft()
                if who is not None:
                    if self._rest:
                        yield self._came_ns, self._label, self._take_rest()
                    self._name(who)
                elif came_ns > self._came_ns:  # one from the future is of now
                    self._came_ns = came_ns if came_ns < now_ns else max(self._came_ns, now_ns)
            at, end = self._at, records[0][0] if records else size
            if end > size:
                end = size
            if is_choosy and not self._wants():
                self._leave_out(end)
                continue
            if at >= block_end:
                block, block_at = os.pread(self._fd, BLOCK_BYTES, at), at
                block_end = at + len(block)
                if not block:
                    return  # it was emptied while we read
            lines = block[at - block_at : end - block_at]
            self._at = at + len(lines)
            if self._rest or self._is_torn or lines[-1:] != b"\n":
                lines = self._whole(lines)
            if lines:
                yield self._came_ns, self._label, lines

    def _name(self, who: tuple[str, int, int]) -> None:
        role, rank, _ = who
        self._label = f"{self.host} {process_name(role, rank)}"
        self._is_wanted = not self._ranks or (role == "worker" and rank in self._ranks)
        self._is_torn = False

    def _wants(self) -> bool:
        if not self._is_wanted or self._came_ns < self._since_ns:
            return False
        return not self._until_ns or self._came_ns <= self._until_ns

    def _leave_out(self, end: int) -> None:
        """Go on at `end`; a line that began before it is left out whole."""
        self._at = end
        self._rest = b""
        self._is_torn = os.pread(self._fd, 1, end - 1) != b"\n"

    def _whole(self, data: bytes) -> bytes:
        """Return the lines that are complete with this data."""
        if self._is_torn:
            _, newline, data = data.partition(b"\n")
            self._is_torn = not newline
        data = self._rest + data if self._rest else data
        cut = data.rfind(b"\n") + 1
        self._rest = data[cut:]
        if len(self._rest) > LINE_BYTES:
            return data[:cut] + self._take_rest()
        return data[:cut]

    def _take_rest(self) -> bytes:
        rest, self._rest = self._rest, b""
        return rest + b"\n"

    def _read_times(self) -> None:
        if self._times_fd < 0:
            self._times_fd = _open(self._base + SUFFIX)
        if self._times_fd < 0:
            return
        size = os.fstat(self._times_fd).st_size
        size -= size % RECORD_BYTES
        if size < self._times_at:
            self._times_at = 0
        data = os.pread(self._times_fd, size - self._times_at, self._times_at)
        self._times_at += len(data) - len(data) % RECORD_BYTES
        for offset, came_ns, who in read_times(data):
            if who is None and offset < self._latest:
                continue  # damaged
            while self._records and self._records[-1][0] > offset:
                self._records.pop()  # of a log that was emptied by hand
            self._latest = offset
            self._records.append((offset, came_ns, who))


def _open(path: str) -> int:
    """Return a descriptor of a regular file, no link; -1 when there is none."""
    try:
        fd = os.open(path, READ)
    except OSError:
        return -1
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        return -1
    return fd
