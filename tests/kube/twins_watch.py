"""Checks of list and watch."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from kube.twin_place import (
    TWINS,
    WAIT_SECONDS,
    changes,
    config_map,
    pod,
    refused,
    twin,
    version_of,
)
from paddock.kube.client import (
    CONFIG_MAPS,
    PODS,
    Change,
    KubeClient,
    Query,
)

if TYPE_CHECKING:
    from kube.twin_place import Place
    from paddock.kube.client import KubeClient
    from paddock.kube.objects import PaddleJob


async def page_by_page_is_one_moment(client: KubeClient, place: Place) -> None:
    """What is created meanwhile is not in the rest, so the version fits all of it."""
    for name in "abcde":
        await client.create(CONFIG_MAPS, place.namespace, config_map(name, labels={"t": "x"}))
    query = Query(place.namespace, labels="t=x", limit=2)
    page = await client.page(CONFIG_MAPS, query)
    await client.create(CONFIG_MAPS, place.namespace, config_map("bb", labels={"t": "x"}))
    names, versions = [], set()
    while True:
        names += [one.metadata.name for one in page.items]
        versions.add(page.resource_version)
        if not page.rest:
            break
        page = await client.page(CONFIG_MAPS, query, rest=page.rest)
    assert names == ["a", "b", "c", "d", "e"]
    assert len(versions) == 1
    seen = await changes(client, CONFIG_MAPS, query, versions.pop(), 1)
    assert seen[0].object.metadata.name == "bb"


async def rest_of_a_list_expires(client: KubeClient, place: Place) -> None:
    """A slow reader has to begin again."""
    for name in "abc":
        await client.create(TWINS, place.namespace, twin(name))
    query = Query(place.namespace, limit=1)
    page = await client.page(TWINS, query)
    await client.create(TWINS, place.namespace, twin("d"))
    await place.compact()
    error = await refused(client.page(TWINS, query, rest=page.rest))
    assert (error.status, error.reason) == (410, "Expired")


async def selectors_choose_by_label_and_field(client: KubeClient, place: Place) -> None:
    """In one namespace or in all."""
    for name, labels in (("a", {"x": "1"}), ("b", {"x": "2", "y": "1"}), ("c", {})):
        await client.create(PODS, place.namespace, pod(name, labels=labels))
    failed = {"status": {"phase": "Failed"}}
    await client.patch(PODS, place.namespace, "b", failed, subresource="status")

    async def names(labels: str = "", fields: str = "", namespace: str = "") -> str:
        query = Query(namespace or place.namespace, labels=labels, fields=fields)
        page = await client.page(PODS, query)
        return "".join(one.metadata.name for one in page.items)

    assert await names(labels="x=1") == "a"
    assert await names(labels="x") == "ab"
    assert await names(labels="!x") == "c"
    assert await names(labels="x in (1, 2),y") == "b"
    assert await names(labels="x notin (1)") == "bc"
    assert await names(labels="x!=2") == "ac"
    assert await names(fields="metadata.name=c") == "c"
    assert await names(fields="status.phase=Failed") == "b"
    assert await names(fields="status.phase!=Failed,metadata.name!=a") == "c"
    everywhere = Query(fields=f"metadata.namespace={place.namespace}")
    assert len((await client.page(PODS, everywhere)).items) == 3
    error = await refused(client.page(PODS, Query(place.namespace, fields="spec.nothing=1")))
    assert (error.status, error.reason) == (400, "BadRequest")
    error = await refused(client.page(PODS, Query(place.namespace, labels="a b")))
    assert error.status == 400


async def watch_tells_every_change_in_order(client: KubeClient, place: Place) -> None:
    """Versions only grow, and the last state of what was deleted comes with a new one."""
    version = await version_of(client, place)
    await client.create(TWINS, place.namespace, twin())
    await client.patch(TWINS, place.namespace, "a", {"spec": {"x": 2}})
    await client.patch(TWINS, place.namespace, "a", {"status": {"n": 1}}, subresource="status")
    await client.delete(TWINS, place.namespace, "a")
    await client.create(TWINS, place.namespace, twin())
    seen = await changes(client, TWINS, Query(place.namespace), version, 5)
    assert [change.kind for change in seen] == [
        "added", "modified", "modified", "deleted", "added",
    ]  # fmt: skip
    versions = [int(change.object.metadata.resourceVersion) for change in seen]
    assert versions == sorted(set(versions))
    assert (seen[3].object.spec, seen[3].object.status) == ({"x": 2}, {"n": 1})
    assert seen[3].object.metadata.uid != seen[4].object.metadata.uid


async def watch_that_is_open_tells_what_happens_then(client: KubeClient, place: Place) -> None:
    """The usual case: nothing to tell at first."""
    version = await version_of(client, place)
    reading = asyncio.create_task(changes(client, TWINS, Query(place.namespace), version, 2))
    await place.pass_time(0.2)
    await client.create(TWINS, place.namespace, twin())
    await client.delete(TWINS, place.namespace, "a")
    assert [change.kind for change in await reading] == ["added", "deleted"]


async def watch_follows_its_selector(client: KubeClient, place: Place) -> None:
    """What no longer fits is deleted for this watcher, with its new state."""
    version = await version_of(client, place, CONFIG_MAPS)
    query = Query(place.namespace, labels="t=x")
    await client.create(CONFIG_MAPS, place.namespace, config_map("other"))
    await client.create(CONFIG_MAPS, place.namespace, config_map("a"))
    for label in ("x", "y", "x", None):
        change = {"metadata": {"labels": {"t": label}}}
        await client.patch(CONFIG_MAPS, place.namespace, "a", change)
    await client.delete(CONFIG_MAPS, place.namespace, "a")
    await client.create(CONFIG_MAPS, place.namespace, config_map("last", labels={"t": "x"}))
    seen = await changes(client, CONFIG_MAPS, query, version, 5)
    assert [(change.kind, change.object.metadata.name) for change in seen] == [
        ("added", "a"), ("deleted", "a"), ("added", "a"), ("deleted", "a"), ("added", "last"),
    ]  # fmt: skip


async def watch_from_zero_begins_with_what_there_is(client: KubeClient, place: Place) -> None:
    """As added; then it goes on."""
    for name in "ab":
        await client.create(TWINS, place.namespace, twin(name))
    seen = await changes(client, TWINS, Query(place.namespace), "0", 2)
    assert sorted((change.kind, change.object.metadata.name) for change in seen) == [
        ("added", "a"), ("added", "b"),
    ]  # fmt: skip


async def watch_from_too_old_a_version_is_expired(client: KubeClient, place: Place) -> None:
    """The reader lists again."""
    version = await version_of(client, place)
    await client.create(TWINS, place.namespace, twin())
    await place.compact()
    error = await refused(changes(client, TWINS, Query(place.namespace), version, 1))
    while error.status == 429:
        # sleep: a server that was started again fills its memory first, and tells nobody when
        await asyncio.sleep(error.retry_after or 0.1)
        error = await refused(changes(client, TWINS, Query(place.namespace), version, 1))
    assert (error.status, error.reason) == (410, "Expired")


async def watch_ends_when_asked_with_a_bookmark(client: KubeClient, place: Place) -> None:
    """Two seconds before its end a quiet watch is told the version, to go on from there."""
    version = await version_of(client, place)
    await client.create(CONFIG_MAPS, place.namespace, config_map("a"))  # another kind's version

    async def read() -> list[Change[PaddleJob]]:
        query = Query(place.namespace)
        watch = client.watch(TWINS, query, resource_version=version, timeout_seconds=12)
        return [change async for change in watch]

    reading = asyncio.create_task(read())
    for _ in range(13):
        await place.pass_time(1.0)
    seen = await asyncio.wait_for(reading, WAIT_SECONDS)
    assert {change.kind for change in seen} == {"bookmark"}
    assert int(seen[-1].object.metadata.resourceVersion) > int(version)
