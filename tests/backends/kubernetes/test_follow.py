"""A log that is followed: whatever breaks on the way, every line comes once."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from kube.scripted import answer, stream, talking
from paddock.backends.kubernetes import follow
from paddock.backends.words import Query
from paddock.kube.objects import Pod

RUNS = {"metadata": {"name": "a-0-xyz"}, "status": {"phase": "Running"}}
ENDED = {"metadata": {"name": "a-0-xyz"}, "status": {"phase": "Succeeded"}}
FIRST = b"2026-01-01T00:00:05.1Z [worker 0] one\n"
SAME = b"2026-01-01T00:00:05.1Z [worker 0] and one\n"
LATER = b"2026-01-01T00:00:05.9Z [worker 0] two\n"


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
            pieces = follow._pieces(client, "ml", "a-0", pod, Query(), is_followed=True)
            said = [piece.data async for piece in pieces]
            return said, [asked.query.get("sinceTime", "") for asked in server.asked]

    said, since = asyncio.run(scenario())
    assert said == [b"one\n", b"and one\n", b"two\n"]
    assert since == ["", "", "2026-01-01T00:00:05Z", ""]
