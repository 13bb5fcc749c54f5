"""One file of the log: a checksummed head, then whole frames one after another. Reading only.

    log-<first lsn, 20 digits>.bin
    head, 64 bytes: magic, version, first lsn, server, xxh3-64 of the rest of the head
    records: the 64 bytes of frames.encode and the body, exactly as they were asked

A record has no number of its own: its lsn is the segment's first plus the records before it.
"""

from __future__ import annotations

import os
import struct
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from paddock.ps.durable.files import DamageError
from paddock.ps.protocol import frames
from paddock.ps.xxh3 import xxh3

HEAD_SIZE = 64
_MAGIC = b"PDKLOG\r\n"
_VERSION = 1
# magic, version, nothing | first lsn, server | nothing | checksum
_HEAD = struct.Struct("<8sIIQQ24xQ")
assert _HEAD.size == HEAD_SIZE
# One read; two of the largest frames fit.
_CHUNK = 2 * (frames.BODY_MAX + frames.HEADER_SIZE)
# Offsets are remembered this far apart: a follower does not read a segment from its start.
_MARK_BYTES = 1 << 20
# And of the newest ones all: a follower mostly asks for the record after the one it has.
_RECENT = 256
_FRAME_MAGIC = frames.MAGIC.to_bytes(4, "little")


class Head(NamedTuple):
    """What a segment says of itself."""

    first: int
    server: int


class LogDamage(DamageError):
    """The log does not hold what was written, at `offset` of `path`."""

    def __init__(self, path: Path, offset: int, reason: str, hint: str = "") -> None:
        super().__init__(f"log {path} is damaged at byte {offset}: {reason}", hint=hint)
        self.path = path
        self.offset = offset
        self.reason = reason


def segment_name(first: int) -> str:
    """The file's name.

    >>> segment_name(1)
    'log-00000000000000000001.bin'
    """
    return f"log-{first:020d}.bin"


def encode_head(head: Head) -> bytes:
    """The first 64 bytes of a segment.

    >>> decode_head(encode_head(Head(1, 7)), Path("x"))
    Head(first=1, server=7)
    """
    data = _HEAD.pack(_MAGIC, _VERSION, 0, *head, 0)[:-8]
    return data + xxh3(data).to_bytes(8, "little")


def decode_head(data: bytes, path: Path) -> Head:
    """The head in the first 64 bytes of a segment. Raises LogDamage."""
    if len(data) != HEAD_SIZE:
        raise LogDamage(path, 0, f"its head has {len(data)} of {HEAD_SIZE} bytes")
    magic, version, _, first, server, checksum = _HEAD.unpack(data)
    if magic != _MAGIC:
        raise LogDamage(path, 0, "it does not begin as a log of paddock does")
    if xxh3(data[:-8]) != checksum:
        raise LogDamage(path, 0, "the checksum of its head does not fit")
    if version != _VERSION:
        raise DamageError(
            f"log {path} has format version {version}, this paddock reads {_VERSION}",
            hint="start the paddock that wrote it",
        )
    return Head(first, server)


def read_head(path: Path) -> Head:
    """The head of a segment's file. Raises LogDamage, also when its name says another lsn."""
    with path.open("rb") as file:
        head = decode_head(file.read(HEAD_SIZE), path)
    if path.name != segment_name(head.first):
        raise LogDamage(path, 0, f"it holds records from {head.first} on, its name says otherwise")
    return head


def list_segments(directory: Path) -> list[Path]:
    """The segments' files by first lsn."""
    return sorted(directory.glob("log-" + "[0-9]" * 20 + ".bin"))


class Record(NamedTuple):
    """One record as read. body: readable as long as it is held; end: file offset after it."""

    end: int
    header: frames.Header
    body: memoryview


