"""Who may speak to a server: tokens, TLS, versions, jobs, and lists of servers."""

from __future__ import annotations

import signal
import socket
import subprocess
import threading
from pathlib import Path

import numpy as np
import pytest

from paddock.errors import PaddockError
from paddock.ps import Client, OptimizerSpec, SparseSpec
from paddock.ps.wire.errors import RequestError
from paddock.ps.wire.frames import (
    HEADER_SIZE,
    VERSION,
    FrameFlag,
    Header,
    Op,
    encode,
)
from paddock.ps.xxh3 import xxh3
from ps.real.proxy import read_frame
from ps.running import inside, running

pytestmark = pytest.mark.real

SPEC = SparseSpec("rows", 4, OptimizerSpec("sgd", lr=1.0))


def works(client: Client) -> bool:
    """Whether a push comes back as it must."""
    client.create(SPEC)
    before = client.pull("rows", [5])
    client.push("rows", [5], np.ones((1, 4)))
    client.flush()
    return bool(np.array_equal(client.pull("rows", [5]), before - 1))


@pytest.fixture
def token(tmp_path: Path) -> Path:
    """A file with a secret."""
    path = tmp_path / "token"
    path.write_text("very secret\n")
    return path


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """(certificate, key), signed by itself."""
    folder = tmp_path_factory.mktemp("tls")
    cert, key = folder / "cert.pem", folder / "key.pem"
    subprocess.run(
        [
            "openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2",
            "-subj", "/CN=paddock", "-keyout", str(key), "-out", str(cert),
        ],
        check=True,
        capture_output=True,
    )  # fmt: skip
    return cert, key


def test_the_right_token_is_let_in(token: Path) -> None:
    """Both sides prove that they know it."""
    with (
        inside(1, 1, f"--token-file={token}") as endpoints,
        Client(endpoints, trainer=0, token_file=str(token)) as client,
    ):
        assert works(client)


def test_a_wrong_or_missing_token_is_refused_at_once(token: Path, tmp_path: Path) -> None:
    """Before anything else is said; the server serves the others."""
    wrong = tmp_path / "wrong"
    wrong.write_text("guess")
    with inside(1, 1, f"--token-file={token}") as endpoints:
        for given, words in ((str(wrong), "token is not the server's"), (None, "asks for a token")):
            with pytest.raises(RequestError, match=words) as caught:
                Client(endpoints, trainer=0, token_file=given)
            assert caught.value.code == "auth" and caught.value.exit_code == 2
        with Client(endpoints, trainer=0, token_file=str(token)) as client:
            assert works(client)


def test_a_server_without_the_token_is_not_trusted(token: Path) -> None:
    """One is set here, so whoever asks for none is not the server that is meant."""
    with inside(1) as endpoints, pytest.raises(RequestError, match="asks for no token"):
        Client(endpoints, trainer=0, token_file=str(token))


def test_a_server_that_proves_nothing_cannot_replay_a_proof(token: Path) -> None:
    """The client says its nonce; without the token no proof fits it."""
    with inside(1, 1, f"--token-file={token}") as (endpoint,):
        host, port = endpoint.split(":")
        with socket.create_connection((host, int(port)), 10) as sock:
            body = (
                b'{"version":"0","job":"default","trainer":0,"incarnation":1,'
                b'"purpose":"push","nonce":"00"}'
            )
            sock.sendall(encode(Header(Op.HELLO), body) + body)
            read_frame(sock)
            push = bytes(8 + 16)
            sock.sendall(encode(Header(Op.PUSH, count=1, sequence=1), push) + push)
            assert b"token" in read_frame(sock)
        with Client([endpoint], trainer=0, token_file=str(token)) as client:
            client.create(SPEC)
            assert client.status()[0]["tables"][0]["step"] == 0


def test_tls_works_and_knows_its_certificate(
    certificate: tuple[Path, Path], token: Path, tmp_path: Path
) -> None:
    """With a token as well; another authority's certificate is refused."""
    cert, key = certificate
    flags = (f"--tls-cert={cert}", f"--tls-key={key}", f"--token-file={token}")
    with inside(2, 1, *flags) as endpoints:
        options = {"trainer": 0, "token_file": str(token)}
        with Client(endpoints, tls_ca=str(cert), **options) as client:
            assert works(client)
            client.push("rows", np.arange(100_000), np.ones((100_000, 4)))
            client.flush()
            assert client.pull("rows", np.arange(100_000)).shape == (100_000, 4)
        other = tmp_path / "other.pem"
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=x",
             "-keyout", str(tmp_path / "k"), "-out", str(other)],
            check=True, capture_output=True,
        )  # fmt: skip
        with pytest.raises(RequestError, match="no TLS") as caught:
            Client(endpoints, tls_ca=str(other), **options)
        assert caught.value.code == "auth"


