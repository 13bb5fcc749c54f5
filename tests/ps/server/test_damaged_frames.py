"""Frames that no client of ours sends: refused, or the end of their connection, and never a bug."""

from __future__ import annotations

import random
import resource
import socket
from collections.abc import Iterator

import numpy as np
import pytest

from paddock.ps.link import Identity, Link
from paddock.ps.protocol.frames import Header, Op, encode
from paddock.ps.protocol.refusals import Refusal
from paddock.ps.spec import AccessorSpec, DenseSpec, OptimizerSpec, SparseSpec
from paddock.ps.stream import Closed
from ps.client.running import Fleet, fleet
from ps.server.test_waiting import until

ROUNDS = 4000
MEMORY_MAX_KIB = 200 << 10
WORDS = SparseSpec("words", 4, OptimizerSpec("adagrad"), accessor=AccessorSpec(statistics=True))
JSONS = [
    b"", b"{}", b"[]", b"null", b"{", b'{"name": 3}', b'{"do": "save"}', b'{"barrier": 5}',
    b'{"barrier": "x", "turn": "y", "is_fresh": true}', b'{"do": "check load"}', b'{"do": 5}',
    b'{"do": "save", "directory": "/proc/no", "name": "../x", "base": ""}', b'{"shard": -1}',
    b'{"shard": "1"}', b'{"step": "x", "members": 3}', b'{"step": 1, "members": [[1]]}',
    b'{"step": 1e999}', b'{"strategy": 5}', b'{"strategy": "sync", "staleness": "many"}',
    b'{"kind": "sparse", "name": "t", "dim": "x"}', b'{"kind": "dense", "name": "t", "size": -1}',
    b'{"kind": "sparse", "name": "t", "dim": 4, "optimizer": []}', b"\xff\xfe", b"1e9999",
    b'{"directory": "/no", "name": "x", "checksum": "0"}', b'{"directory": 3, "name": 4}',
    b'{"kind": "dense", "name": "u", "size": 1000000000000, "shards": 4096}',
    b'{"name": "words", "kind": "sparse", "dim": 1e400}', b'{"trainer": 1, "incarnation": "a"}',
]  # fmt: skip
# What would end the fuzzing, not the server: it waits for a log.
WAITING = (Op.FOLLOW,)


@pytest.fixture
def server() -> Iterator[tuple[Fleet, list[str]]]:
    """A server with two tables, and what it says."""
    with fleet(1) as servers:
        told: list[str] = []
        servers.servers[0]._say = told.append
        with servers.client() as ps:
            ps.create(WORDS)
            ps.create(DenseSpec("bias", 8))
            ps.push("words", [1], np.ones((1, 4), np.float32))
        yield servers, told


def draw(chance: random.Random) -> tuple[bytes, bool]:
    """A frame: some field or byte of a sensible one is not what it should be; whether a byte."""
    count = chance.choice([0, 1, 2, 3, 1000, 1 << 20, (1 << 32) - 1])
    ops = [op for op in range(256) if op not in WAITING]
    op = chance.choice([*(o for o in Op if o not in WAITING)] * 20 + ops)
    bodies = [
        chance.choice(JSONS),
        chance.randbytes(chance.choice([0, 1, 8, 12, 24, 32, 72, 1000])),
        np.full(2, 1, np.int64).tobytes() + np.full(8, np.nan, np.float32).tobytes(),
        np.arange(2).tobytes() + np.ones(8, np.float32).tobytes(),
    ]
    body = chance.choice(bodies)
    header = Header(
        op,
        chance.choice([0, 0, 4, 8, 16, 32, 255]),
        chance.choice([0, 0, 1, 2, 65535]),
        chance.choice([0, 1, 65535]),
        chance.choice([count, 2]),
        sequence=chance.choice([0, 0, 1, 2, 1 << 63]),
        trainer=chance.choice([0, 1, (1 << 32) - 1]),
        incarnation=chance.choice([0, 5, (1 << 32) - 1]),
        step=chance.choice([0, 1, 2, 1 << 40]),
    )
    frame = bytearray(encode(header, body) + body)
    is_flipped = chance.random() < 0.1
    if is_flipped:
        frame[chance.randrange(len(frame))] ^= 1 << chance.randrange(8)
    return bytes(frame), is_flipped


def test_damaged_frames_are_refused_and_nothing_breaks(
    server: tuple[Fleet, list[str]],
) -> None:
    """Each is answered or ends its connection; there is no internal error, and no growth."""
    servers, told = server
    chance = random.Random(4)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    link: Link | None = None
    lost = 0
    for number in range(ROUNDS):
        if link is None:
            identity = Identity("default", 0, number, "")
            # Not soon: the first frame of its kind may wait for a compiler on a busy machine.
            link = Link(servers.endpoints, identity, "control", 20.0)
        frame, is_flipped = draw(chance)
        try:
            link.stream._sock.sendall(frame)
            if is_flipped:  # Its length may be wrong: the server must not wait for the rest.
                link.stream._sock.shutdown(socket.SHUT_WR)
            link.receive()
        except Refusal:
            if not is_flipped:
                continue
        except Closed:
            pass
        if is_flipped:
            lost += 1
            link.close()
            link = None
    assert [line for line in told if "bug" in line] == []
    if link is not None:
        link.close()
    assert lost > ROUNDS // 20
    pull = Link(servers.endpoints, Identity("default", 0, 0, ""), "pull", 5.0)
    pull.send(Header(Op.PULL, count=1), np.int64(1).tobytes())
    assert len(pull.receive()[1]) == 16
    pull.close()
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert after - before < MEMORY_MAX_KIB


@pytest.mark.parametrize(
    "data", [b"GET / HTTP/1.0\r\n\r\n" * 5, bytes(64), b"\xff" * 100], ids=["http", "zeros", "ones"]
)
def test_another_protocol_ends_its_connection(data: bytes, server: tuple[Fleet, list[str]]) -> None:
    """The server says so, and goes on."""
    servers, told = server
    with socket.create_connection(("127.0.0.1", servers.ports[0]), 5.0) as sock:
        sock.sendall(data)
        try:
            while sock.recv(1000):
                pass
        except ConnectionResetError:
            pass  # The rest of what was sent was not read.
    with servers.client() as ps:
        assert ps.status()[0]["server"] == 0
    until(lambda: any("does not speak this protocol" in line for line in told))
