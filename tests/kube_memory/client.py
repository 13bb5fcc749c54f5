"""MemoryClient: the KubeClient of a MemoryServer. Decoding and faults here, rules there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from kube_memory.faults import Call
from kube_memory.refusals import again
from paddock.kube.client import Change, Page

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping

    from kube_memory.server import MemoryServer
    from kube_memory.store import Stored
    from paddock.kube.client import Manifest, PatchKind, Query, Resource, Warn

T = TypeVar("T")


class MemoryClient:
    """One client of the server in memory; make it with ``MemoryServer.client``.

    pause: awaited before each call reaches the server and again before its answer comes back, so
    that a test can decide who goes first, or end the caller between the two.
    """

    def __init__(
        self,
        server: MemoryServer,
        name: str,
        *,
        idle_seconds: float,
        pause: Callable[[], Awaitable[None]],
    ) -> None:
        self.name = name
        self._server = server
        self._idle_seconds = idle_seconds
        self._pause = pause

    async def get(self, resource: Resource[T], namespace: str, name: str) -> T:
        """One object. Raises KubeError 404 when it is not there."""
        call = Call("get", resource, namespace, name, client=self.name)
        stored = await self._asked(call, lambda: self._server.get(resource, namespace, name))
        return stored.read(resource.shape)

    async def page(
        self, resource: Resource[T], query: Query, *, resource_version: str = "", rest: str = ""
    ) -> Page[T]:
        """A page of a list, from a snapshot. resource_version "0": all at once, as the cache."""
        call = Call("list", resource, query.namespace, client=self.name)
        found, version, token = await self._asked(
            call, lambda: self._server.page(resource, query, resource_version, rest)
        )
        return Page(tuple(one.read(resource.shape) for one in found), str(version), token)

    async def watch(
        self, resource: Resource[T], query: Query, *, resource_version: str, timeout_seconds: float
    ) -> AsyncGenerator[Change[T], None]:
        """Changes after that version, until the server's clock ends it."""
        call = Call("watch", resource, query.namespace, client=self.name)
        stream = await self._asked(
            call,
            lambda: self._server.open_watch(
                resource, query, resource_version, timeout_seconds,
                client=self.name, idle_seconds=self._idle_seconds,
            ),
        )  # fmt: skip
        try:
            async for kind, text in stream.items():
                yield Change(kind, msgspec.json.decode(text, type=resource.shape))
        finally:
            self._server.close_watch(stream)

    async def create(
        self, resource: Resource[T], namespace: str, manifest: Manifest, *,
        dry_run: bool = False, warn: Warn | None = None,
    ) -> T:  # fmt: skip
        """Create; the object as stored."""
        metadata: Any = manifest.get("metadata")
        name = str(metadata.get("name", "")) if isinstance(metadata, dict) else ""
        call = Call(
            "create", resource, namespace, name,
            client=self.name, dry_run=dry_run, content=manifest,
        )  # fmt: skip
        stored = await self._asked(
            call,
            lambda: self._server.create(resource, namespace, manifest, dry_run=dry_run, warn=warn),
        )
        return stored.read(resource.shape)

    async def patch(
        self,
        resource: Resource[T],
        namespace: str,
        name: str,
        change: Mapping[str, object] | list[object],
        *,
        kind: PatchKind = "merge",
        subresource: str = "",
    ) -> T:
        """Change part of an object. apply: see patches.applied for how it is simpler."""
        call = Call(
            "patch", resource, namespace, name, subresource, client=self.name, content=change
        )
        stored: Stored = await self._asked(
            call,
            lambda: self._server.patch(
                resource, namespace, name, change, kind=kind, subresource=subresource
            ),
        )
        return stored.read(resource.shape)

    async def delete(
        self,
        resource: Resource[T],
        namespace: str,
        name: str,
        *,
        uid: str = "",
        grace_seconds: int | None = None,
    ) -> None:
        """Delete in the background; with uid, only that very object (409 otherwise)."""
        call = Call("delete", resource, namespace, name, client=self.name)
        await self._asked(
            call,
            lambda: self._server.delete(
                resource, namespace, name, uid=uid, grace_seconds=grace_seconds
            ),
        )

    async def close(self) -> None:
        """End this client's watches, as closing the connections does."""
        self._server.drop_watches(lambda stream: stream.client == self.name)

    async def _asked(self, call: Call, carry_out: Callable[[], T]) -> T:
        await self._pause()
        self._server.count(call)
        rule = self._server.faults.take(call)
        if rule is not None and not rule.lost:
            raise again(rule.error)
        answer = carry_out()
        await self._pause()
        if rule is not None:
            raise again(rule.error)
        return answer
