"""Frames out of bytes: any cut, any damage; and the reviewed bytes of each kind of frame."""

from __future__ import annotations

import random
import tracemalloc
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddock.ps.protocol.frames import (
    BODY_MAX,
    HEADER_SIZE,
    Flag,
    FrameError,
    Header,
    Op,
    answer_to,
    encode,
)
from paddock.ps.protocol.reader import ENDED, NEED_BYTES, Frame, FrameReader

if TYPE_CHECKING:
    from collections.abc import Callable

GOLDEN = Path(__file__).parent / "golden" / "frames.txt"
BODY = bytes(range(24))
PUSH = Header(
    Op.PUSH, Flag.LAST, table=2, part=1, count=1, sequence=9, trainer=3, incarnation=17, step=5,
    generation=4, status=6, stamp=1.5,
)  # fmt: skip
# What is shown in the golden file; a change there breaks every client and every log.
SHOWN: dict[str, tuple[Header, bytes]] = {
    "an empty request": (Header(Op.STATUS), b""),
    "a push of one row of dim 4": (PUSH, BODY),
    "its answer": (answer_to(PUSH), b""),
    "an error": (answer_to(PUSH, flags=int(Flag.ANSWER | Flag.ERROR | Flag.LAST)), b"{}"),
    "a commit": (Header(Op.COMMIT, step=5), b'{"step":5,"members":[[0,17]]}'),
    "the largest numbers": (
        Header(
            255, 2**16 - 1, 2**16 - 1, 2**16 - 1, 2**32 - 1, 0, 2**64 - 1, 2**32 - 1, 2**32 - 1,
            2**63 - 1, 2**16 - 1, 2**16 - 1, 1e300,
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
    reader = FrameReader()
    for block in blocks:
        name, *rows = block.split("\n")
        header, body = SHOWN[name]
        (got,) = reader.frames(bytes.fromhex("".join(rows)))
        assert got.body == body
        assert got.header._replace(length=0, checksum=0) == header
    assert len(blocks) == len(SHOWN)


@given(st.lists(st.binary(max_size=200), max_size=6), st.randoms(use_true_random=False))
def test_any_cut_gives_the_same_frames(bodies: list[bytes], rng: random.Random) -> None:
    """TCP cuts where it likes."""
    stream = b"".join(frame(Header(Op.PUSH, sequence=i), b) for i, b in enumerate(bodies))
    reader, got, at = FrameReader(), list[Frame](), 0
    while at < len(stream):
        size = rng.choice((1, 7, 64, 100, 1000))
        got += reader.frames(stream[at : at + size])
        at += size
    assert [f.body for f in got] == bodies
    assert [f.head + f.body for f in got] == [frame(f.header, f.body) for f in got]
    assert reader.held == 0
    reader.feed(b"")
    assert reader.next_frame() is ENDED


def test_an_end_within_a_frame_is_an_error_once() -> None:
    """A cut connection must not look like an orderly end."""
    reader = FrameReader()
    reader.feed(frame(PUSH, BODY)[:-1])
    assert reader.next_frame() is NEED_BYTES
    reader.feed(b"")
    with pytest.raises(FrameError, match=f"{HEADER_SIZE + 23} of {HEADER_SIZE + 24}"):
        reader.next_frame()
    assert reader.is_dead
    assert reader.next_frame() is ENDED


def test_a_dead_reader_keeps_nothing() -> None:
    """Whoever sends garbage cannot make the other side hold it."""
    reader = FrameReader()
    reader.feed(b"GET / HTTP/1.1\r\n" * 8)
    with pytest.raises(FrameError, match="does not speak this protocol"):
        reader.next_frame()
    reader.feed(frame(PUSH, BODY))
    assert reader.held == 0
    assert reader.next_frame() is ENDED


def test_frames_before_the_damage_are_given() -> None:
    """An error ends the connection, but does not unsay what came before."""
    reader = FrameReader()
    reader.feed(frame(PUSH, BODY) + b"x" * HEADER_SIZE)
    got = reader.next_frame()
    assert isinstance(got, Frame) and got.body == BODY
    with pytest.raises(FrameError):
        reader.next_frame()


def test_the_largest_body_is_accepted() -> None:
    """The limit itself is allowed; one more is refused before it is read."""
    body = bytes(BODY_MAX)
    (got,) = FrameReader().frames(frame(Header(Op.PUSH), body))
    assert len(got.body) == BODY_MAX
    with pytest.raises(FrameError, match="over the limit"):
        encode(Header(Op.PUSH), body + b"x")


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
    """10,000 damaged streams: valid frames that were sent, or one FrameError; nothing kept."""
    rng = random.Random(4)
    good = [frame(*shown) for shown in SHOWN.values()]
    sent = set(good)
    errors = 0
    tracemalloc.start()
    try:
        base = 0
        for round_ in range(10_000):
            if round_ == 1000:
                base = tracemalloc.get_traced_memory()[0]
            reader = FrameReader()
            try:
                for got in reader.frames(mutated(rng, b"".join(rng.sample(good, 3)))):
                    assert got.head + got.body in sent
                reader.feed(b"")
                assert reader.next_frame() is ENDED
            except FrameError:
                errors += 1
                assert reader.held == 0
        grown = tracemalloc.get_traced_memory()[0] - base
    finally:
        tracemalloc.stop()
    assert errors > 8000
    assert grown < 100_000
