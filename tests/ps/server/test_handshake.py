"""Greetings: the right job, the right token, both sides; and refusals as they travel."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from paddock.ps.connection import FrameConnection, Identity
from paddock.ps.wire.errors import RequestError
from paddock.ps.wire.frames import Header, Op
from paddock.ps.wire.handshake import (
    Hello,
    Welcome,
    greeting_from,
    proof_of,
    same,
)
from paddock.ps.wire.values import to_body
from ps.client.running import fleet
from ps.running import eventually

HELLO = Hello("1", "ads", 3, 7, "pull", "00" * 16)
WELCOME = Welcome("1", "ads", 0, 2, "ab", 1, "primary", "name", "c0", "p0")


def test_greetings_come_back_as_they_went() -> None:
    """Both of them, by every field."""
    assert greeting_from(Hello, to_body(HELLO)) == HELLO
    assert greeting_from(Welcome, bytearray(to_body(WELCOME))) == WELCOME


def test_a_newer_greeting_is_understood() -> None:
    """A field that is not known here is no reason to part."""
    data = {**json.loads(to_body(HELLO)), "colour": "blue"}
    assert greeting_from(Hello, json.dumps(data).encode()) == HELLO


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b"\xff", b'{"version": "1"}', b"3"])
def test_what_is_no_greeting_is_refused(body: bytes) -> None:
    """With the advice to install the same version."""
    for kind in (Hello, Welcome):
        with pytest.raises(RequestError, match="greeting") as caught:
            greeting_from(kind, body)
        assert "install the same paddock" in caught.value.hint


def test_proofs_depend_on_everything_they_cover() -> None:
    """Token, side, nonce and challenge."""
    proofs = {
        proof_of(token, side, nonce, challenge)
        for token in (b"a", b"b")
        for side in ("server", "trainer")
        for nonce in ("00", "01")
        for challenge in ("00", "01")
    }
    assert len(proofs) == 16
    assert same("ab", "ab") and not same("ab", "ac") and not same("ü", "u")


@pytest.mark.parametrize("code", ["usage", "lost", "internal"])
def test_a_refusal_travels_whole(code: str) -> None:
    """Code, sentence, hint, facts and exit code."""
    sent = RequestError(code, "no", hint="do", facts={"n": 1})  # type: ignore[arg-type]
    got = RequestError.from_body(sent.to_body())
    assert (got.code, got.message, got.hint, got.facts) == (code, "no", "do", {"n": 1})
    assert got.exit_code == (2 if code == "usage" else 125)


def link(
    endpoint: str, token: bytes = b"", job: str = "ads", purpose: str = "pull"
) -> FrameConnection:
    """A link of trainer 0."""
    return FrameConnection(endpoint, Identity(job, 0, 1, "1", token), purpose, 5.0)


@pytest.fixture
def token_file(tmp_path: Path) -> Path:
    """A file with the secret."""
    path = tmp_path / "token"
    path.write_text("secret\n")
    return path


def test_the_right_token_is_let_in(token_file: Path) -> None:
    """White space around it does not count."""
    with fleet(1, "--job=ads", f"--token-file={token_file}") as servers:
        one = link(servers.endpoints, b"secret")
        one.stream.send(Header(Op.STATUS), b"{}")
        assert json.loads(bytes(one.receive()[1]))["job"] == "ads"
        one.close()


@pytest.mark.parametrize(
    ("token", "message"), [(b"", "asks for a token"), (b"guess", "token is not the server's")]
)
def test_a_wrong_token_is_kept_out(
    token_file: Path, token: bytes, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The client sees that the server's proof is not by its token, and sends nothing."""
    with fleet(1, "--job=ads", f"--token-file={token_file}") as servers:
        with pytest.raises(RequestError, match=message):
            link(servers.endpoints, token)
        said: list[str] = []
        told = "refused: it knows no token, or another one"
        eventually(lambda: said.append(capsys.readouterr().err) or told in "".join(said), told)


def test_a_client_that_skips_the_proof_is_kept_out(token_file: Path) -> None:
    """What it asks for instead is not done."""
    with fleet(1, "--job=ads", f"--token-file={token_file}") as servers:
        one = link(servers.endpoints, b"secret")
        one.close()
        raw = FrameConnection.__new__(FrameConnection)
        raw.endpoint = servers.endpoints
        from paddock.ps.stream import FrameStream, connect

        stream = FrameStream(connect("127.0.0.1", servers.ports[0], 5.0), 5.0)
        stream.send(Header(Op.HELLO), to_body(HELLO))
        stream.receive()
        stream.send(Header(Op.CREATE), b"{}")
        _, body = stream.receive()
        stream.close()
        assert json.loads(bytes(body))["code"] == "auth"
        assert servers.servers[0].store.tables == []


def test_a_token_where_the_server_has_none_is_an_error() -> None:
    """It might not be the server that was meant."""
    with (
        fleet(1, "--job=ads") as servers,
        pytest.raises(RequestError, match="asks for no token"),
    ):
        link(servers.endpoints, b"secret")


def test_a_trainer_of_another_job_is_refused() -> None:
    """Both jobs are named; an admin may look."""
    with fleet(1, "--job=ads") as servers:
        with pytest.raises(RequestError, match="serves job 'ads', trainer 0 is of job 'news'"):
            link(servers.endpoints, job="news")
        look = link(servers.endpoints, job="news", purpose="admin")
        look.stream.send(Header(Op.CREATE), b"{}")
        with pytest.raises(RequestError, match="this order is for job 'news'"):
            look.receive()
        look.close()


def test_an_order_before_the_greeting_is_refused() -> None:
    """The connection ends."""
    from paddock.ps.stream import ConnectionClosed, FrameStream, connect

    with fleet(1) as servers:
        stream = FrameStream(connect("127.0.0.1", servers.ports[0], 5.0), 5.0)
        stream.send(Header(Op.STATUS), b"{}")
        assert json.loads(bytes(stream.receive()[1]))["code"] == "auth"
        with pytest.raises(ConnectionClosed):
            stream.receive()
        stream.close()
