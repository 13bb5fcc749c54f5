"""A frame of the wire and of the log: a header of 64 bytes and a body of at most 4 MiB.

Pure: bytes in, values out. A frame that changes a server is written to its log as it came, so
that what is replayed is what was asked.
"""

from __future__ import annotations

import struct
from enum import IntEnum, IntFlag
from typing import NamedTuple

from paddock.errors import PaddockError
from paddock.ps.xxh3 import Buffer, xxh3

MAGIC = 0x53505044  # "DPPS"
VERSION = 4
BODY_MAX = 4 << 20
# magic, version, op, flags | table, part, count | length, sequence | trainer, incarnation |
# step, nothing, stamp | checksum. Little endian; the order of Header's fields.
_LAYOUT = struct.Struct("<IBBHHHIIQIIq4xdQ")
HEADER_SIZE = 64
assert _LAYOUT.size == HEADER_SIZE


class Op(IntEnum):
    """A frame's request. Those from 32 on are records of the server's log, but for ARRIVE."""

    HELLO = 1  # JSON: versions, job, trainer; answered with the server's facts and a challenge
    PROOF = 2  # the HMAC of the challenge
    PULL = 3  # int64[count] keys -> float32[count, dim]
    # body: int64 start; count elements -> float32[count]; `step` of the answer is the version of
    # what the server has of the vector, another one after each change
    PULL_DENSE = 4
    PULL_CHANGED = 5  # geo: rows changed after version `step` -> int64 keys, float32 rows
    STATUS = 6  # -> JSON
    CONTROL = 8  # JSON {"do": ...} -> JSON; what reads or acts on the process, not on the state
    FOLLOW = 9  # a replica asks for the log from `sequence` on
    CALL = 10  # JSON {"service": ...} -> JSON: a question to what is hosted by server 0
    READ = 11  # JSON {"file", "offset"} -> bytes of a file that the server keeps for this side
    WRITE = 12  # a JSON as of READ, `count` bytes; then bytes of that file

    CREATE = 32  # JSON spec -> JSON
    PUSH = 33  # int64[count] keys, float32[count, dim] [, float32[count] shows, clicks]
    PUSH_DENSE = 34  # int64 start, float32[count]
    SET = 35  # sparse: as PUSH, values instead of gradients
    SET_DENSE = 36  # as PUSH_DENSE, values
    COMMIT = 37  # JSON {"step", "members"[, "ended"]}: apply what the members contributed to it
    JOIN = 38
    LEAVE = 39
    # a trainer has sent all of `step`; JSON {"ended"}: and is through with so many passes over its
    # data; other JSON: is at a barrier. The answer waits
    ARRIVE = 40
    EXPEL = 41  # JSON
    SHRINK = 42  # JSON, one shard
    COMMIT_OFFSET = 43  # JSON: how far a trainer has read its data
    MOVE = 44  # JSON {"shard", "to", "version"}: a shard is another server's from now on
    # int32 shard, int32 giver, bytes: part `part` of a shard that comes, `step` its version, LAST
    # at the end of a state, DELTA when that adds to those before; with count 0 a JSON {"shard",
    # "version", "own"}: it is this server's, or it is forgotten
    ADOPT = 45
    # JSON {"lr", "correction"}: the table's learning rate from here on; a contribution: from `step`
    # on
    RATE = 54
    LOAD = 48  # JSON: take over this server's share of a checkpoint
    SKIP = 49  # a push that was refused: its sequence will not be used again
    TERM = 51  # JSON {"term"}: a server of a pair has become the primary
    FENCE = 50  # earlier incarnations of the trainer are refused from now on
    CLOSE = 52  # JSON {}: the trainer has closed its client; {"all"}: the job is over
    RULES = 46  # JSON: the strategy that all trainers of the job follow
    OPEN = 47  # JSON {"name", "turn", "passed"}: all members have reached a barrier
    BEGIN = 55  # JSON {}: the trainers that have come begin, without the others
    KV = 56  # JSON {"set": {key: value}}: what a hosted service remembers; null forgets


FIRST_RECORD = Op.CREATE


class FrameFlag(IntFlag):
    """Bits of a frame."""

    ANSWER = 1
    ERROR = 2  # the body is JSON: message, hint, code
    STATISTICS = 4  # a push carries shows and clicks
    DELTA = 8  # geo: rows are added, the optimizer is not asked
    CONTRIBUTION = 16  # sync: held apart until the step is complete
    LAST = 32  # the last frame of an answer, or of a trainer's step
    REPEATED = 64  # answer: already applied, this was a duplicate


class Header(NamedTuple):
    """The fixed part of a frame.

    part: which of the frames of one step. count: rows or elements. length: bytes of body.
    sequence: of the trainer's pushes to this server, from 1; for other requests it only comes
    back with the answer. step: the sync step, or what the op says. stamp: seconds of the
    server's clock in its log, the learning rate that applied in an answer.
    """

    op: int
    flags: int = 0
    table: int = 0
    part: int = 0
    count: int = 0  # type: ignore[assignment]  # hides tuple.count, which nobody asks a header
    length: int = 0
    sequence: int = 0
    trainer: int = 0
    incarnation: int = 0
    step: int = 0
    stamp: float = 0.0
    checksum: int = 0


# The flags of an answer: its header is the request's with these.
ANSWER = int(FrameFlag.ANSWER | FrameFlag.LAST)


class FrameError(PaddockError):
    """Bytes that are not a frame. Ends the connection they came on, and nothing else."""


class CorruptFrameError(FrameError):
    """A frame whose bytes changed on their way."""


def encode(header: Header, *body: Buffer) -> bytes:
    """The 64 bytes that go before `body`; fills in length and checksum, xxh3-64 over the header up
    to it and the body's pieces in order.

    >>> decode(encode(Header(Op.PULL, count=1), bytes(8))).length
    8
    """
    length = sum(map(len, body))
    if length > BODY_MAX:
        raise FrameError(
            f"a frame of {length} bytes is over the limit of {BODY_MAX}",
            hint="the client cuts requests into frames; this one was not",
        )
    head = _LAYOUT.pack(MAGIC, VERSION, *header[:5], length, *header[6:11], 0)[:-8]
    return head + xxh3(head, *body).to_bytes(8, "little")


def pack(header: Header) -> bytes:
    """The 64 bytes of a header that came with its length and checksum: they are kept.

    >>> head = encode(Header(Op.PUSH, stamp=1.5), b"body")
    >>> pack(decode(head)) == head
    True
    """
    return _LAYOUT.pack(MAGIC, VERSION, *header)


def decode(head: Buffer) -> Header:
    """The header in 64 bytes. Raises FrameError; the checksum is tested when the body is there."""
    if len(head) != HEADER_SIZE:
        raise FrameError(f"a header has {len(head)} bytes instead of {HEADER_SIZE}")
    magic, version, *rest = _LAYOUT.unpack(head)
    if magic != MAGIC:
        raise FrameError(
            f"the other side does not speak this protocol (first bytes {bytes(head[:4])!r})",
            hint="is the port that of a paddock pserver?",
        )
    if version != VERSION:
        raise FrameError(
            f"the other side speaks version {version} of the protocol, this side {VERSION}",
            hint="install the same paddock on trainers and servers",
        )
    header = Header._make(rest)
    if header.length > BODY_MAX:
        raise FrameError(f"a frame announces {header.length} bytes, the limit is {BODY_MAX}")
    return header
