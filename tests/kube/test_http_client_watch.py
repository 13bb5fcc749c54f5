"""Watches of the real client against a scripted server: cut, half-sent, silent, endless."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kube.scripted import ADDED, after, event, refusal, silence, stream, talking, watched
from paddock.kube.client import PODS, Query
from paddock.kube.http_client import LINE_MAX, HttpOptions


def test_watch_asks_for_bookmarks_and_an_end() -> None:
    """Bookmarks keep the version young; the end lets load balancers move watches."""
    asked, (seen, error) = after(stream(ADDED), watched)
    assert asked.query == {
        "labelSelector": "a=b", "watch": "true", "allowWatchBookmarks": "true",
        "timeoutSeconds": "300", "resourceVersion": "5",
    }  # fmt: skip
    assert error is None
    assert [(c.kind, c.object.metadata.name) for c in seen] == [("added", "a")]


def test_events_may_be_cut_anywhere() -> None:
    """Chunks end where the network likes, in the middle of a character too."""
    text = ADDED + event("MODIFIED", {"metadata": {"name": "ü"}}) + b"\n"
    whole = text.replace(b"\\u00fc", "ü".encode())
    pieces = [whole[i : i + 1] for i in range(len(whole))]
    _, (seen, error) = after(stream(*pieces), watched)
    assert error is None
    assert [c.object.metadata.name for c in seen] == ["a", "ü"]


def test_unicode_line_ends_do_not_end_an_event() -> None:
    """JSON allows them in text, and a pod's log may hold them; str.splitlines would split there."""
    text = '{"type":"ADDED","object":{"metadata":{"name":"a\u0085b\u2028c"}}}\n'.encode()
    _, (seen, error) = after(stream(text), watched)
    assert error is None
    assert seen[0].object.metadata.name == "a\u0085b\u2028c"


def test_bookmark_of_the_end_of_the_list_is_decoded() -> None:
    """Its object is empty but for the version: `"containers": null`."""
    document = {
        "metadata": {"resourceVersion": "12", "creationTimestamp": None},
        "spec": {"containers": None},
        "status": {},
    }
    _, (seen, _) = after(stream(event("BOOKMARK", document)), watched)
    assert (seen[0].kind, seen[0].object.metadata.resourceVersion) == ("bookmark", "12")


def test_error_event_is_raised_with_its_code() -> None:
    """A compacted version comes as 200 and then this; the caller lists again."""
    status = {"kind": "Status", "code": 410, "reason": "Gone", "message": "too old"}
    _, (seen, error) = after(stream(ADDED, event("ERROR", status)), watched)
    assert len(seen) == 1
    assert error is not None
    assert (error.status, error.reason) == (410, "Expired")


def test_refused_watch_is_raised() -> None:
    """Old servers answer 410 before the stream begins, and any may answer 429."""
    _, (_, error) = after(refusal(410, "Expired", "too old"), watched)
    assert error is not None
    assert (error.status, error.reason) == (410, "Expired")


@pytest.mark.parametrize("tail", [b'{"type":"ADDED","obj', b""])
def test_cut_connection_is_raised_after_what_came(tail: bytes) -> None:
    """The API server was killed: what came before is good, the rest is not known."""
    pieces = [ADDED, tail] if tail else [ADDED]
    _, (seen, error) = after(stream(*pieces, ends=False), watched)
    assert len(seen) == 1
    assert error is not None
    assert error.status == 0


def test_end_within_an_event_is_raised() -> None:
    """A proxy ended the stream politely in the middle of a line."""
    _, (seen, error) = after(stream(ADDED, ADDED[:20]), watched)
    assert len(seen) == 1
    assert error is not None
    assert "within an event" in error.message


def test_event_without_end_has_a_limit() -> None:
    """Memory must not fill with what is no event."""
    piece = b"x" * (1024 * 1024)
    _, (_, error) = after(stream(*([piece] * (LINE_MAX // len(piece) + 2))), watched)
    assert error is not None
    assert str(LINE_MAX) in error.message


def test_dead_watch_is_noticed() -> None:
    """A half-open connection says nothing for ever; peers lost hours of events to one."""
    _, (seen, error) = after(silence, watched, HttpOptions(idle_seconds=0.05))
    assert seen == []
    assert error is not None
    assert (error.status, error.reason) == (0, "Unreachable")
    assert "nothing came for 0.05 s" in error.message


def test_line_that_is_no_event_is_an_error() -> None:
    """Better list again than to go on with a change missing."""
    _, (_, error) = after(stream(b"hello\n"), watched)
    assert error is not None
    assert error.reason == "Malformed"


def test_leaving_a_watch_closes_its_connection() -> None:
    """A reflector that starts again must not leave a stream behind each time."""

    async def scenario() -> bool:
        async def held(asked: Any, writer: asyncio.StreamWriter) -> None:
            await stream(ADDED, ends=False)(asked, writer)
            await asyncio.wait_for(closed.wait(), 10)

        closed = asyncio.Event()
        async with talking(held) as (server, client):
            changes = client.watch(PODS, Query(), resource_version="1", timeout_seconds=300)
            assert (await anext(changes)).kind == "added"
            await changes.aclose()  # type: ignore[attr-defined]  # an async generator
            closed.set()
            await asyncio.wait_for(server.gone.wait(), 10)
            return server.gone.is_set()

    assert asyncio.run(scenario())
