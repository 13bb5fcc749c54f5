"""Who connects and is not known yet takes little memory, little time, and nobody's place."""

from __future__ import annotations

import json
import socket
import time

import pytest

from paddock.ps.server.serve import UNAUTHENTICATED_MAX
from paddock.ps.wire.frames import BODY_MAX, Header, Op, encode
from ps.client.running import fleet
from ps.running import eventually


def test_a_greeting_of_megabytes_is_refused_unread() -> None:
    """Each would hold its memory without having said who it is."""
    with fleet(1) as one:
        body = bytes(BODY_MAX)
        with socket.create_connection(("127.0.0.1", one.ports[0]), timeout=5) as sock:
            sock.sendall(encode(Header(Op.HELLO), body))
            assert b"at most 16384 are taken here" in sock.recv(4096)


def test_a_greeting_has_one_deadline_for_all_its_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A byte now and then began it anew, for ever."""
    monkeypatch.setattr("paddock.ps.server.session.GREETING_SECONDS", 0.5)
    with fleet(1) as one:
        body = json.dumps({"version": "x" * 200}).encode()
        with socket.create_connection(("127.0.0.1", one.ports[0]), timeout=5) as sock:
            sent = 0
            sock.setblocking(False)
            for byte in (whole := encode(Header(Op.HELLO), body) + body):
                try:
                    sock.send(bytes([byte]))
                    if sock.recv(1) == b"":
                        break
                except BlockingIOError:
                    time.sleep(0.05)  # sleep: a peer that is slow on purpose
                except OSError:
                    break
                sent += 1
            assert sent < len(whole) - 100


def test_many_slow_connections_do_not_keep_trainers_out() -> None:
    """The one that is silent for longest makes room; who greets at once is never in its place."""
    with fleet(1) as one:
        strangers = [
            socket.create_connection(("127.0.0.1", one.ports[0]), timeout=5)
            for _ in range(UNAUTHENTICATED_MAX + 8)
        ]
        try:
            assert [sock.recv(1) for sock in strangers[:8]] == [b""] * 8
            with one.client() as ps:
                assert ps.status()[0]["role"] == "primary"
            # The trainer took the place of one for a moment each time, no more.
            strangers[-1].settimeout(0.0)
            with pytest.raises(BlockingIOError):
                strangers[-1].recv(1)
        finally:
            for sock in strangers:
                sock.close()


@pytest.mark.parametrize(
    "data", [b"GET / HTTP/1.0\r\n\r\n" * 5, bytes(64), b"\xff" * 100], ids=["http", "zeros", "ones"]
)
def test_another_protocol_ends_its_connection(data: bytes) -> None:
    """The server says so, and goes on."""
    told: list[str] = []
    with fleet(1) as one:
        one.servers[0].say = told.append
        with socket.create_connection(("127.0.0.1", one.ports[0]), 5.0) as sock:
            sock.sendall(data)
            try:
                while sock.recv(1000):
                    pass
            except ConnectionResetError:
                pass  # The rest of what was sent was not read.
        with one.client() as ps:
            assert ps.status()[0]["server"] == 0
        eventually(lambda: any("does not speak this protocol" in line for line in told), "said")
