"""MemoryClient: the KubeClient of a MemoryServer. Decoding and faults here, rules there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from kube_memory.faults import Call
from kube_memory.refusals import again
from paddock.kube.client import Change, KubeClient, Page

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable

    from kube_memory.server import MemoryServer
    from paddock.kube.client import Call as KubeCall

T = TypeVar("T")


class MemoryClient(KubeClient):
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

    async def request(self, call: KubeCall) -> Any:
        """The reply: an object, a Page of a snapshot, None for a delete."""
        answer = await self._asked(Call.of(call, self.name), lambda: self._carry_out(call))
        shape = call.resource.shape
        if call.verb == "list":
            found, version, token = answer
            return Page(tuple(one.read(shape) for one in found), str(version), token)
        return None if answer is None else answer.read(shape)

    async def stream(self, call: KubeCall) -> AsyncGenerator[Change[Any], None]:
        """Changes after that version, until the server's clock ends it."""
        stream = await self._asked(
            Call.of(call, self.name),
            lambda: self._server.open_watch(
                call.resource, call.query, call.resource_version, call.timeout_seconds,
                client=self.name, idle_seconds=self._idle_seconds,
            ),
        )  # fmt: skip
        try:
            async for kind, text in stream.items():
                yield Change(kind, msgspec.json.decode(text, type=call.resource.shape))
        finally:
            self._server.close_watch(stream)

    def _carry_out(self, call: KubeCall) -> Any:
        """An apply is simpler here: see patches.applied."""
        server, at = self._server, (call.resource, call.namespace)
        if call.verb == "get":
            return server.get(*at, call.name)
        if call.verb == "list":
            return server.page(call.resource, call.query, call.resource_version, call.rest)
        if call.verb == "create":
            return server.create(*at, call.body, dry_run=call.dry_run, warn=call.warn)
        if call.verb == "patch":
            return server.patch(
                *at, call.name, call.body, kind=call.kind, subresource=call.subresource
            )
        server.delete(*at, call.name, uid=call.uid, grace_seconds=call.grace_seconds)
        return None

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
