"""Frames out of bytes: any cut, any damage; and the reviewed bytes of each kind of frame."""

from __future__ import annotations

import random
import socket
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from paddock.ps.stream import ConnectionClosed, FrameStream
from paddock.ps.wire.frames import (
    ANSWER,
    BODY_MAX,
    HEADER_SIZE,
    FrameError,
    FrameFlag,
    Header,
    Op,
    decode,
    encode,
)
from paddock.ps.xxh3 import xxh3

if TYPE_CHECKING:
    from collections.abc import Callable

GOLDEN = Path(__file__).parent / "golden" / "frames.txt"
ERROR = int(FrameFlag.ANSWER | FrameFlag.ERROR | FrameFlag.LAST)
BODY = bytes(range(24))
PUSH = Header(
    Op.PUSH, FrameFlag.LAST, table=2, part=1, count=1, sequence=9, trainer=3, incarnation=17,
    step=5, stamp=1.5,
)  # fmt: skip
# What is shown in the golden file; a change there breaks every client and every log.
SHOWN: dict[str, tuple[Header, bytes]] = {
    "an empty request": (Header(Op.STATUS), b""),
    "a push of one row of dim 4": (PUSH, BODY),
    "its answer": (PUSH._replace(flags=ANSWER, count=0), b""),
    "an error": (PUSH._replace(flags=ERROR, count=0), b"{}"),
    "a commit": (Header(Op.COMMIT, step=5), b'{"step":5,"members":[[0,17]]}'),
    "a learning rate": (
        Header(
            Op.RATE, FrameFlag.CONTRIBUTION, table=2, sequence=8, trainer=3, incarnation=17, step=5
        ),
        b'{"lr": 0.5, "correction": 1.0}',
    ),
    "the largest numbers": (
        Header(
            255, 2**16 - 1, 2**16 - 1, 2**16 - 1, 2**32 - 1, 0, 2**64 - 1, 2**32 - 1, 2**32 - 1,
            2**63 - 1, 1e300,
        ),
        b"",
    ),
}  # fmt: skip


def frame(header: Header, body: bytes = b"") -> bytes:
    """The whole frame."""
    return encode(header, body) + body


def test_frames_have_the_recorded_bytes(same_as_golden: Callable[[Path, str], None]) -> None:
    """Clients, servers and logs of other releases read these bytes."""
    blocks = []
    for name, (header, body) in SHOWN.items():
        whole = frame(header, body)
        rows = [whole[i : i + 16].hex(" ", -4) for i in range(0, len(whole), 16)]
        blocks.append("\n".join([name, *("  " + row for row in rows)]))
    same_as_golden(GOLDEN, "\n\n".join(blocks) + "\n")
    assert GOLDEN.read_text("utf-8").count("44505053") == len(SHOWN)


def test_recorded_frames_are_read_back() -> None:
    """What an older release wrote is still understood."""
    blocks = GOLDEN.read_text("utf-8").strip().split("\n\n")
    for block in blocks:
        name, *rows = block.split("\n")
        header, body = SHOWN[name]
        whole = bytes.fromhex("".join(rows))
        got = decode(whole[:HEADER_SIZE])
        assert xxh3(whole[: HEADER_SIZE - 8], whole[HEADER_SIZE:]) == got.checksum
        assert whole[HEADER_SIZE:] == body
        assert got._replace(length=0, checksum=0) == header
    assert len(blocks) == len(SHOWN)


def test_one_more_than_the_largest_body_is_refused() -> None:
    """The limit itself is allowed."""
    assert decode(encode(Header(Op.PUSH), bytes(BODY_MAX))).length == BODY_MAX
    with pytest.raises(FrameError, match="over the limit"):
        encode(Header(Op.PUSH), bytes(BODY_MAX + 1))


def mutated(rng: random.Random, stream: bytes) -> bytes:
    """The stream with one to three things done to it."""
    data = bytearray(stream)
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(len(data) + 1)
        kind = rng.randrange(6)
        if kind == 0 and at < len(data):
            data[at] ^= 1 << rng.randrange(8)
        elif kind == 1:
            del data[at:]
        elif kind == 2:
            del data[at : at + rng.randrange(1, 80)]
        elif kind == 3:
            data[at:at] = rng.randbytes(rng.randrange(1, 80))
        elif kind == 4:
            data[at : at + 4] = rng.choice((b"\xff" * 4, bytes(4), b"\x00\x00\x40\x00"))
        else:
            data[at:at] = data[rng.randrange(len(data) + 1) :][: rng.randrange(1, 200)]
    return bytes(data)


def test_mutated_frames_are_errors_or_frames() -> None:
    """2,000 damaged streams: valid frames that were sent, then one FrameError or an end."""
    rng = random.Random(4)
    good = [frame(*shown) for shown in SHOWN.values()]
    errors = 0
    for _ in range(2000):
        near, far = socket.socketpair()
        with near, far:
            near.sendall(mutated(rng, b"".join(rng.sample(good, 3))))
            near.close()
            stream = FrameStream(far, 1.0)
            try:
                while True:
                    header, body = stream.receive()
                    assert frame(header, bytes(body)) in good
            except FrameError:
                errors += 1
            except ConnectionClosed:
                pass
    assert errors > 1000
