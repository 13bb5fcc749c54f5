"""The guard: what is sent, when, and how it is counted."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from kube_memory import MemoryServer, refusals
from machine.virtual import run_virtual
from paddock.kube.client import CONFIG_MAPS, PADDLE_JOBS, KubeError, Query
from paddock.operator.runtime.guard import (
    CALL_SECONDS_MAX,
    IN_FLIGHT_MAX,
    Fence,
    FencedError,
    GuardedClient,
    TokenBucket,
)
from paddock.operator.runtime.metrics import Metrics

if TYPE_CHECKING:
    from machine.virtual import VirtualClock


def guarded(clock: VirtualClock, server: MemoryServer, **more: Any) -> GuardedClient:
    """A guarded client of the server."""
    client = more.pop("client", None) or server.client(**more.pop("of_client", {}))
    parts: dict[str, Any] = {"metrics": Metrics(), "fence": None, "rate": None, **more}
    return GuardedClient(client, clock=clock, **parts)


def named(name: str) -> dict[str, object]:
    """A ConfigMap."""
    return {"metadata": {"name": name}}


def test_no_write_is_sent_once_the_fence_is_shut() -> None:
    """Another operator may lead by then; reads harm nobody."""

    async def main(clock: VirtualClock) -> None:
        server = MemoryServer(now=clock.now)
        fence = Fence(clock, until=10.0)
        client = guarded(clock, server, fence=fence)
        await client.create(CONFIG_MAPS, "ml", named("a"))
        await clock.pass_time(10)
        assert not fence.is_open
        with pytest.raises(FencedError):
            await client.create(CONFIG_MAPS, "ml", named("b"))
        with pytest.raises(FencedError):
            await client.patch(CONFIG_MAPS, "ml", "a", {"data": {"x": "y"}})
        with pytest.raises(FencedError):
            await client.delete(CONFIG_MAPS, "ml", "a")
        page = await client.page(CONFIG_MAPS, Query("ml"))
        assert [o.metadata.name for o in page.items] == ["a"]
        assert (await client.get(CONFIG_MAPS, "ml", "a")).data is None

    run_virtual(main)


def test_the_fence_is_asked_after_all_waiting() -> None:
    """A write that waited for its turn, or for the server, must not slip through."""

    async def main(clock: VirtualClock) -> None:
        server = MemoryServer(now=clock.now)
        fence = Fence(clock, until=2.0)
        client = guarded(clock, server, fence=fence)
        server.fail(refusals.too_many_requests(3.0), times=1)
        with pytest.raises(FencedError):
            await client.create(CONFIG_MAPS, "ml", named("a"))
        fence.until = 8.0
        slow = guarded(clock, server, fence=fence, rate=TokenBucket(rate=0.1, burst=1))
        await slow.create(CONFIG_MAPS, "ml", named("a"))
        with pytest.raises(FencedError):
            await slow.create(CONFIG_MAPS, "ml", named("b"))

    run_virtual(main)


def test_a_busy_server_is_waited_for_as_it_says() -> None:
    """API Priority and Fairness says 429 with Retry-After; that is no failure yet."""

    async def main(clock: VirtualClock) -> float:
        server = MemoryServer(now=clock.now)
        client = guarded(clock, server)
        server.fail(refusals.too_many_requests(2.0), times=3)
        await client.create(CONFIG_MAPS, "ml", named("a"))
        return clock.monotonic()

    assert run_virtual(main) == pytest.approx(6.0)


def test_a_server_that_stays_busy_is_an_error_in_the_end() -> None:
    """Somebody has to be told, and other jobs want the place."""

    async def main(clock: VirtualClock) -> None:
        server = MemoryServer(now=clock.now)
        client = guarded(clock, server)
        server.fail(refusals.too_many_requests(2.0), times=None)
        with pytest.raises(KubeError, match="too many requests"):
            await client.create(CONFIG_MAPS, "ml", named("a"))
        assert server.counts["create", "configmaps", ""] == 4

    run_virtual(main)


def test_a_call_without_an_answer_is_given_up() -> None:
    """A hung connection must not hold a worker for ever."""

    async def main(clock: VirtualClock) -> None:
        async def never() -> None:
            await asyncio.Event().wait()

        server = MemoryServer(now=clock.now)
        client = guarded(clock, server, of_client={"pause": never})
        with pytest.raises(KubeError) as caught:
            await client.create(CONFIG_MAPS, "ml", named("a"))
        assert caught.value.status == 0 and caught.value.retryable
        assert clock.monotonic() == pytest.approx(CALL_SECONDS_MAX)

    run_virtual(main)


@pytest.mark.parametrize("verb", ["create", "get"])
def test_only_so_many_calls_are_in_flight(verb: str) -> None:
    """A thousand pods at once must not be a thousand connections; watches are not counted."""

    async def main(clock: VirtualClock) -> int:
        server = MemoryServer(now=clock.now)
        most = now = 0

        async def pause() -> None:
            nonlocal most, now
            now += 1
            most = max(most, now)
            await clock.pass_time(0.5)
            now -= 1

        client = guarded(clock, server, of_client={"pause": pause})
        for n in range(300 if verb == "get" else 0):
            server.create(CONFIG_MAPS, "ml", named(f"c{n}"))
        words = [(f"c{n}" if verb == "get" else named(f"c{n}"),) for n in range(300)]
        call: Any = getattr(client, verb)
        await asyncio.gather(*(call(CONFIG_MAPS, "ml", *word) for word in words))
        assert len(server.all(CONFIG_MAPS, "ml")) == 300
        return most

    assert run_virtual(main) == IN_FLIGHT_MAX


def test_calls_are_counted_by_their_answers() -> None:
    """What the dashboard shows of the API server's health."""

    async def main(clock: VirtualClock) -> str:
        server = MemoryServer(now=clock.now)
        metrics = Metrics()
        client = guarded(clock, server, metrics=metrics)
        await client.create(CONFIG_MAPS, "ml", named("a"))
        with pytest.raises(KubeError):
            await client.create(CONFIG_MAPS, "ml", named("a"))
        await client.create(PADDLE_JOBS, "ml", named("j"))
        await client.patch(PADDLE_JOBS, "ml", "j", {"status": {}}, subresource="status")
        server.fail(refusals.expired(), when=lambda c: c.verb == "watch")
        with pytest.raises(KubeError):
            async for _ in client.watch(
                CONFIG_MAPS, Query(), resource_version="1", timeout_seconds=1
            ):
                raise AssertionError
        await client.close()
        return metrics.text()

    text = run_virtual(main)
    for line in (
        'paddock_api_requests_total{verb="create",resource="configmaps",code="200"} 1',
        'paddock_api_requests_total{verb="create",resource="configmaps",code="409"} 1',
        'paddock_api_requests_total{verb="watch",resource="configmaps",code="410"} 1',
        'paddock_api_requests_total{verb="patch",resource="paddlejobs/status",code="200"} 1',
        'paddock_api_request_seconds_count{verb="create",resource="configmaps"} 2',
    ):
        assert line in text
