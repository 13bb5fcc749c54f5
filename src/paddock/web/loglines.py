"""Log lines as pages show them, and a window of a log: so many lines before or after a place.

A log may be hostile: a line becomes plain text without control characters, cut to LETTERS_MAX.
Templates escape it. Equal lines of several ranks, close to one another, become one with a count.
"""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass, replace
from itertools import islice, repeat, takewhile
from typing import TYPE_CHECKING, NamedTuple

from paddock.backends.merge import for_terminal
from paddock.backends.types import LogQuery

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from paddock.backends.types import LogChunk

LETTERS_MAX = 2000
LINES = 400  # of a window
FOLD_ROWS = 64  # an equal line is looked for among so many before it
FOLD_SECONDS = 5.0
TORN_SECONDS = 10.0  # a line is written within so long
FOLD_BLOCKS = 20  # a window that folds reads so many times its lines
SPANS_SECONDS = (10.0, 120.0, 3600.0)  # back from a window's end, until it has enough lines
_COLOUR = re.compile(r"\x1b\[[0-9;:]*m")
_BAD = re.compile(r"error|exception|traceback|fatal|panic|segfault|killed|\bnan\b", re.IGNORECASE)


class LogPlace(NamedTuple):
    """A place between lines: before line `number` of those with this time. at_ns: since 1970.

    >>> str(LogPlace(5, 2)), LogPlace.read("5.2")
    ('5.2', LogPlace(at_ns=5, number=2))
    """

    at_ns: int
    number: int = 0

    def __str__(self) -> str:
        return f"{self.at_ns}.{self.number}"

    @staticmethod
    def read(text: str) -> LogPlace | None:
        """The place that a text spells; None for anything else."""
        at, _, index = text.partition(".")
        if not (at.isdecimal() and len(at) < 20 and (index or "0").isdecimal() and len(index) < 12):
            return None
        return LogPlace(int(at), int(index or 0))


@dataclass
class LogLine:
    """A line of a page. labels: who wrote it, each process once. text: harmless."""

    at_ns: int
    labels: list[str]
    text: str
    cut_bytes: int = 0

    @property
    def is_bad(self) -> bool:
        """The line looks like a problem."""
        return _BAD.search(self.text) is not None

    @property
    def who(self) -> str:
        """The process that wrote the line, or how many did."""
        return self.labels[0] if len(self.labels) == 1 else f"{len(self.labels)} ×"


class LogWindow(NamedTuple):
    """Lines of a log; the places of those before and after them, None where there are none."""

    lines: list[LogLine]
    older: LogPlace | None
    newer: LogPlace | None


def clean_line(data: bytes) -> tuple[str, int]:
    """A line without newline as harmless text, and how many bytes were cut.

    >>> clean_line(b"1%\\r2% \\x1b[31mred\\x1b[0m\\x1b]0;t\\x07 <b>\\xe2\\x80\\xae")
    ('2% red^[]0;t^G <b>?', 0)
    """
    cut = max(0, len(data) - 4 * LETTERS_MAX)
    text = for_terminal(data[: 4 * LETTERS_MAX]).decode("utf-8", "replace")
    text = _COLOUR.sub("", text)
    if not text.isprintable():
        text = "".join(c if c.isprintable() or c == "\t" else "?" for c in text)
    if len(text) > LETTERS_MAX:
        cut += len(text[LETTERS_MAX:].encode())
        text = text[:LETTERS_MAX]
    return text, cut


def fold(lines: Iterable[LogLine]) -> list[LogLine]:
    """Lines, the equal ones of different processes as one.

    >>> two = [LogLine(1, ["a rank 0"], "hi"), LogLine(2, ["a rank 1"], "hi")]
    >>> [(line.who, line.labels) for line in fold(two)]
    [('2 ×', ['a rank 0', 'a rank 1'])]
    """
    found: list[LogLine] = []
    recent: deque[tuple[str, LogLine]] = deque(maxlen=FOLD_ROWS)
    known: dict[str, LogLine] = {}
    for line in lines:
        same = known.get(line.text)
        is_near = same is not None and line.at_ns - same.at_ns < FOLD_SECONDS * 1e9
        if same is not None and is_near and line.labels[0] not in same.labels:
            same.labels += line.labels
            continue
        if len(recent) == FOLD_ROWS and known.get(recent[0][0]) is recent[0][1]:
            del known[recent[0][0]]
        found.append(line)
        recent.append((line.text, line))
        known[line.text] = line
    return found


