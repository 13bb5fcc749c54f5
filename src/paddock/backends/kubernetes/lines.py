"""Lines of a pod's log, as the API server gives them with times -> log chunks by process. Pure.

    2026-01-01T00:00:00.123456789Z [rank 3] loss 0.25
    time, to the nanosecond        process    text of the line

Lines without a process are the launcher's own.
"""

from __future__ import annotations

import re
from datetime import datetime, timezone

from paddock.backends.types import LogChunk, LogQuery

LINE = re.compile(rb"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?Z ?(.*)", re.DOTALL)
# What `launch` puts before a line of a process.
PROCESS = re.compile(rb"\[(rank|server|heter worker) (\d+)\] ")
NS = 1_000_000_000


def piece_of(pod: str, line: bytes) -> tuple[LogChunk, int | None]:
    """Return a line's log chunk and its worker's rank; None for a server's and the launcher's.

    >>> piece, rank = piece_of("a-1", b"1970-01-01T00:00:01.5Z [rank 3] loss 0.25\\n")
    >>> piece.at_ns, piece.label, piece.data, rank
    (1500000000, 'a-1 rank 3', b'loss 0.25\\n', 3)
    """
    at_ns, said = split_time(line)
    found = PROCESS.match(said)
    if found is None:
        return LogChunk(at_ns, pod, said), None
    role, rank = found[1].decode(), int(found[2])
    piece = LogChunk(at_ns, f"{pod} {role} {rank}", said[found.end() :])
    return piece, rank if role == "rank" else None


def split_time(line: bytes) -> tuple[int, bytes]:
    """Return (nanoseconds since 1970, the rest); 0 for a line without time."""
    found = LINE.fullmatch(line)
    if found is None:
        return 0, line
    at = datetime.fromisoformat(found[1].decode()).replace(tzinfo=timezone.utc)
    fraction = int((found[2] or b"0").ljust(9, b"0"))
    return int(at.timestamp()) * NS + fraction, found[3]


def is_wanted(piece: LogChunk, rank: int | None, query: LogQuery) -> bool:
    """Return True if a query matches the line. rank: None for servers' and the launcher's lines."""
    if query.ranks and rank not in query.ranks:
        return False
    if query.since and piece.at_ns < query.since * NS:
        return False
    return not query.until or piece.at_ns <= query.until * NS
