"""The etcd client against things on loopback that are not quite etcd; real etcd: tests/real."""

from __future__ import annotations

import contextlib
import json
import shutil
import socket
import ssl
import subprocess
import threading
import time
from typing import TYPE_CHECKING

import pytest

from paddock.errors import UsageError
from paddock.etcd.address import EtcdAddress, parse_etcd_url
from paddock.etcd.client import EtcdClient
from paddock.etcd.reply import EtcdError, EtcdRefused, EtcdUnreachable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


@contextlib.contextmanager
def listener(serve: Callable[[socket.socket], None]) -> Iterator[int]:
    """A port of 127.0.0.1 whose connections are served one after the other."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def accept() -> None:
            with contextlib.suppress(OSError):
                while True:
                    sock, _ = server.accept()
                    with sock:
                        serve(sock)

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)
    thread.join(5)


def read_request(sock: socket.socket) -> bytes:
    """One whole request, or nothing: the client has gone."""
    request = b""
    while b"\r\n\r\n" not in request or not request.endswith(b"}"):
        data = sock.recv(65536)
        if not data:
            return b""
        request += data
    return request


def stays_silent(sock: socket.socket) -> None:
    """Takes everything, says nothing, until the client goes."""
    while sock.recv(65536):
        pass


def answers(*replies: bytes) -> Callable[[socket.socket], None]:
    """Reads one request, sends one reply, in turn; closes after the last."""

    def serve(sock: socket.socket) -> None:
        for reply in replies:
            if not read_request(sock):
                return
            sock.sendall(reply)

    return serve


def http(body: object, status: str = "200 OK", extra: str = "") -> bytes:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    return f"HTTP/1.1 {status}\r\nContent-Length: {len(content)}\r\n{extra}\r\n".encode() + content


def granted(cluster: str = "1") -> bytes:
    return http({"header": {"cluster_id": cluster, "revision": "5"}, "ID": "7", "TTL": "5"})


def client(*ports: int) -> EtcdClient:
    return EtcdClient(EtcdAddress(tuple(("127.0.0.1", port) for port in ports)))


def grant(*ports: int, seconds: float = 5.0) -> tuple[int, int]:
    etcd = client(*ports)
    try:
        return etcd.grant(5, seconds)
    finally:
        etcd.close()


def grant_fails(serve: Callable[[socket.socket], None], seconds: float = 5.0) -> EtcdError:
    with listener(serve) as port, pytest.raises(EtcdError) as caught:
        grant(port, seconds=seconds)
    return caught.value


@pytest.mark.parametrize(
    ("url", "endpoints"),
    [
        ("etcd://10.0.0.1:2379", (("10.0.0.1", 2379),)),
        ("etcd://h", (("h", 2379),)),
        ("etcd://h1:1,[::1]:3,[fe80::1]", (("h1", 1), ("::1", 3), ("fe80::1", 2379))),
        ("etcd://etcd:9/", (("etcd", 9),)),
        ("etcds://a:b@h:1?ca=/x", (("h", 1),)),
    ],
)  # fmt: skip
def test_addresses_are_read_as_written(url: str, endpoints: tuple[tuple[str, int], ...]) -> None:
    """A host called etcd among them: Paddle 2.6 stripped its letters."""
    assert parse_etcd_url(url).endpoints == endpoints


@pytest.mark.parametrize(
    "url",
    ["etcd://", "http://h:1", "etcd://h:", "etcd://h:x", "etcd://h:0", "etcd://h:65536",
     "etcd://::1:2379", "etcd://[::1", "etcd://[::1]x", "etcd://a,,b", "etcd://a,a:2379",
     "etcd://h?ca=/x", "etcds://h?cb=/x", "etcd://h/x", "etcd://h:²"],
)  # fmt: skip
def test_bad_addresses_are_refused(url: str) -> None:
    """One clear error each."""
    with pytest.raises(UsageError):
        parse_etcd_url(url)


def test_password_is_decoded_and_never_shown() -> None:
    """It ends up in logs otherwise."""
    address = parse_etcd_url("etcd://me:p%40ss@h:1")
    assert (address.user, address.password) == ("me", "p@ss")
    assert "p@ss" not in repr(address)
    with pytest.raises(UsageError) as caught:
        parse_etcd_url("etcd://me:s3cret@h:x")
    assert "s3cret" not in str(caught.value)


def test_numbers_are_text_on_the_wire() -> None:
    """The gateway writes 64-bit numbers as JSON text."""
    with listener(answers(granted())) as port:
        assert grant(port) == (7, 5)


def test_dead_port_is_named() -> None:
    """Nothing listens: say where."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with pytest.raises(EtcdUnreachable, match=rf"127.0.0.1:{port}: nothing listens there"):
        grant(port)


