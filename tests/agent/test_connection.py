"""One TCP connection: lines in order, nothing lost, an end that is told once."""

from __future__ import annotations

import shutil
import socket
import ssl
import struct
import subprocess
from typing import TYPE_CHECKING

import pytest

from paddock.agent.transport.connection import OUT_LIMIT_BYTES, LineConnection

if TYPE_CHECKING:
    from pathlib import Path

    from agent.rooms import Room

LIMIT = 16 << 20


class End:
    """One end of a connection and what came out of it."""

    def __init__(
        self, room: Room, sock: socket.socket, *, limit: int = LIMIT,
        tls: ssl.SSLContext | None = None, server_side: bool = False,
    ) -> None:  # fmt: skip
        self.lines: list[bytes] = []
        self.closed: list[str] = []
        self.is_orderly: bool | None = None
        self.connection = LineConnection(
            sock, room.loop, tls, "a", server_side=server_side,
        )  # fmt: skip
        self.connection.begin(limit, self.lines.append, self._on_closed)

    def _on_closed(self, why: str, is_orderly: bool) -> None:
        self.closed.append(why)
        self.is_orderly = is_orderly


def tcp_pair(room: Room) -> tuple[socket.socket, socket.socket]:
    """Two connected sockets."""
    listener = room.keep(socket.create_server(("127.0.0.1", 0)))
    here = room.keep(socket.create_connection(listener.getsockname()))
    return here, room.keep(listener.accept()[0])


def test_lines_come_whole_and_in_order(room: Room) -> None:
    """Also lines larger than any buffer of the kernel."""
    a, b = (End(room, sock) for sock in tcp_pair(room))
    lines = [b"%d:" % n + b"x" * (n * n * 100) for n in range(100)]
    for line in lines:
        a.connection.send(line + b"\n")
    room.run_until(lambda: len(b.lines) == len(lines))
    assert b.lines == lines


def test_closing_sends_what_is_queued(room: Room) -> None:
    """The verdict is the last line; it must arrive."""
    a, b = (End(room, sock) for sock in tcp_pair(room))
    a.connection.send(b"x" * 8_000_000 + b"\n")
    a.connection.send(b"verdict\n")
    a.connection.close()
    room.run_until(lambda: b.closed)
    assert (len(b.lines), b.lines[-1], a.closed) == (2, b"verdict", [])


def test_the_end_is_told_once(room: Room) -> None:
    """Lost twice would be counted twice."""
    a, b = (End(room, sock) for sock in tcp_pair(room))
    a.connection.close()
    room.run_until(lambda: b.closed)
    b.connection.send(b"into the void\n")
    b.connection.close()
    b.connection.abort()
    assert (b.closed, a.closed) == (["connection closed"], [])
    assert b.is_orderly


def test_who_lives_on_breaks_a_connection(room: Room) -> None:
    """Only who has ended, or was asked to go, closes in order: the rest is told from a death."""
    a, b = (End(room, sock) for sock in tcp_pair(room))
    a.connection.abort()
    room.run_until(lambda: b.closed)
    assert not b.is_orderly
    assert "reset" in b.closed[0]


def test_a_line_over_the_limit_closes_the_connection(room: Room) -> None:
    """With the reason."""
    one, other = tcp_pair(room)
    end = End(room, one, limit=100)
    other.send(b"x" * 200)
    room.run_until(lambda: end.closed)
    assert (end.closed, end.is_orderly) == (["a line of over 100 bytes came"], False)


def test_a_peer_that_does_not_read_is_given_up(room: Room) -> None:
    """Memory for one stuck member is limited; others are not held up."""
    one, _other = tcp_pair(room)
    end = End(room, one)
    chunk = b"x" * (1 << 20)
    for _ in range((OUT_LIMIT_BYTES >> 20) + 8):
        end.connection.send(chunk)
    assert len(end.closed) == 1 and "did not take" in end.closed[0]
    assert end.is_orderly is False


def test_lines_before_an_end_are_delivered(room: Room) -> None:
    """A member that reports and dies in the same moment has reported."""
    one, other = tcp_pair(room)
    end = End(room, one)
    other.send(b"last words\n")
    other.close()
    room.run_until(lambda: end.closed)
    assert end.lines == [b"last words"]


def test_a_reset_is_no_orderly_end(room: Room) -> None:
    """The other side may not know of it: its processes can live on."""
    one, other = tcp_pair(room)
    end = End(room, one)
    other.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    other.close()
    room.run_until(lambda: end.closed)
    assert end.closed == ["connection lost (Connection reset by peer)"]
    assert end.is_orderly is False


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A self-signed certificate with its key, made here."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed (apt-get install openssl)")
    path = tmp_path_factory.mktemp("tls") / "node.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2",
         "-subj", "/CN=paddock", "-keyout", str(path), "-out", f"{path}.crt"],
        check=True, capture_output=True,
    )  # fmt: skip
    path.write_text(path.read_text() + path.with_name("node.pem.crt").read_text())
    return path


def test_lines_go_through_tls(room: Room, certificate: Path) -> None:
    """Handshake, data larger than a TLS record, and a good end."""
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(certificate)
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname = False
    client.load_verify_locations(certificate)
    one, other = tcp_pair(room)
    a = End(room, one.dup(), tls=client)
    b = End(room, other.dup(), tls=server, server_side=True)
    one.close()
    other.close()
    lines = [b"%d:" % n + b"x" * (n * 1000) for n in range(200)]
    for line in lines:
        a.connection.send(line + b"\n")
        b.connection.send(line + b"\n")
    room.run_until(lambda: len(a.lines) == len(b.lines) == len(lines))
    a.connection.close()
    room.run_until(lambda: b.closed)
    assert a.lines == b.lines == lines


def test_a_member_without_tls_is_no_guest_of_tls(room: Room, certificate: Path) -> None:
    """Its plain line is not waited for for ever."""
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(certificate)
    one, other = tcp_pair(room)
    end = End(room, one.dup(), tls=server, server_side=True)
    one.close()
    other.send(b'{"paddock": 2}\n')
    room.run_until(lambda: end.closed)
    assert end.lines == []
