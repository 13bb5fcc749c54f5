"""Mutants of frames that a real client has sent, by seed: what a server must refuse or survive."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from random import Random
from typing import Any

from paddock.ps.wire.frames import (
    BODY_MAX,
    HEADER_SIZE,
    FrameError,
    Header,
    Op,
    decode,
    encode,
)

VALUES: tuple[Any, ...] = (
    None, True, False, -1, 0, 1, 2, 3, 64, 255, 2**31, 2**63, 10**30, -(2**63), 1.5, 1e300,
    float("inf"), float("nan"), "", "x", "1", "-5", "名字", "a" * 300, "a.b", "../x", "/proc/no",
    "\u0000", "\ud800", "sync", "async", "geo", "dense", "sparse", "adam", "disk", "save", "keep",
    [], [None], [[]], [1], [[1, 1]], {}, {"": ""}, {"a": {"b": [1]}}, {"kind": []},
)  # fmt: skip
RAW_JSON = (
    b"", b"{", b"null", b"[]", b'"x"', b"\xff\xfe", b"1e9999", b'{"a":' * 3000, b"[" * 100_000,
    b'{"step": 1e999}', b'{"a": NaN}', b'{"x": ' + b"1" * 5000 + b"}", b'{"x": 1, "x": 2}',
    b'{"do": "' + b"y" * 70_000 + b'"}',
)  # fmt: skip
NUMBERS = (0, 1, 2, 3, 7, 1000, 65535)
COUNTS = (*NUMBERS, 1 << 20, (1 << 31) - 1, (1 << 32) - 1)
STEPS = (*COUNTS, -1, -(1 << 63), (1 << 63) - 1, 1 << 40)
FIELDS: dict[str, tuple[int, ...]] = {
    "op": (*(int(op) for op in Op), 0, 7, 31, 200, 255),
    "flags": (0, 1, 2, 4, 8, 16, 32, 64, 128, 12, 20, 48, 255),
    "table": NUMBERS,
    "part": NUMBERS,
    "count": COUNTS,
    "sequence": (0, 1, 2, 5, 500, 1 << 40, (1 << 64) - 1),
    "trainer": (0, 2, 65536, (1 << 32) - 1),
    "incarnation": (0, 1, 2, 70_000, (1 << 32) - 1),
    "step": STEPS,
}
DEPTH_STOP = 0.1  # chance to change a mapping itself, and not something in it
_LENGTH = slice(16, 20)  # of the header's bytes


@dataclass(frozen=True)
class Said:
    """A frame of a conversation. server, purpose: of its connection."""

    server: int
    purpose: str
    header: Header
    body: bytes

    @property
    def data(self) -> Any:
        """The JSON in the body; None when it has none."""
        try:
            return json.loads(self.body)
        except (ValueError, RecursionError):
            return None


@dataclass(frozen=True)
class Mutant:
    """Bytes for a connection. frames: what is whole in them, so that it must be answered.

    ends: nothing can follow on this connection.
    """

    kind: str
    data: bytes
    frames: tuple[tuple[Header, bytes], ...] = ()
    ends: bool = False


def whole(kind: str, *frames: tuple[Header, bytes]) -> Mutant:
    """A mutant of frames that are frames: their checksums fit."""
    data = b"".join(encode(header, body) + body for header, body in frames)
    return Mutant(kind, data, tuple((h._replace(length=len(b)), b) for h, b in frames))


def flipped(rng: Random, said: Said) -> Mutant:
    """Some bits of the frame are others; its checksum tells."""
    frame = bytearray(encode(said.header, said.body) + said.body)
    bits = rng.sample(range(8 * len(frame)), rng.choice((1, 1, 1, 2, 8)))
    for bit in bits:
        frame[bit // 8] ^= 1 << bit % 8
    return Mutant("flipped", bytes(frame), ends=True)


def truncated(rng: Random, said: Said) -> Mutant:
    """The connection ends before the frame does."""
    frame = encode(said.header, said.body) + said.body
    return Mutant("truncated", frame[: rng.randrange(len(frame))], ends=True)


def misjudged(rng: Random, said: Said) -> Mutant:
    """Its length is wrong; now and then the checksum fits what then is its body."""
    frame = bytearray(encode(said.header, said.body) + said.body)
    length = rng.choice((0, 1, len(said.body) // 2, len(said.body) + 1, BODY_MAX, BODY_MAX + 1,
                         1 << 31, (1 << 32) - 1))  # fmt: skip
    if length == len(said.body):
        length += 8
    if length < len(said.body) and rng.random() < 0.5:
        body = said.body[:length]
        part = (said.header._replace(length=length), body)
        return Mutant("short", encode(said.header, body) + said.body, (part,), ends=True)
    frame[_LENGTH] = length.to_bytes(4, "little")
    return Mutant("length", bytes(frame), ends=True)


def lied(rng: Random, said: Said) -> Mutant:
    """A field of the header is another one."""
    name = rng.choice(list(FIELDS))
    return whole(
        f"field {name}", (said.header._replace(**{name: rng.choice(FIELDS[name])}), said.body)
    )


def nonsense(rng: Random, said: Said) -> Mutant:
    """Its body is: of the length it had, or not; of bits, JSON or floats that are no numbers."""
    body = bytearray(said.body)
    what = rng.randrange(5)
    if what == 0:
        body = bytearray(rng.randbytes(len(body)))
    elif what == 1:
        body = bytearray(rng.randbytes(rng.choice((0, 1, 7, 8, 9, 24, 100, 5000))))
    elif what == 2:
        body = bytearray(rng.choice(RAW_JSON))
    elif what == 3 and len(body) >= 4:
        at = rng.randrange(len(body) // 4) * 4
        body[at : at + 4] = rng.choice(
            (b"\0\0\xc0\x7f", b"\0\0\x80\x7f", b"\xff" * 4, b"\0\0\x80\xff")
        )
    elif body:
        for bit in rng.sample(range(8 * len(body)), rng.choice((1, 1, 2))):
            body[bit // 8] ^= 1 << bit % 8
    return whole("nonsense", (said.header, bytes(body)))


def misspelt(rng: Random, said: Said) -> Mutant:
    """Something in its JSON is something else."""
    data = said.data
    if not isinstance(data, dict):
        return nonsense(rng, said)
    inside, key = data, ""
    while inside:
        key = rng.choice(list(inside))
        if not isinstance(inside[key], dict) or not inside[key] or rng.random() < DEPTH_STOP:
            break
        inside = inside[key]
    if inside and rng.random() < 0.15:
        del inside[key]
    else:
        inside[key if rng.random() < 0.9 else rng.choice(("x", "", "do", "all"))] = rng.choice(
            VALUES
        )
    return whole("misspelt", (said.header, json.dumps(data).encode()))


def repeated(rng: Random, said: Said) -> Mutant:
    """Sent again and again, before an answer is read."""
    return whole("repeated", *[(said.header, said.body)] * rng.choice((2, 2, 3, 9)))


KINDS: tuple[tuple[Callable[[Random, Said], Mutant], int], ...] = (
    (flipped, 18), (truncated, 6), (misjudged, 8), (lied, 26), (nonsense, 16), (misspelt, 20),
    (repeated, 6),
)  # fmt: skip


def mutant(rng: Random, said: Said) -> Mutant:
    """One of them, of any kind."""
    makers, weights = zip(*KINDS, strict=True)
    while True:
        maker = rng.choices(makers, weights)[0]
        if maker is nonsense and b'"directory"' in said.body:
            maker = misspelt  # Its name is a place on the disk of whoever runs this.
        try:
            return maker(rng, said)
        except FrameError:
            continue  # Too long to be encoded.


def read_conversation(server: int, connections: list[list[bytes]]) -> Iterator[Said]:
    """Each frame that a client has sent to a server, after the greeting of its connection."""
    for frames in connections:
        heads = [decode(frame[:HEADER_SIZE]) for frame in frames]
        if not frames or heads[0].op != Op.HELLO:
            continue
        purpose = json.loads(frames[0][HEADER_SIZE:])["purpose"]
        for head, frame in zip(heads, frames, strict=True):
            yield Said(server, purpose, head, frame[HEADER_SIZE:])
