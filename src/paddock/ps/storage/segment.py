"""A file of the log: a checksummed head, then whole frames one after another. Reading only.

    log-<first lsn, 20 digits>.bin
    head, 64 bytes: magic, version, first lsn, server, xxh3-64 of the rest of the head
    records: the 64 bytes of frames.encode and the body, exactly as they were asked

A record has no number of its own: its lsn is the segment's first plus the records before it.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from paddock.ps.storage.files import DamageError
from paddock.ps.wire import frames
from paddock.ps.xxh3 import xxh3

HEAD_SIZE = 64
_MAGIC = b"PDKLOG\r\n"
# Raised with the protocol's too: records are frames, and those of before cannot be read.
_VERSION = 3
# magic, version, nothing | first lsn, server | nothing | checksum
_HEAD = struct.Struct("<8sIIQQ24xQ")
assert _HEAD.size == HEAD_SIZE
_BUFFER = 1 << 20
_FRAME_MAGIC = frames.MAGIC.to_bytes(4, "little")


class SegmentHead(NamedTuple):
    """The head of a segment."""

    first: int
    server: int


class LogDamage(DamageError):
    """The log does not hold what was written, at `offset` of `path`."""

    def __init__(self, path: Path, offset: int, reason: str) -> None:
        super().__init__(
            f"log {path} is damaged at byte {offset}: {reason}",
            hint="start from a replica (--replica-of), or with an empty --data-dir and paddock "
            "ps load",
        )
        self.path = path
        self.offset = offset
        self.reason = reason


def segment_name(first: int) -> str:
    """The file's name.

    >>> segment_name(1)
    'log-00000000000000000001.bin'
    """
    return f"log-{first:020d}.bin"


def encode_head(head: SegmentHead) -> bytes:
    """The first 64 bytes of a segment.

    >>> decode_head(encode_head(SegmentHead(1, 7)), Path("x"))
    SegmentHead(first=1, server=7)
    """
    data = _HEAD.pack(_MAGIC, _VERSION, 0, *head, 0)[:-8]
    return data + xxh3(data).to_bytes(8, "little")


def decode_head(data: bytes, path: Path) -> SegmentHead:
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
            hint="save a checkpoint with the paddock that wrote it (paddock ps save DIR), then "
            "start with an empty --data-dir and --load DIR",
        )
    return SegmentHead(first, server)


def read_head(path: Path) -> SegmentHead:
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
    """A record as read. body: readable as long as it is held; end: file offset after it."""

    end: int
    header: frames.Header
    body: memoryview


def walk(path: Path, offset: int, stop: int) -> Iterator[Record]:
    """The records in bytes [offset, stop) of a segment, each verified.

    Raises LogDamage at the first that is not whole: the records before it were yielded.
    """
    with path.open("rb", _BUFFER) as file:
        file.seek(offset)
        while offset < stop:
            head = file.read(min(frames.HEADER_SIZE, stop - offset))
            try:
                header = frames.decode(head)
            except frames.FrameError as error:
                raise LogDamage(path, offset, error.message) from error
            end = offset + len(head) + header.length
            body = file.read(min(end, stop) - offset - len(head))
            if len(body) < header.length:
                text = f"a record needs {end - offset} bytes, {len(head) + len(body)} are there"
                raise LogDamage(path, offset, text)
            if xxh3(head[:-8], body) != header.checksum:
                raise LogDamage(path, offset, "the checksum of a record does not fit")
            yield Record(end, header, memoryview(body))
            offset = end


def whole_records_after(path: Path, offset: int) -> int:
    """How many whole records stand anywhere behind `offset`, for telling a torn tail from damage.

    A torn write leaves nothing behind itself; a flipped bit in the middle leaves good records.
    """
    with path.open("rb") as file:
        file.seek(offset)
        data = file.read()
    found = at = 0
    while (at := data.find(_FRAME_MAGIC, at + 1)) >= 0:
        try:
            for record in walk(path, offset + at, offset + len(data)):
                found += 1
                at = record.end - offset - 1
        except LogDamage:
            continue
    return found


class Segment:
    """A file: its head, and where its records are, as far as they were written or scanned.

    first: the lsn of its first record. offsets: where each record begins and the last one ends.
    """

    __slots__ = ("first", "offsets", "path", "server")

    def __init__(self, path: Path) -> None:
        self.path = path
        self.first, self.server = read_head(path)
        self.offsets = array("Q", [HEAD_SIZE])

    @property
    def last(self) -> int:
        """The newest record known; first - 1: there is none."""
        return self.first + len(self.offsets) - 2

    @property
    def end(self) -> int:
        """The file offset after the newest record known."""
        return self.offsets[-1]

    def seek(self, lsn: int) -> tuple[int, int]:
        """(lsn, offset) of the last record known at or before `lsn`. Any thread may ask."""
        at = max(self.first, min(lsn, self.last + 1))
        return at, self.offsets[at - self.first]

    def scan(self) -> LogDamage | None:
        """Finds the whole records from the start on; what ended them."""
        self.offsets = array("Q", [HEAD_SIZE])
        try:
            for record in walk(self.path, HEAD_SIZE, self.path.stat().st_size):
                self.offsets.append(record.end)
        except LogDamage as damage:
            return damage
        return None