def walk(fd: int, path: Path, offset: int, stop: int) -> Iterator[Record]:
    """The records in bytes [offset, stop) of a segment, each verified.

    Raises LogDamage at the first that is not whole: the records before it were yielded.
    """
    view = memoryview(b"")
    begin = end = 0  # Unread bytes of the view.
    at = offset  # File offset of view[begin].
    while at < stop:
        whole = frames.HEADER_SIZE
        if end - begin >= whole:
            try:
                header = frames.decode(view[begin : begin + whole])
            except frames.FrameError as error:
                raise LogDamage(path, at, error.message) from error
            whole += header.length
            if end - begin >= whole:
                head = view[begin : begin + frames.HEADER_SIZE]
                body = view[begin + frames.HEADER_SIZE : begin + whole]
                if frames.checksum_of(head, body) != header.checksum:
                    raise LogDamage(path, at, "the checksum of a record does not fit")
                begin += whole
                at += whole
                yield Record(at, header, body)
                continue
        if at + whole > stop:
            raise LogDamage(path, at, f"a record needs {whole} bytes, {stop - at} are there")
        # A new buffer each time: bodies already yielded stay readable.
        fresh = np.empty(min(_CHUNK, stop - at), np.uint8).data
        left = end - begin
        fresh[:left] = view[begin:end]
        while left < len(fresh):
            count = os.preadv(fd, [fresh[left:]], at + left)
            if count == 0:
                raise LogDamage(path, at, f"the file ends, {stop} bytes were expected")
            left += count
        view, begin, end = fresh, 0, left


def whole_records_after(path: Path, offset: int) -> int:
    """How many whole records stand anywhere behind `offset`, for telling a torn tail from damage.

    A torn write leaves nothing behind itself; a flipped bit in the middle leaves good records.
    """
    size = path.stat().st_size
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    found = 0
    try:
        # What may be lost is small: all but the first record's length is skipped by hops.
        at = offset
        while True:
            at = _find_magic(fd, at + 1, size)
            if at < 0:
                return found
            try:
                for record in walk(fd, path, at, size):
                    found += 1
                    at = record.end - 1
            except LogDamage:
                continue
            return found
    finally:
        os.close(fd)


def _find_magic(fd: int, begin: int, size: int) -> int:
    """The offset of the next thing that looks like a frame's first bytes; -1: none."""
    step = 1 << 20
    while begin < size:
        data = os.pread(fd, step + len(_FRAME_MAGIC) - 1, begin)
        index = data.find(_FRAME_MAGIC)
        if index >= 0:
            return begin + index
        begin += step
    return -1


class Segment:
    """One file: its first lsn, and (lsn, offset) pairs to begin reading at."""

    __slots__ = ("head", "marks", "path", "recent")

    def __init__(self, path: Path, head: Head) -> None:
        self.path = path
        self.head = head
        self.marks: list[tuple[int, int]] = [(head.first, HEAD_SIZE)]
        self.recent: deque[tuple[int, int]] = deque(maxlen=_RECENT)

    def mark(self, lsn: int, offset: int) -> None:
        """Notes where a record begins; for ever when the last such note is far behind."""
        self.recent.append((lsn, offset))
        if offset - self.marks[-1][1] >= _MARK_BYTES:
            self.marks.append((lsn, offset))

    def seek(self, lsn: int) -> tuple[int, int]:
        """(lsn, offset) of the last noted record at or before `lsn`. Any thread may ask."""
        recent = self.recent
        try:
            found = recent[lsn - recent[0][0]]
            if found[0] == lsn:
                return found
        except IndexError:
            pass  # An old record, or one that is to come.
        return next(mark for mark in reversed(self.marks) if mark[0] <= lsn)

    def forget_after(self, lsn: int) -> None:
        """Records above `lsn` are gone."""
        self.marks = [mark for mark in self.marks if mark[0] <= max(lsn, self.head.first)]
        self.recent.clear()


def scan(one: Segment) -> tuple[int, int, LogDamage | None]:
    """(last lsn, end) of the whole records from the segment's start, and what ended them."""
    lsn, end = one.head.first - 1, HEAD_SIZE
    fd = os.open(one.path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        for record in walk(fd, one.path, HEAD_SIZE, os.fstat(fd).st_size):
            lsn += 1
            one.mark(lsn, end)
            end = record.end
    except LogDamage as damage:
        return lsn, end, damage
    finally:
        os.close(fd)
    return lsn, end, None
