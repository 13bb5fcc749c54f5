"""The arrival times of a log's lines: a file beside it, of records of 16 bytes, little endian.

    offset u64, wall clock ns u64            what follows offset in the log came then
    2^63 + offset u64, who u64               from offset on it is that process's: its role in the
                                             highest 8 bits, attempt in 24, rank in 32

A record is written before its lines: a reader that takes the size of the log first, and then
reads this file, finds a record for every byte. Chunks within RESOLUTION_NS share a record.
Where several runs append to a log, the last record of a run tells where its part ends.
"""

from __future__ import annotations

import os
from time import time_ns

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

RECORD_BYTES = 16
RESOLUTION_NS = 1_000_000
ROLES = ("worker", "ps", "heter")
SUFFIX = ".times"
_BEGINS = 1 << 63
_RANK = (1 << 32) - 1
_ATTEMPT = (1 << 24) - 1


class LineTimes:
    """The times of one log. Owned by the output thread once its process has started."""

    def __init__(
        self, fd: int, offset: int, role: str, rank: int, attempt: int, *, has_end: bool = False
    ) -> None:
        """fd: open for appending; it is this object's now. offset: where the process's part begins.

        has_end: the last record tells where it ends. Raises OSError.
        """
        self._has_end = has_end
        self._fd = fd
        self._end = -1  # of the log; -1: unknown
        self._stamped_ns = 0
        size = os.fstat(fd).st_size
        if size % RECORD_BYTES:  # a full disk tore the last record
            os.ftruncate(fd, size - size % RECORD_BYTES)
        self._write(_begin(offset, role, rank, attempt) + _pair(offset, time_ns()))

    def stamp(self, log_fd: int, count: int) -> None:
        """Record the time of so many bytes that are about to be appended to the log."""
        if self._fd < 0:
            return
        if self._end < 0:
            self._end = os.lseek(log_fd, 0, os.SEEK_END)
        now_ns = time_ns()
        if not 0 <= now_ns - self._stamped_ns < RESOLUTION_NS:
            self._stamped_ns = now_ns
            self._write(_pair(self._end, now_ns))
        self._end += count

    def lose(self) -> None:
        """Correct the offset after bytes that were not appended, or not all of them."""
        self._end = -1

    def close(self) -> None:
        """Record the end, and close the file."""
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            if self._has_end and self._end >= 0:
                try:
                    os.write(fd, _pair(self._end, time_ns()))
                except OSError:
                    pass  # its part is told to the end of the log then
            os.close(fd)

    def _write(self, data: bytes) -> None:
        """Write a record; if that fails, the log's lines have slightly early times."""
        try:
            is_whole = os.write(self._fd, data) == len(data)
        except OSError:
            is_whole = False
        if not is_whole:
            self.close()


def read_times(data: bytes) -> Iterator[tuple[int, int, tuple[str, int, int] | None]]:
    """(offset, wall clock ns, None) or (offset, 0, (role, rank, attempt)), as they were written.

    >>> list(read_times(_begin(5, "worker", 3, 1) + _pair(5, 9) + b"torn"))
    [(5, 0, ('worker', 3, 1)), (5, 9, None)]
    """
    from struct import iter_unpack  # only who reads needs it

    for first, second in iter_unpack("<QQ", data[: len(data) - len(data) % RECORD_BYTES]):
        if first < _BEGINS:
            yield first, second, None
        elif second >> 56 < len(ROLES):
            who = (ROLES[second >> 56], second & _RANK, second >> 32 & _ATTEMPT)
            yield first - _BEGINS, 0, who


def _begin(offset: int, role: str, rank: int, attempt: int) -> bytes:
    return _pair(_BEGINS + offset, ROLES.index(role) << 56 | (attempt & _ATTEMPT) << 32 | rank)


def _pair(first: int, second: int) -> bytes:
    return first.to_bytes(8, "little") + second.to_bytes(8, "little")