def test_unknown_host_is_named() -> None:
    """RFC 2606: .invalid never resolves."""
    with pytest.raises(EtcdUnreachable, match=r"'no\.such\.invalid' is not known"):
        EtcdClient(EtcdAddress((("no.such.invalid", 1),))).grant(5, 5.0)
    with pytest.raises(EtcdRefused, match="cannot be a host name"):
        EtcdClient(EtcdAddress((("a..b", 1),))).grant(5, 5.0)


@pytest.mark.parametrize(
    ("reply", "says"),
    [
        (b"SSH-2.0-OpenSSH_9.2\r\n", "something else than HTTP: 'SSH-2.0-OpenSSH_9.2"),
        (b"\x15\x03\x01\x00\x02\x02\x46", "speaks TLS"),
        (http(b"Client sent an HTTP request to an HTTPS server.\n", "400 x"), "speaks TLS"),
        (http(b"<html>", extra="Server: nginx/1\r\n"), "HTTP 200 from 'nginx/1': '<html>'"),
        (http({"status": "ok"}), "not an etcd v3 JSON gateway: it answers JSON"),
        (http({"header": {"cluster_id": "1"}}), "without an id"),
    ],
)  # fmt: skip
def test_other_program_is_named(reply: bytes, says: str) -> None:
    """Another program on etcd's port: what it said is the best clue there is."""
    error = grant_fails(answers(reply))
    assert says in error.message
    assert not error.retryable
    assert error.exit_code == 2


@pytest.mark.parametrize(
    ("status", "body", "says"),
    [
        ("503 x", {"error": "etcdserver: no leader", "code": 14}, "no leader"),
        ("503 x", {"error": "etcdserver: request timed out", "code": 14}, "timed out"),
        ("502 Bad Gateway", b"upstream down", "HTTP 502"),
    ],
)
def test_trouble_that_passes_is_retryable(status: str, body: object, says: str) -> None:
    """No leader, lost quorum, a load balancer without a backend."""
    error = grant_fails(answers(http(body, status)))
    assert says in error.message
    assert error.retryable


def test_missing_page_is_tried_as_etcd_3_3() -> None:
    """etcd 3.3 serves /v3beta; both missing is not etcd."""
    missing = http(b"404 page not found", "404 Not Found")
    with listener(answers(missing, granted())) as port:
        assert grant(port) == (7, 5)
    assert "HTTP 404" in grant_fails(answers(missing, missing)).message


def test_silent_listener_costs_the_time_it_was_given() -> None:
    """It accepts and says nothing: the original launcher hangs for ever here."""
    begin = time.monotonic()
    error = grant_fails(stays_silent, seconds=0.3)
    assert "no answer within 0.3 s" in error.message
    assert time.monotonic() - begin < 2.0


def drip(sock: socket.socket) -> None:
    """A reply of one byte at a time, each well within a socket's own timeout."""
    with contextlib.suppress(OSError):
        read_request(sock)
        sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
        stop = threading.Event()
        for _ in range(200):
            sock.sendall(b" ")
            stop.wait(0.02)


def test_drip_costs_no_more_than_the_time_it_was_given() -> None:
    """One byte at a time resets a socket's own timeout, not ours."""
    begin = time.monotonic()
    assert "no answer" in grant_fails(drip, seconds=0.3).message
    assert time.monotonic() - begin < 5.0


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Key and certificate of 127.0.0.1, in one file."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed (apt-get install openssl)")
    folder = tmp_path_factory.mktemp("tls")
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256",
         "-nodes", "-keyout", "key", "-out", "certificate", "-days", "1", "-subj", "/CN=etcd",
         "-addext", "subjectAltName=IP:127.0.0.1"],
        check=True, capture_output=True, cwd=folder,
    )  # fmt: skip
    both = folder / "both"
    both.write_text((folder / "key").read_text() + (folder / "certificate").read_text())
    return both


