"""The console: the shown processes' lines and the launcher's own, in the order they came.

Nothing here blocks. A pipe is opened anew with O_NONBLOCK, which set on the descriptor we were
given would also be set for all that share it, the user's shell for one. No flag does the same for a
terminal: one that is stopped (Ctrl-S, a stalled ssh) calls itself writable and then takes less
than it is given. There a thread of its own carries on from a pipe of ours, and when it is stuck
as all is over it is left behind.
"""

from __future__ import annotations

import os
import select
import stat
from collections import deque
from time import monotonic

from paddock.local.runs.record import keep_error

TYPE_CHECKING = False
if TYPE_CHECKING:
    from threading import Thread

    from paddock.core.job import Job
    from paddock.core.plan import Proc

LIMIT_BYTES = 1 << 20
CHUNK_BYTES = 1 << 16
LAST_WORDS_SECONDS = 2.0
KEPT_BYTES = 1 << 13


class OutputSink:
    """A descriptor that leads where another one does, and never blocks once it is open."""

    def __init__(self, given: int) -> None:
        self.fd = self._given = given
        self._thread: Thread | None = None

    def open(self) -> None:
        """Open the descriptor. Raises RuntimeError when no thread can be started."""
        try:
            mode = os.fstat(self._given).st_mode
            if stat.S_ISREG(mode) or (stat.S_ISCHR(mode) and not os.isatty(self._given)):
                return  # a file, /dev/null
            if stat.S_ISFIFO(mode):
                flags = os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC
                self.fd = os.open(f"/proc/self/fd/{self._given}", flags)
                return
        except OSError:
            pass  # no /proc, another user's pipe, or no reader
        import threading

        read_fd, write_fd = os.pipe2(os.O_CLOEXEC)
        carrier = threading.Thread(target=_carry, args=(read_fd, self._given), daemon=True)
        try:
            carrier.start()
        except RuntimeError:
            os.close(read_fd)
            os.close(write_fd)
            raise
        os.set_blocking(write_fd, False)
        self.fd, self._thread = write_fd, carrier

    def close(self, deadline: float) -> None:
        """Close; text that has not arrived at the monotonic second ``deadline`` is dropped."""
        if self.fd != self._given:
            os.close(self.fd)
        if self._thread is not None:
            self._thread.join(max(0.0, deadline - monotonic()))
        self.fd, self._thread = self._given, None


class Console:
    """The text to be written, and the descriptors it goes to. All of it waits until ``open``.

    epoll: woken when there is room again; ``write`` is to be called then.
    """

    def __init__(self, stdout: int, stderr: int, epoll: select.epoll) -> None:
        self._epoll = epoll
        self._out = self._err = OutputSink(stdout)
        if not is_one_place(stdout, stderr):  # one way keeps the order on one terminal
            self._err = OutputSink(stderr)
        self._queue: deque[tuple[OutputSink, bytes | memoryview]] = deque()
        self._bytes = 0
        self._waits_for: int | None = None
        self._dead: set[OutputSink] = set()
        self._at_line_start = True
        self._shown = b""  # the last of what processes wrote where we write, too
        self._is_open = False

    @property
    def is_waiting(self) -> bool:
        """True while something is not written."""
        return bool(self._queue)

    @property
    def is_full(self) -> bool:
        """True when more waits than should."""
        return self._bytes > LIMIT_BYTES

    def open(self) -> None:
        """Begin to write. Raises RuntimeError when no thread can be started."""
        for way in {self._out, self._err}:
            way.open()
        self._is_open = True

    def show(self, data: bytes) -> None:
        """Queue the output of a shown process."""
        self._keep(self._out, data)
        self._put(self._out, data)

    def show_errors(self, data: bytes) -> None:
        """Queue the stderr of a shown process, where stderr is kept apart."""
        self._keep(self._err, data)
        self._put(self._err, data)

    def _keep(self, way: OutputSink, data: bytes) -> None:
        if way is self._err:
            self._shown = (self._shown + data[-KEPT_BYTES:])[-KEPT_BYTES:]

    def has_shown(self, text: str) -> bool:
        """Return True if these lines are among the last that processes wrote."""
        from paddock.local.ending import stands_in  # once a rank has failed

        return stands_in(self._shown, text)

    def say(self, data: bytes) -> None:
        """Queue the launcher's own lines, which begin on a line of their own."""
        self._put(self._err, data if self._at_line_start else b"\n" + data)

    def _put(self, way: OutputSink, data: bytes) -> None:
        if way in self._dead or not data:
            return
        self._at_line_start = data.endswith(b"\n")
        self._queue.append((way, data))
        self._bytes += len(data)
        if self._bytes > LIMIT_BYTES // 4:
            self.write()

    def write(self) -> None:
        """Write as much as there is room for."""
        while self._queue and self._is_open:
            way, data = self._queue[0]
            try:
                written = os.write(way.fd, data)
            except BlockingIOError:
                self._await(way.fd)
                return
            except OSError:  # the reader is gone; the files have it
                self._dead.add(way)
                written = len(data)
            self._bytes -= written
            if written == len(data):
                self._queue.popleft()
            else:
                self._queue[0] = (way, memoryview(data)[written:])
        self._await(None)

    def _await(self, fd: int | None) -> None:
        if fd == self._waits_for:
            return
        if self._waits_for is not None:
            self._epoll.unregister(self._waits_for)
        if fd is not None:
            self._epoll.register(fd, select.EPOLLOUT)
        self._waits_for = fd

    def close(self, deadline: float) -> None:
        """End the console; text that it has not taken by the ``deadline`` is dropped."""
        for way in {self._out, self._err}:
            way.close(deadline)


