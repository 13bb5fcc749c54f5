"""A progress meter: what takes longer than two seconds says what it does, and how far it is.

    paddock: splitting, 1.2 GiB of 4.0 GiB, 120 MiB/s, 24 s left

seconds since the start  at a terminal                a pipe, TERM=dumb             is_quiet
-----------------------  ---------------------------  ----------------------------  --------
below 2                  nothing                      nothing                       nothing
from 2                   one line, rewritten, cut to  a line, when there was no     nothing
                         the width                    other for 10 s
other output: aside()    the line is cleared first    the 10 s begin anew           nothing
end, error, Ctrl-C       the line is cleared          nothing                       nothing
"""

from __future__ import annotations

import io
import os
import sys
import threading
import time
from contextlib import contextmanager

from paddock.watch.svg import seconds_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import TextIO

SILENT_SECONDS = 2.0
PIPE_SECONDS = 10.0  # between two lines of a pipe
REWRITE_SECONDS = 0.2
USUAL_COLUMNS = 80
CLEAR = "\r\x1b[K"


class ProgressMeter:
    """Shows how far something is. A thread draws within `with`; else the caller calls tick().

    what: in the -ing form. noun: of the things counted, as "examples". unit: the text of a number
    of them, as of bytes. text: more to say; it may change at any time. now: seconds, of a clock
    that never goes back. Methods may be called by several threads.
    """

    def __init__(
        self,
        what: str,
        noun: str = "",
        *,
        unit: Callable[[int], str] = "{:,}".format,
        is_quiet: bool = False,
        stream: TextIO | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        found: TextIO | None = stream or sys.stderr  # None: it was closed before Python began
        self._stream = found or io.StringIO()
        self._is_terminal = self._stream.isatty() and os.environ.get("TERM") != "dumb"
        self._what, self.text = what, ""
        self._noun, self._unit = noun, unit
        self._is_quiet, self._now = is_quiet or found is None, now
        self._done, self._total = 0, 0
        self._made = self._begun = self._drawn = now()
        # Seconds and what was done, from which rates count; after the first that was done, without
        # what came before it, as compiling.
        self._from = self._moved = (self._begun, 0)
        self._is_shown = False
        self._lock = threading.RLock()
        self._is_over = threading.Event()
        self._thread: threading.Thread | None = None

    def __call__(self, done: int, total: int) -> None:
        """Set how much is done, of how much in all; a total of 0 is unknown."""
        self._done, self._total = done, total

    def add(self, count: int = 0, total: int = 0) -> None:
        """Count so much more as done, and as wanted."""
        with self._lock:
            self._done += count
            self._total += total

    def begin(self, what: str, total: int = 0, done: int = 0) -> None:
        """Begin with something else. done: by an earlier life, which took none of its seconds."""
        with self._lock:
            self._begun = self._now()
            self._what, self.text = what, ""
            self._done, self._total = done, total
            self._from = self._moved = (self._begun, done)

    def line(self) -> str:
        """The line as it is now. A rate below 1 a second is left out."""
        now, done, total = self._now(), self._done, self._total
        since, before = self._moved if done > self._moved[1] else self._from
        rate = (done - before) / max(now - since, 1e-9)
        parts = [self._what]
        if done or total:
            of = f" of {self._unit(total)}" if total else ""
            parts.append(f"{self._unit(done)}{of} {self._noun}".rstrip())
        if rate >= 1:
            parts.append(f"{self._unit(int(rate))}/s")
        if total and rate > 0:
            parts.append(f"{seconds_text(round(max(total - done, 0) / rate))} left")
        elif not rate:
            parts.append(seconds_text(round(now - self._begun)))
        parts += [self.text] if self.text else []  # the last: a narrow terminal cuts it
        return f"paddock: {', '.join(parts)}"

    def tick(self) -> None:
        """Draw the line if it is due."""
        now = self._now()
        if self._moved is self._from and self._done > self._from[1]:
            self._moved = (now, self._done)
        if self._is_quiet or now - self._made < SILENT_SECONDS:
            return
        if now - self._drawn < (REWRITE_SECONDS if self._is_terminal else PIPE_SECONDS):
            return
        with self._lock:
            self._drawn = now
            line = self.line()
            if not self._is_terminal:
                self._write(f"{line}\n")
                return
            self._is_shown = True
            # "\r": what others print goes over it, and not behind it.
            self._write(f"{CLEAR}{line[: self._columns() - 1]}\r")

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Clear the line for other output, which is written within `with`."""
        with self._lock:
            self.clear()
            yield

    def clear(self) -> None:
        """Remove the line from the terminal; the next one is due in its time."""
        with self._lock:
            self._drawn = self._now()
            if self._is_shown:
                self._is_shown = False
                self._write(CLEAR)

    def __enter__(self) -> ProgressMeter:
        self._is_over.clear()
        if not self._is_quiet:
            self._thread = threading.Thread(target=self._keep_drawing, daemon=True)
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        if self._thread is not None:
            self._thread.join()
        self.clear()

    def _keep_drawing(self) -> None:
        while not self._is_over.wait(REWRITE_SECONDS):
            self.tick()

    def _write(self, text: str) -> None:
        try:
            self._stream.write(text)
            self._stream.flush()
        except (OSError, ValueError):  # nobody reads it any more: the work goes on
            self._is_quiet = True

    def _columns(self) -> int:
        try:
            return os.get_terminal_size(self._stream.fileno()).columns or USUAL_COLUMNS
        except (OSError, ValueError):
            return USUAL_COLUMNS
