"""Logs of pods, and whether a kind is served: what is sent, and what comes of every answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kube.scripted import after, answer, refusal, stream
from paddock.kube.client import PADDLE_JOBS, PODS, KubeError

if TYPE_CHECKING:
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


def test_a_kind_is_served_when_its_group_lists_it() -> None:
    listed = {"kind": "APIResourceList", "resources": [{"name": "paddlejobs"}]}
    asked, found = after(answer(200, listed), lambda client: client.serves(PADDLE_JOBS))
    assert asked.path == "/apis/batch.paddlepaddle.org/v1"
    assert found is True


def test_a_kind_that_nobody_installed_is_not_served() -> None:
    _, found = after(refusal(404, "NotFound", "no"), lambda client: client.serves(PADDLE_JOBS))
    assert found is False
