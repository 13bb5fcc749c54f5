"""Multiplexes the log lines of all processes: to files, and to the console with prefixes.

One thread owns all pipes, log files and the console, so that a full disk, a hung file system or a
stopped terminal never holds up supervision. The owner thread of the job only posts to it.

Rules: a log file gets the bytes as they came; the console gets whole lines, decoded with
replacement. A console that does not drain holds back the processes shown on it, and no others.
A file that cannot be written is reported once and the job goes on.
"""

from __future__ import annotations

import os
import select
from collections import deque
from time import monotonic, monotonic_ns, sleep

from paddock.core.hosts import ROLE_NOUNS
from paddock.local.output.console import Console, write_all
from paddock.local.output.noise import SOURCES, Noise

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from threading import Thread

    from paddock.local.output.times import LineTimes

CHUNK_BYTES = 1 << 16
TAIL_BYTES = 1 << 14
LINE_LIMIT_BYTES = 1 << 16
PARTIAL_FLUSH_SECONDS = 0.05
TRICKLE_BYTES = 1 << 14
TRICKLE_SECONDS = 0.001
# What ending.ends_with_traceback looks for.
TRACEBACKS = (b"Traceback (most recent call last)", b"SyntaxError: ", b"IndentationError: ",
              b"TabError: ")  # fmt: skip


class ProcessStream:
    """The output of one process. Fields below are written by the output thread only.

    Where the console keeps stderr apart, the process has a second stream for it, ``errors``, whose
    ``whole`` is the first: one log file and one tail for both.
    """

    __slots__ = (
        "begins_at", "error_at_ns", "error_file", "errors", "fd", "file_fd", "first_at", "has_lost",
        "header", "is_open", "is_paused", "is_still", "key", "lost_bytes", "noise", "open_times",
        "partial", "path", "prefix", "shown", "tail", "tail_bytes", "times", "whole",
    )  # fmt: skip

    def __init__(
        self, key: tuple[str, int], fd: int, file_fd: int, path: str, shown: bool, prefix: bytes
    ) -> None:
        self.key = key
        self.fd = fd
        self.file_fd = file_fd
        self.path = path
        self.shown = shown
        self.prefix = prefix
        self.header = b""  # before its part of a file that others have written to
        self.partial = b""
        self.tail: deque[bytes] = deque()
        self.tail_bytes = 0
        self.lost_bytes = 0
        self.has_lost = False
        self.error_at_ns = 0
        self.first_at = 0.0  # monotonic second of its first byte
        self.begins_at = 0  # offset of that in its file
        self.is_open = True
        self.is_paused = False
        self.is_still = bool(prefix)  # of a progress line the console gets the last state only
        self.noise: Noise | None = None  # what is left out of the console, if anything is
        self.whole = self
        self.errors: ProcessStream | None = None
        self.open_times: Callable[[int], LineTimes | None] | None = None  # from this offset on
        self.times: LineTimes | None = None  # when its lines came
        self.error_file = ""  # where torch's @record says what happened

    def set_apart(self, fd: int, shown: bool) -> None:
        """Take stderr from a pipe of its own."""
        self.errors = ProcessStream(self.key, fd, -1, self.path, shown, self.prefix)
        self.errors.whole = self

    def both(self) -> list[ProcessStream]:
        """This stream, then that of stderr if it is apart: its bytes count as the last."""
        return [self] if self.errors is None else [self, self.errors]

    def last_bytes(self) -> bytes:
        """The last TAIL_BYTES or so of what the process wrote."""
        return b"".join(self.tail)[-TAIL_BYTES:]