def behind_tls(
    serve: Callable[[socket.socket], None], certificate: Path
) -> Callable[[socket.socket], None]:
    """The same, for those who come with TLS."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)

    def serve_tls(sock: socket.socket) -> None:
        with contextlib.suppress(OSError), context.wrap_socket(sock, server_side=True) as tls:
            serve(tls)

    return serve_tls


def test_a_connection_with_tls_is_kept_and_opened_again(certificate: Path) -> None:
    """Two answers a connection, three calls: the third finds it closed."""
    with listener(behind_tls(answers(granted(), granted()), certificate)) as port:
        address = EtcdAddress((("127.0.0.1", port),), tls=True, ca_file=str(certificate))
        etcd = EtcdClient(address)
        assert [etcd.grant(5, 5.0) for _ in range(3)] == [(7, 5)] * 3
        etcd.close()


def test_drip_through_tls_costs_no_more_either(certificate: Path) -> None:
    """What is encrypted has the same deadline."""
    with listener(behind_tls(drip, certificate)) as port:
        address = EtcdAddress((("127.0.0.1", port),), tls=True, ca_file=str(certificate))
        with pytest.raises(EtcdUnreachable, match="no answer"):
            EtcdClient(address).grant(5, 0.3)


def test_endless_reply_is_cut() -> None:
    """No reply of etcd to us is larger than 4 MiB."""

    def flood(sock: socket.socket) -> None:
        with contextlib.suppress(OSError):
            read_request(sock)
            sock.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
            for _ in range(80):
                sock.sendall(b" " * 65536)

    assert not grant_fails(flood).retryable


def test_next_endpoint_is_asked_and_kept() -> None:
    """One member down must not cost time at every call."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        dead = server.getsockname()[1]
    with listener(answers(granted(), granted())) as port:
        etcd = client(dead, port)
        assert etcd.grant(5, 5.0) == (7, 5)
        assert etcd.grant(5, 5.0) == (7, 5)
        etcd.close()


def test_silent_endpoint_leaves_time_for_the_next() -> None:
    """The budget is shared."""
    with listener(stays_silent) as silent, listener(
        answers(granted())
    ) as port:  # fmt: skip
        assert grant(silent, port, seconds=2.0) == (7, 5)


def test_endpoints_of_two_clusters_are_refused() -> None:
    """Two clusters would elect two coordinators."""
    with listener(answers(granted("2"))) as two:
        with listener(answers(granted("1"))) as one:
            etcd = client(one, two)
            etcd.grant(5, 5.0)
        with pytest.raises(EtcdError, match="belongs to another cluster"):
            etcd.grant(5, 5.0)
        etcd.close()


def test_connection_closed_by_a_restart_is_opened_again() -> None:
    """A kept connection is dead after etcd's restart; that is no failure."""
    with listener(answers(granted())) as port:
        etcd = client(port)
        assert [etcd.grant(5, 5.0) for _ in range(3)] == [(7, 5)] * 3
        etcd.close()


def test_expired_token_is_renewed() -> None:
    """etcd forgets simple tokens when it restarts."""
    token = http({"token": "t1"})
    expired = http({"error": "etcdserver: invalid auth token", "code": 16}, "401 Unauthorized")
    with listener(answers(token, granted(), expired, token, granted())) as port:
        etcd = EtcdClient(EtcdAddress((("127.0.0.1", port),), user="u", password="p"))
        assert etcd.grant(5, 5.0) == (7, 5)
        assert etcd.grant(5, 5.0) == (7, 5)
        etcd.close()


def test_proxies_are_not_honoured(monkeypatch: pytest.MonkeyPatch) -> None:
    """A company's http_proxy must not carry the heartbeat of a job."""
    for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    with listener(answers(granted())) as port:
        assert grant(port) == (7, 5)
