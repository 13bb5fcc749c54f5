"""Connections that rest between small pulls: woken by whatever is no small pull, and never lost."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
import pytest

from paddock.ps.client.client import Client
from paddock.ps.spec import InitialSpec, OptimizerSpec, SparseSpec
from paddock.ps.wire.errors import RequestError
from paddock.ps.wire.frames import Header, Op, encode
from ps.client.running import Fleet, fleet
from ps.running import eventually

WORDS = SparseSpec("words", 4, OptimizerSpec("sgd", 1.0), InitialSpec("normal"))
KEYS = np.arange(200_000)


@contextmanager
def trainers(count: int) -> Iterator[tuple[Fleet, list[Client]]]:
    """One server; each trainer has pulled a little, so that its connection rests."""
    with fleet(1, f"--num-gradient-servers={count}") as running, ExitStack() as held:
        every = [
            held.enter_context(running.client(trainer=i, trainers=count)) for i in range(count)
        ]
        for ps in every:
            ps.create(WORDS)
            ps.pull("words", KEYS[:3])
        resting = running.servers[0].small_pulls._resting
        eventually(lambda: len(resting) == count, "all connections resting")
        yield running, every


def test_each_is_answered_its_own() -> None:
    """Small and large pulls in turns, over connections that rest and wake."""
    with trainers(4) as (_, every):
        whole = every[0].pull("words", KEYS)
        for turn in range(20):
            for i, ps in enumerate(every):
                keys = KEYS if (turn + i) % 7 == 0 else KEYS[turn * 10 + i :][: 1 + turn]
                assert (ps.pull("words", keys) == whole[keys]).all()


def test_a_refusal_and_a_broken_pull_wake_their_connection() -> None:
    """The refusal comes, nonsense ends its own connection, and the others rest on."""
    with trainers(3) as (running, (one, two, three)):
        link = one.peers[0].link("pull")
        link.stream.send(Header(Op.PULL, table=9, count=1), bytes(8))
        with pytest.raises(RequestError, match="no table number 9"):
            link.receive()
        stream = two.peers[0].link("pull").stream
        whole = encode(Header(Op.PULL, count=1), bytes(8)) + bytes(8)
        sock: Any = stream._sock
        sock.sendall(whole[:70])  # A frame in two pieces is waited for by its own thread.
        eventually(lambda: len(running.servers[0].small_pulls._resting) == 1, "two of them awake")
        sock.sendall(whole[70:])
        assert stream.receive()[0].count == 1
        sock.sendall(bytes(100))
        with pytest.raises(Exception, match=r"closed the connection|connection broke"):
            stream.receive()
        assert len(three.pull("words", KEYS[:5])) == 5


def test_who_goes_or_reads_nothing_holds_up_nobody() -> None:
    """A connection that ends is let go of; one that reads no answer is left to its own thread."""
    with trainers(3) as (running, (one, two, three)):
        one.peers[0].link("pull").close()
        server = running.servers[0]
        eventually(lambda: len(server.small_pulls._resting) == 2, "the ended one let go of")
        sock: Any = two.peers[0].link("pull").stream._sock
        frame = encode(Header(Op.PULL, count=50), KEYS[:50].tobytes()) + KEYS[:50].tobytes()
        sock.setblocking(False)
        with pytest.raises(BlockingIOError):  # Until nothing more fits in either direction.
            while True:
                sock.send(frame)
        for _ in range(100):
            assert len(three.pull("words", KEYS[:5])) == 5
        sock.shutdown(socket.SHUT_RDWR)
        two.peers[0].drop("pull")


def test_a_server_that_stops_wakes_all() -> None:
    """And its threads end."""
    with trainers(2) as (running, every):
        server = running.servers[0]
        thread = server.small_pulls._thread
        assert thread is not None
        running.stop_one(0)
        eventually(lambda: not server._sessions and not thread.is_alive(), "all ended")
        assert not server.small_pulls._resting
        for ps in every:
            ps.peers[0].end()
        running.restart(0)