class OutputThread:
    """The output thread and what is posted to it."""

    def __init__(
        self,
        *,
        stdout: int = 1,
        stderr: int = 2,
        on_lost: Callable[[str], None] = lambda _: None,
        has_own_screen: bool = False,
    ) -> None:
        """on_lost(text): called in the output thread when output is lost for the first time.

        has_own_screen: stderr is for the launcher's own lines, all else goes to stdout.
        """
        self._on_lost = on_lost
        self._has_own_screen = has_own_screen
        self._stdout, self._stderr = stdout, stderr
        self._epoll = select.epoll()
        self._streams: dict[int, ProcessStream] = {}
        self._calls: deque[Callable[[], None]] = deque()
        self._wake_read, self._wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._epoll.register(self._wake_read, select.EPOLLIN)
        self._console = Console(stdout, stderr, self._epoll)
        self._flush_at: float | None = None
        self._round_bytes = 0
        self._rested_at = 0.0
        self._thread: Thread | None = None
        self._is_running = False
        self._is_still = (False, False)  # of stdout and stderr: see fold
        self._fold_text: Callable[[int, str], str] | None = None
        self._noise_sources: tuple[bytes, ...] = SOURCES
        self._folded: dict[str, int] = {}  # lines, by log
        self._has_told_folded = False

    # ------------------------------------------------- called by the owner

    def fold(self, text: Callable[[int, str], str], sources: tuple[bytes, ...] = SOURCES) -> None:
        """Fold the console's lines, before anything is shown: without a framework's own lines, and
        where it is no terminal with the last state of a progress line only.

        text(lines, path): the note about them, shown once; path is a log's, "" for several.
        sources: of a Noise.
        """
        self._fold_text, self._noise_sources = text, sources
        self._is_still = (not os.isatty(self._stdout), not os.isatty(self._stderr))

    def start(self) -> None:
        """Start the thread; text of earlier ``say`` calls is written first. Raises RuntimeError."""
        import threading

        self._console.open()
        thread = threading.Thread(target=self._run, name="paddock-output", daemon=True)
        self._is_running = True
        thread.start()
        self._thread = thread

    def say(self, text: str, *, to_stdout: bool = False) -> None:
        """Write the launcher's own lines to the console, in order with the processes' output."""
        data = text.encode("utf-8", "replace")
        write = self._console.show if to_stdout else self._console.say
        if self._is_running:
            self._post(lambda: write(data))
        else:
            write(data)  # waits: a console that is full holds up no rank

    def has_shown(self, text: str) -> bool:
        """Return True if a process has just written this where ``say`` writes, as far as read."""
        return self._console.has_shown(text)

    def do(self, call: Callable[[], None]) -> None:
        """Call this in the output thread, in order with what is written."""
        self._post(call)

    def add(self, streams: list[ProcessStream]) -> None:
        """Begin to read the pipes of new processes."""

        def begin() -> None:
            for stream in (one for whole in streams for one in whole.both()):
                self._streams[stream.fd] = stream
                if self._fold_text is not None:
                    stream.noise = Noise(self._noise_sources)
                    stream.is_still |= self._is_still[stream.whole is not stream]
                self._epoll.register(stream.fd, select.EPOLLIN)
                if stream.file_fd >= 0:
                    self._begin_log(stream)

        self._post(begin)

    def drain(self, streams: list[ProcessStream], done: Callable[[], None] | None = None) -> None:
        """Read what is left of these pipes, close them and their files, then call ``done``.

        ``done`` runs in the output thread: it should only post to the caller's loop.
        """

        def finish() -> None:
            for stream in (one for whole in streams for one in whole.both()):
                if stream.is_open:
                    self._read_rest(stream)
                    self._close(stream)
            if done is not None:
                done()

        self._post(finish)

    def peek(self, stream: ProcessStream, done: Callable[[bytes, int], None]) -> None:
        """Read what a process that just ended has written.

        ``done(last bytes, when a traceback last came in ns or 0)`` runs in the output thread.
        """

        def read() -> None:
            # First what others wrote before it ended: tracebacks are dated when they are read.
            self._read_ready(0, max(1, len(self._streams)))
            for one in stream.both():
                if one.is_open:
                    self._read_rest(one)
            done(stream.last_bytes(), stream.error_at_ns)

        self._post(read)

    def stop(self, timeout_seconds: float) -> None:
        """Write out what is posted and end the thread; gives up on a console that is stuck."""
        deadline = monotonic() + timeout_seconds
        if self._thread is None:
            self.start()
        assert self._thread is not None
        self._post(self._halt)
        self._thread.join(timeout_seconds)
        if not self._thread.is_alive():
            self._console.close(deadline)

    def _post(self, call: Callable[[], None]) -> None:
        self._calls.append(call)
        try:
            os.write(self._wake_write, b"!")
        except BlockingIOError:
            return

    # --------------------------------------------------- the output thread

    def _run(self) -> None:
        while self._is_running or self._console.is_waiting or self._calls:
            self._read_ready(self._timeout(), 64)
            self._gather_short_lines()
            while self._calls:
                self._calls.popleft()()
            if self._flush_at is not None and monotonic() >= self._flush_at:
                self._flush_partials()
            self._console.write()
            if self._console.is_full:
                self._pause_shown()
            elif not self._console.is_waiting:
                self._resume_shown()

    def _read_ready(self, timeout: float | None, count: int) -> None:
        """Take a chunk of each stream that has something, at most so many."""
        for fd, _events in self._epoll.poll(timeout, count):
            stream = self._streams.get(fd)
            if stream is not None:
                self._read_once(stream)
            elif fd == self._wake_read:
                self._read_wake()

    def _gather_short_lines(self) -> None:
        """Rest a moment when short lines come one by one: woken for each, we and the writer would
        hand the processor back and forth a million times.
        """
        is_trickle = 0 < self._round_bytes < TRICKLE_BYTES
        self._round_bytes = 0
        if is_trickle and monotonic() - self._rested_at < 2 * TRICKLE_SECONDS:
            sleep(TRICKLE_SECONDS)
        self._rested_at = monotonic() if is_trickle else 0.0

    def _halt(self) -> None:
        self._is_running = False

    def _timeout(self) -> float | None:
        if self._calls:
            return 0
        if self._flush_at is None:
            return None
        return max(0.0, self._flush_at - monotonic())

    def _read_wake(self) -> None:
        try:
            os.read(self._wake_read, 4096)
        except BlockingIOError:
            return

    def _read_once(self, stream: ProcessStream) -> bool:
        """Take one chunk; False at the end of the stream or when nothing is there."""
        try:
            data = os.read(stream.fd, CHUNK_BYTES)
        except BlockingIOError:
            return False
        except OSError:
            data = b""
        if not data:
            self._close(stream)
            return False
        self._round_bytes += len(data)
        whole = stream.whole
        if not whole.first_at:
            whole.first_at = monotonic()
        self._to_file(whole, data)
        whole.tail.append(data)
        whole.tail_bytes += len(data)
        while whole.tail_bytes - len(whole.tail[0]) >= TAIL_BYTES:
            whole.tail_bytes -= len(whole.tail.popleft())
        if len(whole.tail) > 512:
            joined = whole.last_bytes()
            whole.tail.clear()
            whole.tail.append(joined)
            whole.tail_bytes = len(joined)
        if any(word in data for word in TRACEBACKS):
            whole.error_at_ns = monotonic_ns()
        if stream.shown:
            self._show(stream, data)
        return True

    def _read_rest(self, stream: ProcessStream) -> None:
        """Read until the pipe is empty. Bounded: what a survivor still writes is not awaited."""
        for _ in range(4096):
            if not self._read_once(stream):
                return

    def _close(self, stream: ProcessStream) -> None:
        if not stream.is_open:
            return
        stream.is_open = False
        if stream.shown:
            self._put_lines(stream, stream.partial + b"\n" if stream.partial else b"")
            if stream.noise is not None and (rest := stream.noise.rest()):
                self._put(stream, _lines(stream, rest))
            stream.partial = b""
            self._tell_folded()
        if not stream.is_paused:
            self._epoll.unregister(stream.fd)
        del self._streams[stream.fd]
        os.close(stream.fd)
        whole = stream.whole
        if whole.file_fd >= 0 and not any(one.is_open for one in whole.both()):
            os.close(whole.file_fd)
            if whole.times is not None:
                whole.times.close()

    # -------------------------------------------------------------- files

    def _begin_log(self, stream: ProcessStream) -> None:
        """Begin a process's part of its log, with a header if the file holds others' lines."""
        held = stream.begins_at = os.fstat(stream.file_fd).st_size
        if stream.open_times is not None:
            stream.times = stream.open_times(held)
        if held and stream.header:
            self._to_file(stream, stream.header)

    def _to_file(self, stream: ProcessStream, data: bytes) -> None:
        if stream.file_fd < 0:
            return
        try:
            if stream.lost_bytes:
                note = f"\n[paddock: {stream.lost_bytes} bytes lost here: log not writable]\n"
                os.write(stream.file_fd, note.encode())
                stream.lost_bytes = 0
            if stream.times is not None:
                stream.times.stamp(stream.file_fd, len(data))
            write_all(stream.file_fd, data)
        except OSError as error:  # full disk, quota, file system gone: the job goes on
            if stream.times is not None:
                stream.times.lose()
            if not stream.lost_bytes:
                role, rank = stream.key
                who = f"{ROLE_NOUNS.get(role, role)} {rank}"
                what = f"cannot write {stream.path} ({error.strerror})"
                from paddock.local.report.reporter import fit_terminal

                text = f"paddock: warning: {what}: output of {who} is being lost, the job goes on"
                self._console.say(f"{fit_terminal(text, self._stderr)}\n".encode())
                if not stream.has_lost:  # when there is room for a while, once is enough
                    stream.has_lost = True
                    self._on_lost(f"{what}: some output of {who} is lost")
            stream.lost_bytes += len(data)

    # ------------------------------------------------------------- console

    def _put(self, stream: ProcessStream, data: bytes) -> None:
        self._tell_folded()
        if stream.whole is stream or self._has_own_screen:
            self._console.show(data)
        else:
            self._console.show_errors(data)

    def _put_lines(self, stream: ProcessStream, data: bytes) -> None:
        if stream.noise is not None:
            before = stream.noise.folded
            data = stream.noise.take(data)
            if more := stream.noise.folded - before:
                self._folded[stream.path] = self._folded.get(stream.path, 0) + more
        if data:
            self._put(stream, _lines(stream, data))

    def _tell_folded(self) -> None:
        """Tell how many lines were left out, once: before the next line shown, or at the end."""
        if self._folded and self._fold_text is not None and not self._has_told_folded:
            self._has_told_folded = True
            path = next(iter(self._folded)) if len(self._folded) == 1 else ""
            self._console.say(self._fold_text(sum(self._folded.values()), path).encode())

    def _show(self, stream: ProcessStream, data: bytes) -> None:
        whole = stream.partial + data if stream.partial else data
        end = whole.rfind(b"\n") + 1
        if end:
            self._put_lines(stream, whole[:end])
        stream.partial = whole[end:]
        if stream.is_still and b"\r" in stream.partial:
            stream.partial = stream.partial[max(0, _last_state_at(stream.partial) - 1) :]
        if len(stream.partial) > LINE_LIMIT_BYTES:
            self._put_lines(stream, stream.partial + b"\n")
            stream.partial = b""
        if _may_flush(stream) and self._flush_at is None:
            self._flush_at = monotonic() + PARTIAL_FLUSH_SECONDS

    def _flush_partials(self) -> None:
        """A prompt or a progress bar has no newline: show it when its writer falls silent.

        With several processes on the console another's line would end it, so there it waits.
        """
        self._flush_at = None
        shown = [s for s in self._streams.values() if s.shown]
        if len({stream.key for stream in shown}) > 1:
            return
        for stream in shown:
            if _may_flush(stream):
                cut = _whole_characters(stream.partial)
                if cut:
                    self._put(stream, _decoded(stream.partial[:cut]))
                    stream.partial = stream.partial[cut:]

    def _pause_shown(self) -> None:
        for stream in self._streams.values():
            if stream.shown and not stream.is_paused:
                stream.is_paused = True
                self._epoll.unregister(stream.fd)

    def _resume_shown(self) -> None:
        for stream in self._streams.values():
            if stream.is_paused:
                stream.is_paused = False
                self._epoll.register(stream.fd, select.EPOLLIN)