def last_words(text: str, record: str, why: str) -> None:
    """Write an error to stderr just before this process ends; a stuck console delays that little.

    record: the job's record that gets the reason; "" for none.
    """
    keep_error(record, why)
    data = text.encode("utf-8", "replace")
    deadline = monotonic() + LAST_WORDS_SECONDS
    try:
        epoll = select.epoll()
        console = Console(2, 2, epoll)
        console.open()
    except (OSError, RuntimeError):  # a limit of files or processes is reached: it has to wait
        os.write(2, data)
        return
    console.say(data)
    console.write()
    while console.is_waiting and (left := deadline - monotonic()) > 0:
        epoll.poll(left)
        console.write()
    console.close(deadline)


def shown_keys(tail: tuple[str, ...], procs: tuple[Proc, ...]) -> frozenset[tuple[str, int]]:
    """The keys (role, rank) of a node's processes that the console shows.

    "0": the first worker of this node (as Paddle does on every node); a number: that global rank
    of the workers; a role name: all of that role; "all": everything; "none": nothing.
    """
    if tail == ("0",):
        first = [p for p in procs if p.role == "worker"] or list(procs)  # or a node of servers
        return frozenset((p.role, p.rank) for p in first[:1])
    ranks = {int(word) for word in tail if word.isdigit()}
    return frozenset(
        (p.role, p.rank)
        for p in procs
        if "all" in tail or p.role in tail or (p.role == "worker" and p.rank in ranks)
    )


def prefix_of(job: Job, proc: Proc, shown: int) -> bytes:
    """The prefix of each line of a process, if that many are shown; b"" for none.

    torchrun's template names the macros: torch/distributed/elastic/agent/server/api.py.
    """
    choice, template = job.logs.prefix, job.logs.line_prefix
    if choice == "never" or (choice == "auto" and shown < 2 and not template):
        return b""
    if not template:
        return f"[{proc.name}] ".encode()
    macros = {
        "role_name": job.role_name if proc.role == "worker" else proc.role,
        "local_rank": proc.local_rank,
        "rank": proc.rank,
        "hostname": proc.host,
    }
    for name, text in macros.items():
        template = template.replace("${" + name + "}", str(text)).replace("$" + name, str(text))
    return template.encode("utf-8", "replace")


def is_one_place(fd: int, other: int) -> bool:
    """True when both lead to the same terminal, pipe or file."""
    try:
        return os.path.samestat(os.fstat(fd), os.fstat(other))
    except OSError:
        return False


def _carry(read_fd: int, fd: int) -> None:
    """Copy a pipe's data to a descriptor that may block."""
    while data := os.read(read_fd, CHUNK_BYTES):
        view = memoryview(data)
        while view:
            try:
                view = view[os.write(fd, view) :]
            except BlockingIOError:  # a process that shares it has set O_NONBLOCK
                poller = select.poll()
                poller.register(fd, select.POLLOUT)
                poller.poll()
            except OSError:
                os.close(read_fd)  # so that the writer hears of it
                return
    os.close(read_fd)


def write_all(fd: int, data: bytes) -> None:
    """Write all of the data to a descriptor that blocks. Raises OSError."""
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]
