"""The newest lines of the logs of runs that go on. All pages of a run share one reader."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict, deque
from itertools import islice
from typing import TYPE_CHECKING

from paddock.backends.types import LogQuery, process_name
from paddock.errors import PaddockError
from paddock.web.loglines import LETTERS_MAX, LogLine, as_line, split_chunk

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from paddock.backends.types import LogChunk

LINES_KEPT = 20_000
LINES_SENT = 500  # at once to one page: the newest
IDLE_SECONDS = 60.0  # nobody looked for so long: the reader ends with the next line
FOLLOWED = 8  # runs


class LogFollower:
    """Reads a log as it grows, in a thread. chunks: until the log ends."""

    def __init__(self, chunks: Callable[[], Iterator[LogChunk]]) -> None:
        self.is_stale = False  # it has ended before the log: nobody looked, or a host was silent
        self._chunks = chunks
        self._lines: deque[tuple[int, str, bytes]] = deque(maxlen=LINES_KEPT)
        self._count = 0  # of all lines ever
        self._asked_at = time.monotonic()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._read, name="paddock-web-log", daemon=True)
        self._thread.start()

    @property
    def is_over(self) -> bool:
        """No more lines will come."""
        return not self._thread.is_alive()

    def _read(self) -> None:
        try:
            for chunk in self._chunks():
                lines = [
                    (chunk.at_ns, chunk.label, line[: 5 * LETTERS_MAX])
                    for line in split_chunk(chunk)
                ]
                with self._lock:
                    self._lines.extend(lines)
                    self._count += len(lines)
                if time.monotonic() - self._asked_at > IDLE_SECONDS:
                    self.is_stale = True
                    return
        except PaddockError:
            self.is_stale = True

    def after(
        self, number: int, since_ns: int, ranks: tuple[int, ...], search: str
    ) -> tuple[list[LogLine], int, int]:
        """Lines from `number` on, younger than since_ns, of these ranks, with this text.

        Returns the newest LINES_SENT of them, the count of those left out, and the next number.
        """
        needle = search.lower().encode()
        ends = tuple(" " + process_name("worker", rank) for rank in ranks)
        with self._lock:
            self._asked_at = time.monotonic()
            number = number if number <= self._count else 0  # of a follower before this one
            first = self._count - len(self._lines)
            lost = max(0, first - number) if number else 0
            new = list(islice(self._lines, max(0, number - first), None))
            count = self._count
        found = [
            row
            for row in new
            if row[0] > since_ns
            and (not ends or row[1].endswith(ends))
            and (not needle or needle in row[2].lower())
        ]
        left_out = lost + max(0, len(found) - LINES_SENT)
        return [as_line(*row) for row in found[-LINES_SENT:]], left_out, count


class LogFollowers:
    """The followers, by run; the one that was asked longest ago makes room."""

    def __init__(self) -> None:
        self._found: OrderedDict[str, LogFollower] = OrderedDict()
        self._lock = threading.Lock()

    def of(self, run_id: str, chunks: Callable[[LogQuery], Iterator[LogChunk]]) -> LogFollower:
        """The follower of a run's log; a new one begins a second ago."""
        with self._lock:
            found = self._found.get(run_id)
            if found is None or found.is_stale:
                query = LogQuery(since=time.time() - 1.0, follow=True)
                found = self._found[run_id] = LogFollower(lambda: chunks(query))
            self._found.move_to_end(run_id)
            while len(self._found) > FOLLOWED:
                self._found.popitem(last=False)  # nobody asks it any more, so it ends
            return found
