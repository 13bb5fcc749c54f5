"""HttpClient when the real API server is restarted, hangs, or knows us only a little."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from kube.twin_place import config_map, pod, refused
from paddock.kube.client import CONFIG_MAPS, PODS, KubeError, Query
from paddock.kube.connect import find_config
from paddock.kube.http_client import HttpClient, HttpOptions, open_client

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from cluster.control.plane import ControlPlane

LIMIT_SECONDS = 120.0


def with_client(
    kubeconfig: object,
    scenario: Callable[[HttpClient], Awaitable[None]],
    options: HttpOptions | None = None,
) -> None:
    """Run a scenario with a client of that kubeconfig."""

    async def limited() -> None:
        client = open_client(find_config(str(kubeconfig)), options)
        try:
            await asyncio.wait_for(scenario(client), LIMIT_SECONDS)
        finally:
            await client.close()

    asyncio.run(limited())


async def end_of_watch(client: HttpClient, namespace: str, heard: asyncio.Event) -> Any:
    """How a watch of config maps ends that has heard of one; None when the server ended it."""
    version = (await client.page(CONFIG_MAPS, Query(namespace))).resource_version
    making = asyncio.create_task(client.create(CONFIG_MAPS, namespace, config_map("a")))
    try:
        async for _ in client.watch(
            CONFIG_MAPS, Query(namespace), resource_version=version, timeout_seconds=300
        ):
            heard.set()
    except KubeError as error:
        return error
    finally:
        await making
    return None


def test_restarted_server_ends_watches_and_is_found_again(
    plane: ControlPlane, namespace: str
) -> None:
    """Pooled connections of the old one must not make the next calls fail."""

    async def scenario(client: HttpClient) -> None:
        heard = asyncio.Event()
        await asyncio.gather(*(client.page(PODS, Query(namespace)) for _ in range(8)))
        watching = asyncio.create_task(end_of_watch(client, namespace, heard))
        await heard.wait()
        await asyncio.to_thread(plane.restart_apiserver)
        error = await watching
        assert error is None or error.status == 0
        for _ in range(8):
            assert (await client.get(CONFIG_MAPS, namespace, "a")).data == {"a": "b"}

    with_client(plane.kubeconfig, scenario)


def test_stopped_server_is_unreachable_at_once(plane: ControlPlane, namespace: str) -> None:
    """Connections are refused; nothing waits for a limit."""

    async def scenario(client: HttpClient) -> None:
        await client.page(PODS, Query(namespace))
        await asyncio.to_thread(plane.stop_apiserver)
        for _ in range(3):
            error = await refused(client.page(PODS, Query(namespace)))
            assert (error.status, error.reason) == (0, "Unreachable")

    with_client(plane.kubeconfig, scenario)


def test_hanging_server_is_noticed_by_calls_and_watches(
    plane: ControlPlane, namespace: str
) -> None:
    """SIGSTOP keeps connections open and silent, as a node does that lost its power."""

    async def scenario(client: HttpClient) -> None:
        heard = asyncio.Event()
        watching = asyncio.create_task(end_of_watch(client, namespace, heard))
        await heard.wait()
        await asyncio.to_thread(plane.pause_apiserver)
        call, watch = await asyncio.gather(
            refused(client.get(CONFIG_MAPS, namespace, "a")), watching
        )
        assert call.status == 0
        assert watch is not None
        assert "nothing came for 3 s" in watch.message
        await asyncio.to_thread(plane.resume_apiserver)
        assert (await client.get(CONFIG_MAPS, namespace, "a")).data == {"a": "b"}

    with_client(plane.kubeconfig, scenario, HttpOptions(answer_seconds=3.0, idle_seconds=3.0))


def test_stranger_is_forbidden_and_told_what(plane: ControlPlane, namespace: str) -> None:
    """A missing right must name itself: it goes into the operator's log and the job's status."""
    kubeconfig = plane.kubeconfig_as(namespace, "default")

    async def scenario(client: HttpClient) -> None:
        error = await refused(client.create(PODS, namespace, pod()))
        assert (error.status, error.reason, error.retryable) == (403, "Forbidden", False)
        assert 'cannot create resource "pods"' in error.message

    with_client(kubeconfig, scenario)


@pytest.mark.limit(300)
def test_many_calls_at_once_all_arrive(plane: ControlPlane, namespace: str) -> None:
    """A thousand writes and two watches through one client, nothing lost and nothing twice."""

    async def scenario(client: HttpClient) -> None:
        version = (await client.page(CONFIG_MAPS, Query(namespace))).resource_version

        async def names() -> list[str]:
            seen: list[str] = []
            last = version
            while len(seen) < 1000:
                # The server ends the watch of a reader that it finds slow; one goes on from there.
                changes: Any = client.watch(
                    CONFIG_MAPS, Query(namespace, labels="t=x"),
                    resource_version=last, timeout_seconds=300,
                )  # fmt: skip
                async for change in changes:
                    last = change.object.metadata.resourceVersion
                    seen += [change.object.metadata.name] if change.kind == "added" else []
                    if len(seen) == 1000:
                        await changes.aclose()
            return seen

        watching = [asyncio.create_task(names()) for _ in range(2)]
        wanted = [f"c{i}" for i in range(1000)]
        places = asyncio.Semaphore(64)  # the client itself makes no call wait

        async def make(name: str) -> None:
            async with places:
                manifest = config_map(name, labels={"t": "x"})
                await client.create(CONFIG_MAPS, namespace, manifest)

        await asyncio.gather(*map(make, wanted))
        for seen in await asyncio.gather(*watching):
            assert sorted(seen) == sorted(wanted)

    with_client(plane.kubeconfig, scenario)
