"""Logs of several hosts, merged into one stream in order of time, and made safe to read. Pure.

A terminal obeys escape sequences, and a host may be untrusted: to a terminal go text, tabs and
colours only (`for_terminal`), other control characters are shown as ^X. To a file or a pipe the
lines go unchanged. Labels are always plain text.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Iterable, Iterator
from dataclasses import replace

from paddock.backends.node.logs import last_lines
from paddock.backends.text import clean
from paddock.backends.types import LogChunk, LogQuery
from paddock.command_line import to_seconds
from paddock.errors import PaddockError, UsageError
from paddock.jobfile.args import to_integer

Row = tuple[int, str, bytes]

LABEL_LETTERS = 80
RANKS_MAX = 1 << 20
NEWLINE = b"\n"
RESET = b"\x1b[0m"
CONTROLS = bytes({*range(32), 127} - {9, 10})
TORN_BYTES = 64
_TORN = re.compile(
    rb"(?:\x1b(?:\[[0-9;:]*)?|[\xc2-\xdf]|[\xe0-\xef][\x80-\xbf]?|[\xf0-\xf4][\x80-\xbf]{0,2})\Z"
)
# ECMA-48: colours (SGR), and what else begins or is a control; C1 in UTF-8 is C2 80..9F.
_CONTROL = re.compile(rb"(\x1b\[[0-9;:]*m)|[\x00-\x08\x0b-\x1f\x7f]|\xc2[\x80-\x9f]")


def merge(
    hosts: Iterable[tuple[Iterable[Row], int]], tail: int | None = None
) -> Iterator[LogChunk]:
    """Merge the rows of hosts into one stream in order of time.

    With each host: its clock minus ours. Clocks in ns. A row without lines only says that no older
    row will come. tail: of what is there before the first of them, only so many of the last lines.
    """
    streams = [_corrected(rows, ahead_ns) for rows, ahead_ns in hosts]
    merged: Iterator[LogChunk] = heapq.merge(*streams)
    if tail is not None:
        merged = tail_of(merged, tail)
    return (piece for piece in merged if piece.data)


def tail_of(pieces: Iterable[LogChunk], tail: int) -> Iterator[LogChunk]:
    """Yield the last `tail` lines, a chunk each (last_lines); then raise the error of `pieces`."""
    failed = []

    def whole() -> Iterator[LogChunk]:
        try:
            yield from pieces
        except PaddockError as error:
            failed.append(error)

    yield from (LogChunk(*row) for row in last_lines(whole(), tail))
    if failed:
        raise failed[0]


def _corrected(rows: Iterable[Row], ahead_ns: int) -> Iterator[LogChunk]:
    last_ns = 0
    for at_ns, label, data in rows:
        at_ns -= ahead_ns
        if at_ns > last_ns:  # a host whose times go back would hold up all others
            last_ns = at_ns
        yield LogChunk(last_ns, label, data)


def clock_ahead_ns(samples: Iterable[tuple[int, int, int]]) -> int:
    """Return a host's clock minus ours, from (asked at, its clock, answered at); the quickest wins.

    >>> clock_ahead_ns([(0, 5_000, 2_000), (10_000, 14_100, 10_200)])
    4000
    """
    asked, theirs, answered = min(samples, key=lambda sample: sample[2] - sample[0])
    return theirs - (asked + answered) // 2


def prefixed(pieces: Iterable[LogChunk], *, is_terminal: bool = False) -> Iterator[bytes]:
    prefixes: dict[str, bytes] = {}
    for piece in pieces:
        prefix = prefixes.get(piece.label)
        if prefix is None:
            prefix = prefixes[piece.label] = f"[{clean(piece.label[:LABEL_LETTERS])}] ".encode()
        data = for_terminal(piece.data) if is_terminal else piece.data
        yield prefix + data[:-1].replace(NEWLINE, NEWLINE + prefix) + NEWLINE


def for_terminal(data: bytes) -> bytes:
    """Return whole lines without terminal escapes; of a progress bar, its last state.

    >>> for_terminal(b"1%\\r2%\\n\\x1b]0;title\\x07\\n")
    b'2%\\n^[]0;title^G\\n'
    """
    if not data.isascii():
        data = data.decode("utf-8", "replace").encode()
    elif len(data.translate(None, CONTROLS)) == len(data):
        return data
    if b"\r" in data:
        lines = (line.rstrip(b"\r").rpartition(b"\r")[2] for line in data.split(NEWLINE))
        data = NEWLINE.join(lines)
    data = _CONTROL.sub(_shown, data)
    return data.replace(NEWLINE, RESET + NEWLINE) if b"\x1b" in data else data


class MergedConsole:
    """A job's console on a terminal, as bytes come: lines may be incomplete, progress bars move.

    >>> screen = MergedConsole()
    >>> screen.shown(b"1%\\r2%\\x1b"), screen.shown(b"]0;title\\x07\\n")
    (b'1%\\r2%', b'^[]0;title^G\\n')
    """

    def __init__(self) -> None:
        self._rest = b""  # of a sequence or a character that is not whole
        self._is_coloured = False

    def shown(self, data: bytes) -> bytes:
        """Return the bytes to show now; an incomplete sequence or character waits for its rest."""
        data = self._rest + data
        torn = _TORN.search(data, max(0, len(data) - TORN_BYTES))
        end = torn.start() if torn else len(data)
        self._rest = data[end:]
        found = b"\r".join(for_terminal(part) for part in data[:end].split(b"\r"))
        self._is_coloured |= b"\x1b" in found
        return found

    def last(self) -> bytes:
        """Return the bytes that are left at the end, with a reset of the colours."""
        rest, self._rest = for_terminal(self._rest), b""
        return rest + RESET if self._is_coloured else rest


def _shown(found: re.Match[bytes]) -> bytes:
    text = found[0]
    return found[1] or (b"^" + bytes([text[0] ^ 64]) if len(text) == 1 else b"?")


def read_query(
    *, rank: str = "all", since: str = "", now: float = 0.0, follow: bool = False, tail: str = ""
) -> LogQuery:
    """Return the log query of --rank, --since, --follow and --lines. Raises UsageError.

    now: seconds since 1970.

    >>> read_query(rank="0,3", since="5m", now=1000.0)
    LogQuery(ranks=(0, 3), since=700.0, until=0.0, follow=False, tail=None)
    """
    known = () if rank.strip() == "all" else _ranks(rank)
    if known is None:
        raise UsageError(f"--rank {rank}: not a list of ranks", hint="write all, 0,3 or 0-3")
    ago = to_seconds(since) if since else 0.0
    if ago is None:
        raise UsageError(f"--since {since}: not a time", hint="write 30s, 5m or 1h30m")
    count = to_integer(tail) if tail else None
    if tail and (count is None or count < 0):
        raise UsageError(f"--lines {tail}: not a number of lines", hint="write 100")
    return LogQuery(known, now - ago if since else 0.0, follow=follow, tail=count)


def _ranks(text: str) -> tuple[int, ...] | None:
    """Return the ranks of a list with ranges; None where the text is no such list.

    >>> _ranks("0,4-6"), _ranks("3-1")
    ((0, 4, 5, 6), None)
    """
    found: list[int] = []
    for word in text.split(","):
        low, dash, high = word.partition("-")
        first, last = to_integer(low), to_integer(high if dash else low)
        if first is None or last is None or not 0 <= first <= last < RANKS_MAX:
            return None
        found += range(first, last + 1)
    return tuple(found)


def matching(pieces: Iterable[LogChunk], pattern: str) -> Iterator[LogChunk]:
    """Yield the lines in which a regular expression is found.

    Raises UsageError for an invalid pattern.
    """
    try:
        wanted = re.compile(pattern.encode())
    except re.error as error:
        hint = f"a dot or a bracket that is meant needs a backslash: {re.escape(pattern)}"
        raise UsageError(f"--grep {pattern}: {error}", hint=hint) from error

    def found(data: bytes) -> bytes:
        return b"".join(filter(wanted.search, data.splitlines(keepends=True)))

    return (piece._replace(data=data) for piece in pieces if (data := found(piece.data)))


def around(query: LogQuery, failed_at: float, seconds: float) -> LogQuery:
    """Return the query limited to `seconds` before and after a failure (seconds since 1970)."""
    since = max(query.since, failed_at - seconds)
    return replace(query, since=since, until=failed_at + seconds, follow=False)
