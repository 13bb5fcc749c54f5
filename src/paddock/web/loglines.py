"""Log lines as pages show them, and a window of a log: so many lines before or after a place.

A log may be hostile: a line becomes plain text without control characters, cut to LETTERS_MAX.
Templates escape it. Equal lines of several ranks, close to one another, become one with a count.
"""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass, replace
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
    count: int = 1
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
    >>> [(line.count, line.labels) for line in fold(two)]
    [(2, ['a rank 0', 'a rank 1'])]
    """
    found: list[LogLine] = []
    recent: deque[tuple[str, LogLine]] = deque(maxlen=FOLD_ROWS)
    known: dict[str, LogLine] = {}
    for line in lines:
        same = known.get(line.text)
        is_near = same is not None and line.at_ns - same.at_ns < FOLD_SECONDS * 1e9
        if same is not None and is_near and line.labels[0] not in same.labels:
            same.labels += line.labels
            same.count += 1
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
        rows = _first(_numbered(read(query), needle), after, most + 1)
        return _window(rows, most, is_folded, is_backward=False, has_before=True)
    if before is not None:
        query = replace(query, until=min(until or 1e18, before.at_ns / 1e9 + 1e-5))
    spans = SPANS_SECONDS if is_near and not needle else ()
    rows = []
    for span in (*spans, 0.0):
        since = query.until - span if span and query.until else 0.0
        rows = _last(_numbered(read(replace(query, since=since)), needle), before, most + 1)
        if len(rows) > most:
            break
    return _window(rows, most, is_folded, is_backward=True, has_before=before is not None)


Numbered = tuple[LogPlace, str, list[bytes]]  # lines of a chunk; the place of the first


def _numbered(chunks: Iterable[LogChunk], needle: bytes) -> Iterator[Numbered]:
    at_ns, index = -1, 0
    for chunk in chunks:
        if chunk.at_ns != at_ns:
            at_ns, index = chunk.at_ns, 0
        if lines := split_chunk(chunk, needle):
            yield LogPlace(at_ns, index), chunk.label, lines
            index += len(lines)


Row = tuple[LogPlace, str, bytes]


def _last(chunks: Iterable[Numbered], before: LogPlace | None, most: int) -> list[Row]:
    """The last rows that lie before a place."""
    kept: deque[Numbered] = deque()
    count = 0
    for place, label, lines in chunks:
        if before is not None:
            if place >= before:
                break
            if place.at_ns == before.at_ns:
                lines = lines[: before.number - place.number]
        kept.append((place, label, lines))
        count += len(lines)
        while count - len(kept[0][2]) >= most:
            count -= len(kept.popleft()[2])
    return [row for chunk in kept for row in _rows(chunk)][-most:]


def _first(chunks: Iterable[Numbered], after: LogPlace, most: int) -> list[Row]:
    """The first rows from a place on."""
    found: list[Row] = []
    for chunk in chunks:
        found += [row for row in _rows(chunk) if row[0] >= after]
        if len(found) >= most:
            break
    return found[:most]


def _rows(chunk: Numbered) -> Iterator[Row]:
    (at_ns, index), label, lines = chunk
    for number, line in enumerate(lines):
        yield LogPlace(at_ns, index + number), label, line


def _window(
    rows: list[Row], most: int, is_folded: bool, *, is_backward: bool, has_before: bool
) -> LogWindow:
    """The window of rows: LINES after folding. A row more than `most`: there are more."""
    has_more = len(rows) > most
    if has_more:
        rows = rows[1:] if is_backward else rows[:-1]
    size = LINES
    while True:  # the most rows that fold into LINES lines
        part = rows[-size:] if is_backward else rows[:size]
        lines = [as_line(place.at_ns, label, data) for place, label, data in part]
        lines = fold(lines) if is_folded else lines
        if size >= len(rows) or len(lines) >= LINES / 2 or not is_folded:
            break
        size *= 2
    if not part:
        return LogWindow([], None, None)
    has_more = has_more or len(part) < len(rows)
    (at_ns, index), _, _ = part[-1]
    end = LogPlace(at_ns, index + 1)
    if is_backward:
        return LogWindow(lines, part[0][0] if has_more else None, end if has_before else None)
    return LogWindow(lines, part[0][0], end if has_more else None)
