"""Frames over a socket: the same ones whatever the cuts, what is read ahead included."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddock.ps.stream import (
    READ_AHEAD_BYTES,
    SMALL_BYTES,
    ConnectionClosed,
    FrameStream,
    ReadTimeout,
    raw,
)
from paddock.ps.wire.frames import HEADER_SIZE, Header, Op, encode

AHEAD = READ_AHEAD_BYTES - HEADER_SIZE
LENGTHS = st.sampled_from([0, 1, 60, AHEAD - 1, AHEAD, AHEAD + 1, SMALL_BYTES + 1, 1 << 18])


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Two connected sockets."""
    pair = socket.socketpair()
    yield pair
    for sock in pair:
        sock.close()


def whole(number: int, length: int) -> bytes:
    """A frame whose body tells its number."""
    body = bytes([number % 251]) * length
    return encode(Header(Op.STATUS, count=number), body) + body


@given(lengths=st.lists(LENGTHS, min_size=1, max_size=8), cuts=st.lists(st.integers(1, 9000)))
def test_frames_arrive_whole_whatever_the_cuts(lengths: list[int], cuts: list[int]) -> None:
    """Several frames in one piece, one frame in many; with a body of its own and into an array."""
    near, far = socket.socketpair()
    stream = FrameStream(far, 10.0)
    data = b"".join(whole(number, length) for number, length in enumerate(lengths))

    def send() -> None:
        at = 0
        for cut in (*cuts, len(data)):
            near.sendall(data[at : at + cut])
            at += cut

    sender = threading.Thread(target=send)
    sender.start()
    try:
        for number, length in enumerate(lengths):
            assert stream.wait_readable(10.0)
            if number % 2:
                header, body = stream.receive()
            else:
                body = bytearray(length)
                header, _ = stream.receive(into=memoryview(body))
            assert (header.count, len(body)) == (number, length)
            assert body == bytes([number % 251]) * length
        assert not stream.wait_readable(0.0)
    finally:
        sender.join()
        near.close()
        stream.close()


@pytest.mark.parametrize("length", [0, SMALL_BYTES - HEADER_SIZE, SMALL_BYTES, 1 << 20])
def test_what_is_sent_in_pieces_is_one_frame(
    length: int, ends: tuple[socket.socket, socket.socket]
) -> None:
    """Small ones go out of one buffer, large ones from where they are."""
    near, far = (FrameStream(sock, 10.0) for sock in ends)
    rows = np.arange(length // 4, dtype=np.float32)
    sender = threading.Thread(target=near.send, args=(Header(Op.STATUS), bytes(8), raw(rows)))
    sender.start()
    header, body = far.receive()
    sender.join()
    assert header.length == len(body) == 8 + length
    assert body[8:] == rows.tobytes()


def test_an_answer_that_ends_in_the_middle_is_a_closed_connection(
    ends: tuple[socket.socket, socket.socket],
) -> None:
    """In its header, and in its body."""
    near, far = ends
    stream = FrameStream(far, 10.0)
    near.sendall(whole(0, 10) + whole(1, 5000)[:3000])
    near.close()
    assert stream.receive()[0].count == 0
    with pytest.raises(ConnectionClosed):
        stream.receive()


def test_a_silent_side_is_told_from_a_closed_one(
    ends: tuple[socket.socket, socket.socket],
) -> None:
    """Half a header, and nothing more within the limit."""
    stream = FrameStream(ends[1], 0.05)
    ends[0].sendall(whole(0, 0)[:20])
    with pytest.raises(ReadTimeout):
        stream.receive()