def _lines(stream: ProcessStream, data: bytes) -> bytes:
    if not stream.is_still:
        return _decoded(data)
    if b"\r" not in data:
        inner = _decoded(data[:-1]).replace(b"\n", b"\n" + stream.prefix)
        return stream.prefix + inner + b"\n"
    return b"".join(
        stream.prefix + _decoded(part[_last_state_at(part) :].rstrip(b"\r")) + b"\n"
        for part in data[:-1].split(b"\n")
    )


def _may_flush(stream: ProcessStream) -> bool:
    """Return True if a line without its newline may be shown: no prefix, not redrawn."""
    is_redrawn = stream.is_still and b"\r" in stream.partial
    return bool(stream.partial) and not (stream.prefix or is_redrawn)


def _last_state_at(line: bytes) -> int:
    r"""The offset of the last state of a line that is redrawn with \r, as a progress bar is.

    >>> _last_state_at(b"\r10%\r50%\r"), _last_state_at(b"done\r")
    (5, 0)
    """
    return line.rstrip(b"\r").rfind(b"\r") + 1


def _decoded(data: bytes) -> bytes:
    if data.isascii():
        return data
    return data.decode("utf-8", "replace").encode("utf-8")


def _whole_characters(data: bytes) -> int:
    """Length without an incomplete UTF-8 character at the end.

    >>> _whole_characters("é".encode()[:1]), _whole_characters("é".encode())
    (0, 2)
    """
    for back in range(1, min(4, len(data)) + 1):
        byte = data[-back]
        if byte < 0x80:
            return len(data)
        if byte >= 0xC0:
            need = 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
            return len(data) if back >= need else len(data) - back
    return len(data)
