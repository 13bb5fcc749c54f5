"""Logs of pods, commands in them, whether a kind is served: what is sent, and what comes of it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from kube.scripted import after, answer, refusal, stream
from paddock.kube.client import PADDLE_JOBS, PODS, KubeError

if TYPE_CHECKING:
    import asyncio

    from kube.scripted import Asked, Script
    from paddock.kube.http_client import HttpClient


async def lines_of_a(client: HttpClient) -> list[bytes]:
    return [line async for line in client.lines(PODS, "ml", "a", "log", {"follow": "true"})]


def test_lines_are_whole_however_they_come_and_the_last_may_lack_its_end() -> None:
    asked, lines = after(stream(b"one\ntw", b"o\nthr", b"ee"), lines_of_a)
    assert (asked.path, asked.query) == ("/api/v1/namespaces/ml/pods/a/log", {"follow": "true"})
    assert lines == [b"one\n", b"two\n", b"three"]


def test_a_pod_without_a_log_is_a_refusal() -> None:
    _, error = after(refusal(400, "BadRequest", "container is waiting to start"), lines_of_a)
    assert isinstance(error, KubeError)
    assert error.status == 400


def test_a_stream_that_is_cut_is_told() -> None:
    _, error = after(stream(b"one\n", ends=False), lines_of_a)
    assert isinstance(error, KubeError)
    assert error.reason == "Unreachable"


def frames(*parts: tuple[int, bytes]) -> Script:
    """Frames of a WebSocket, each with its channel (RFC 6455, 5.2); the last comes in two parts."""

    async def script(_: Asked, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\n\r\n")
        whole = b""
        for channel, text in parts:
            size = len(text) + 1
            head = bytes([0x82, size]) if size < 126 else b"\x82\x7e" + size.to_bytes(2, "big")
            whole += head + bytes([channel]) + text
        for piece in (whole[:-5], whole[-5:]):
            writer.write(piece)
            await writer.drain()

    return script


@pytest.mark.parametrize("is_well", [True, False])
def test_a_commands_output_is_what_it_wrote_to_stdout(is_well: bool) -> None:
    """Channel 2 is stderr, 3 the Status at the end: a command that fails is an error."""
    end = {"status": "Success"} if is_well else {"status": "Failure", "message": "exit code 3"}
    script = frames((1, b"on"), (2, b"warning"), (1, b"e" * 300), (3, json.dumps(end).encode()))
    asked, found = after(script, lambda client: client.exec("ml", "a", "main", ["cat", "/x"]))
    assert asked.path == "/api/v1/namespaces/ml/pods/a/exec"
    assert (asked.query["container"], asked.headers["upgrade"]) == ("main", "websocket")
    if is_well:
        assert found == b"on" + b"e" * 300
    else:
        assert isinstance(found, KubeError)
        assert found.message.endswith("exit code 3")


def test_a_kind_is_served_when_its_group_lists_it() -> None:
    listed = {"kind": "APIResourceList", "resources": [{"name": "paddlejobs"}]}
    asked, found = after(answer(200, listed), lambda client: client.serves(PADDLE_JOBS))
    assert asked.path == "/apis/batch.paddlepaddle.org/v1"
    assert found is True


def test_a_kind_that_nobody_installed_is_not_served() -> None:
    _, found = after(refusal(404, "NotFound", "no"), lambda client: client.serves(PADDLE_JOBS))
    assert found is False