def split_chunk(chunk: LogChunk, needle: bytes = b"") -> list[bytes]:
    """The lines of a chunk that have a text in them, in either case, without their newlines."""
    if not needle:
        return chunk.data.removesuffix(b"\n").split(b"\n")
    if needle not in chunk.data.lower():
        return []
    return [line for line in chunk.data.removesuffix(b"\n").split(b"\n") if needle in line.lower()]


def as_line(at_ns: int, label: str, data: bytes) -> LogLine:
    """A line of a page from one of a log."""
    text, cut = clean_line(data)
    return LogLine(at_ns, [label], text, cut_bytes=cut)


def read_window(
    read: Callable[[LogQuery], Iterable[LogChunk]],
    *,
    ranks: tuple[int, ...] = (),
    search: str = "",
    before: LogPlace | None = None,
    after: LogPlace | None = None,
    until: float = 0.0,
    is_near: bool = True,
    is_folded: bool = True,
) -> LogWindow:
    """Read the lines before a place, or after one; without either the last ones.

    until: when the log ends, or now, in seconds since 1970; later lines are not read. is_near: the
    log is of this machine, so that parts of it are read quickly. Raises as `read` does.
    """
    needle = search.lower().encode()
    most = LINES * (FOLD_BLOCKS if is_folded else 1)
    query = LogQuery(ranks=ranks, until=until)
    if after is not None:
        # A line that began before `since` is left out, and shifts the numbers of those after it.
        query = replace(query, since=max(0.0, after.at_ns / 1e9 - TORN_SECONDS))
        later = (row for row in _rows(read(query), needle) if row[0] >= after)
        return _window(list(islice(later, most + 1)), most, is_folded, is_backward=False)
    if before is not None:
        query = replace(query, until=min(until or 1e18, before.at_ns / 1e9 + 1e-5))
    spans = SPANS_SECONDS if is_near and not needle else ()
    for span in (*spans, 0.0):
        since = query.until - span if span and query.until else 0.0
        found: Iterator[Row] = _rows(read(replace(query, since=since)), needle)
        if before is not None:
            found = takewhile(lambda row: row[0] < before, found)
        rows = deque(found, most + 1)
        if len(rows) > most:
            break
    window = _window(list(rows), most, is_folded, is_backward=True)
    return window if before is not None else window._replace(newer=None)


Row = tuple[tuple[int, int], str, bytes]  # the place of a line, its label, the line


def _rows(chunks: Iterable[LogChunk], needle: bytes) -> Iterator[Row]:
    at_ns, index = -1, 0
    for chunk in chunks:
        if chunk.at_ns != at_ns:
            at_ns, index = chunk.at_ns, 0
        lines = split_chunk(chunk, needle)
        places = zip(repeat(at_ns), range(index, index + len(lines)))
        yield from zip(places, repeat(chunk.label), lines)
        index += len(lines)


def _window(rows: list[Row], most: int, is_folded: bool, *, is_backward: bool) -> LogWindow:
    """The window of rows: LINES after folding. A row more than `most`: there are more."""
    if not rows:
        return LogWindow([], None, None)
    size = LINES
    while True:  # the most rows that fold into LINES lines
        size = min(size, most)
        part = rows[-size:] if is_backward else rows[:size]
        lines = [as_line(at_ns, label, data) for (at_ns, _), label, data in part]
        lines = fold(lines) if is_folded else lines
        if size >= min(most, len(rows)) or len(lines) >= LINES / 2 or not is_folded:
            break
        size *= 2
    first, (at_ns, index) = LogPlace(*part[0][0]), part[-1][0]
    has_more = len(part) < len(rows)
    older = first if has_more or not is_backward else None
    newer = LogPlace(at_ns, index + 1) if has_more or is_backward else None
    return LogWindow(lines, older, newer)
