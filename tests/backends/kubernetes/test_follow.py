"""A log that is followed: whatever breaks on the way, every line comes once."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec
import pytest

from kube.scripted import answer, stream, talking
from paddock.backends.kubernetes import follow
from paddock.backends.kubernetes.parse import INDEX_LABELS, LOST, ObservedJob
from paddock.backends.types import LogQuery
from paddock.errors import UsageError
from paddock.kube.objects import Pod

if TYPE_CHECKING:
    from paddock.kube.http_client import HttpClient

RUNS = {"metadata": {"name": "a-0-xyz"}, "status": {"phase": "Running"}}
ENDED = {"metadata": {"name": "a-0-xyz"}, "status": {"phase": "Succeeded"}}
FIRST = b"2026-01-01T00:00:05.1Z [rank 0] one\n"
SAME = b"2026-01-01T00:00:05.1Z [rank 0] and one\n"
LATER = b"2026-01-01T00:00:05.9Z [rank 0] two\n"


async def no_look(_client: HttpClient) -> ObservedJob:
    raise AssertionError("nobody looks")


def test_a_stream_that_breaks_is_taken_up_where_it_broke(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server is asked from the second on, and what was seen of that second is left out."""
    monkeypatch.setattr(follow, "POLL_SECONDS", 0.0)
    scripts = (
        stream(FIRST, SAME, ends=False), answer(200, RUNS),
        stream(FIRST, SAME, LATER), answer(200, ENDED),
    )  # fmt: skip

    async def scenario() -> tuple[list[bytes], list[str]]:
        async with talking(*scripts) as (server, client):
            pod = msgspec.convert(RUNS, Pod)
            pieces = follow.PodLogs(client, "ml", no_look, LogQuery(follow=True)).pieces("a-0", pod)
            said = [piece.data async for piece in pieces]
            return said, [asked.query.get("sinceTime", "") for asked in server.asked]

    said, since = asyncio.run(scenario())
    assert said == [b"one\n", b"and one\n", b"two\n"]
    assert since == ["", "", "2026-01-01T00:00:05Z", ""]


def test_pods_whose_logs_cannot_be_read_do_not_keep_back_the_others() -> None:
    """They are named when all others have been told, and a node that is lost is not waited for."""
    lost = [{"type": "Ready", "status": "False"}, {"type": "ContainersReady", "status": "True"}]
    pods = [
        msgspec.convert({
            "metadata": {"name": f"a-{i}-xyz", "labels": {INDEX_LABELS[0]: str(i)}},
            "status": {"phase": "Running", "conditions": lost if i == 2 else []},
        }, Pod)
        for i in range(3)
    ]  # fmt: skip
    seen = ObservedJob("job", {}, pods, ("a-0", "a-1", "a-2"), {"worker": 1}, 1.0)

    async def look(_client: HttpClient) -> ObservedJob:
        return seen

    async def scenario() -> tuple[list[bytes], str, int]:
        said = []
        async with talking(answer(500, {"message": "no route"}), stream(FIRST)) as (server, client):
            try:
                async for piece in follow.PodLogs(client, "ml", look, LogQuery()).whole():
                    said.append(piece.data)
            except UsageError as error:
                return said, str(error), len(server.asked)
        raise AssertionError("nobody was told")

    said, told, asked = asyncio.run(scenario())
    assert (said, asked) == ([b"one\n"], 2)
    assert "logs of a-0: " in told and f"logs of a-2: {LOST}" in told