def test_without_tls_at_one_side_both_learn_why(certificate: tuple[Path, Path]) -> None:
    """At once, not after the client's timeout."""
    cert, key = certificate
    flags = (f"--tls-cert={cert}", f"--tls-key={key}")
    with inside(1, 1, *flags) as endpoints, pytest.raises(RequestError, match="speaks TLS only"):
        Client(endpoints, trainer=0)
    with inside(1) as endpoints, pytest.raises(RequestError, match="no TLS"):
        Client(endpoints, trainer=0, tls_ca=str(cert))


def test_a_silent_server_behind_tls_is_noticed(
    certificate: tuple[Path, Path], tmp_path: Path
) -> None:
    """SIGSTOP: the deadline holds for encrypted connections, too."""
    cert, key = certificate
    flags = (f"--tls-cert={cert}", f"--tls-key={key}")
    with running(tmp_path, 1, 1, *flags) as job:
        client = job.client(tls_ca=str(cert), timeout=5.0)
        assert works(client)
        job.signal(0, signal.SIGSTOP)
        with pytest.raises(PaddockError, match="has not answered for 5 s"):
            client.pull("rows", [1])
        job.signal(0, signal.SIGCONT)
        assert works(client)
        client.close()


def of_version(version: int, header: Header, body: bytes) -> bytes:
    """A frame as another version of the protocol would send it."""
    head = bytearray(encode(header, body))
    head[4] = version
    head[-8:] = xxh3(bytes(head[:-8]), body).to_bytes(8, "little")
    return bytes(head) + body


@pytest.mark.parametrize("version", [VERSION - 1, VERSION + 1])
def test_a_client_of_another_version_is_told_so(version: int) -> None:
    """In a frame that it can read at least the error of."""
    with inside(1) as (endpoint,):
        host, port = endpoint.split(":")
        with socket.create_connection((host, int(port)), 10) as sock:
            sock.sendall(of_version(version, Header(Op.HELLO), b'{"version": "9"}'))
            answer = read_frame(sock)
            assert f"version {version} of the protocol, this side {VERSION}".encode() in answer
            assert b"install the same paddock" in answer
            assert sock.recv(1) == b""
        with Client([endpoint], trainer=0) as client:
            assert works(client)


@pytest.mark.parametrize("version", [VERSION - 1, VERSION + 1])
def test_a_server_of_another_version_is_an_error_at_once(version: int) -> None:
    """A client does not ask it again and again."""

    def answer() -> None:
        sock, _ = listener.accept()
        with sock:
            read_frame(sock)
            sock.sendall(of_version(version, Header(Op.HELLO, int(FrameFlag.ANSWER)), b"{}"))

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=answer)
        thread.start()
        endpoint = f"127.0.0.1:{listener.getsockname()[1]}"
        with pytest.raises(PaddockError, match=f"version {version} of the protocol") as caught:
            Client([endpoint], trainer=0)
        assert "install the same paddock" in caught.value.hint
        thread.join()


def test_something_that_is_no_server_is_an_error() -> None:
    """An HTTP server, say."""

    def answer() -> None:
        sock, _ = listener.accept()
        with sock:
            sock.recv(HEADER_SIZE)
            sock.sendall(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n" + bytes(40))

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(PaddockError, match="does not speak this protocol"):
            Client([f"127.0.0.1:{listener.getsockname()[1]}"], trainer=0)
        thread.join()


def test_a_trainer_of_another_job_is_refused() -> None:
    """Two jobs that were given one port."""
    with inside(1, 1, "--job=mine") as endpoints:
        with pytest.raises(RequestError, match="serves job 'mine', trainer 0 is of job 'yours'"):
            Client(endpoints, trainer=0, job="yours")
        with Client(endpoints, trainer=0, job="mine") as client:
            assert works(client)


def test_a_wrong_list_of_servers_is_refused() -> None:
    """Too short, in another order, or one of another job's."""
    with inside(2) as (zero, one):
        for endpoints in ([zero], [one, zero], [one]):
            with pytest.raises(RequestError) as caught:
                Client(endpoints, trainer=0)
            assert caught.value.code == "usage" and "in the order" in caught.value.hint
        with Client([zero, one], trainer=0) as client:
            assert works(client)
