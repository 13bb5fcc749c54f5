"""A server in memory with a clock that tests move."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar

from kube_memory import MemoryServer
from paddock.kube.client import Query

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from paddock.kube.client import Change, Resource

T = TypeVar("T")
LIMIT_SECONDS = 20.0
TURNS = 10  # more than any call takes


class World:
    """The server, a client of it, and the time."""

    def __init__(self) -> None:
        self.now = 1_795_248_000.0
        self.server = MemoryServer(lambda: self.now)
        self.client = self.server.client()

    @classmethod
    def run(cls, scenario: Callable[[World], Awaitable[None]]) -> None:
        """Run a scenario in a world of its own."""

        async def limited() -> None:
            await asyncio.wait_for(scenario(cls()), LIMIT_SECONDS)

        asyncio.run(limited())

    async def turn(self) -> None:
        """Let everybody do what can be done without time."""
        for _ in range(TURNS):
            await asyncio.sleep(0)  # sleep: no time, only a turn for the others

    async def pass_time(self, seconds: float) -> None:
        """Move the clock, and let everybody see it."""
        await self.turn()
        self.now += seconds
        self.server.tick()
        await self.turn()

    def watch(self, resource: Resource[T], version: str = "") -> AsyncIterator[Change[T]]:
        """A watch of all namespaces for 300 s, from now on."""
        start = version or str(self.server.store.version)
        return self.client.watch(resource, Query(), resource_version=start, timeout_seconds=300)


async def taken(watch: AsyncIterator[Change[T]], count: int = 0) -> list[Change[T]]:
    """So many changes of a watch, or all until its end."""
    seen = []
    async for change in watch:
        seen.append(change)
        if len(seen) == count:
            break
    return seen


def pod(name: str, **more: Any) -> dict[str, object]:
    """A pod. more: metadata; spec: more of its spec."""
    spec = {"containers": [{"name": "main", "image": "i"}]} | more.pop("spec", {})
    return {"metadata": {"name": name, **more}, "spec": spec}
