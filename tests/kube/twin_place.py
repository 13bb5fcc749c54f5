"""Where the checks of client_twins.py run, and what they are made of."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import pytest

from paddock.kube.client import (
    Change,
    KubeClient,
    KubeError,
    Query,
    Resource,
)
from paddock.kube.objects import PaddleJob

if TYPE_CHECKING:
    from collections.abc import Awaitable

T = TypeVar("T")
WAIT_SECONDS = 60.0

# A custom kind with a status subresource and no schema; its definition is TWIN_DEFINITION.
TWINS = Resource("test.paddlepaddle.org", "v1", "twins", "Twin", PaddleJob)
NOT_SERVED = Resource("test.paddlepaddle.org", "v1", "nothings", "Nothing", PaddleJob)
ANYTHING = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
TWIN_DEFINITION: dict[str, object] = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "twins.test.paddlepaddle.org"},
    "spec": {
        "group": "test.paddlepaddle.org",
        "scope": "Namespaced",
        "names": {"plural": "twins", "singular": "twin", "kind": "Twin"},
        "versions": [{
            "name": "v1", "served": True, "storage": True, "subresources": {"status": {}},
            "schema": {"openAPIV3Schema": {
                "type": "object", "properties": {"spec": ANYTHING, "status": ANYTHING},
            }},
        }],
    },
}  # fmt: skip


class Place(Protocol):
    """Where a check runs, and what no client can do."""

    namespace: str

    async def pass_time(self, seconds: float) -> None:
        """Let that time pass, for a server in memory by moving its clock."""

    async def set_quota(self, pods: int) -> None:
        """Allow so many pods here; comes back when it is in force."""

    async def compact(self) -> None:
        """Forget all history."""


# ------------------------------------------------------------------------------------- builders


def twin(name: str = "a", **more: Any) -> dict[str, object]:
    """A Twin. more: metadata, spec, status."""
    metadata = {"name": name} | more.pop("metadata", {})
    return {"metadata": metadata, "spec": {"x": 1}, **more}


def pod(name: str = "a", node: str = "", **metadata: Any) -> dict[str, object]:
    """A pod that no scheduler takes; node: one that does not exist, so that nothing runs it."""
    spec: dict[str, Any] = {"containers": [{"name": "main", "image": "none"}]}
    spec |= {"nodeName": node} if node else {"schedulerName": "nobody"}
    return {"metadata": {"name": name, **metadata}, "spec": spec}


def config_map(name: str, **metadata: Any) -> dict[str, object]:
    """A ConfigMap with something in it."""
    return {"metadata": {"name": name, **metadata}, "data": {"a": "b"}}


async def refused(call: Awaitable[object]) -> KubeError:
    """The error of a call that must fail."""
    with pytest.raises(KubeError) as caught:
        await call
    return caught.value


async def changes(
    client: KubeClient, resource: Resource[T], query: Query, version: str, count: int
) -> list[Change[T]]:
    """So many changes after that version, bookmarks aside."""

    async def read() -> list[Change[T]]:
        seen: list[Change[T]] = []
        watch = client.watch(resource, query, resource_version=version, timeout_seconds=300)
        async for change in watch:
            if change.kind != "bookmark":
                seen.append(change)
            if len(seen) == count:
                break
        await watch.aclose()  # type: ignore[attr-defined]  # an async generator
        return seen

    return await asyncio.wait_for(read(), WAIT_SECONDS)


async def version_of(client: KubeClient, place: Place, resource: Resource[Any] = TWINS) -> str:
    """The version of a list, to watch from."""
    return (await client.page(resource, Query(place.namespace))).resource_version
