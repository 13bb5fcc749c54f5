"""The server in memory passes the checks of client_twins.py, as the real one does."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from kube.client_twins import CHECKS
from kube.twin_place import NOT_SERVED, WAIT_SECONDS
from kube_memory import MemoryServer

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from kube.twin_place import Place
    from paddock.kube.client import KubeClient


class InMemory:
    """A place on a server in memory, which moves its clock."""

    namespace = "ml"

    def __init__(self) -> None:
        self.now = 1_795_248_000.0
        self.server = MemoryServer(lambda: self.now)
        self.server.serve(NOT_SERVED, False)

    async def pass_time(self, seconds: float) -> None:
        """Move the clock, and let everybody see it."""
        self.now += seconds
        self.server.tick()
        for _ in range(10):
            await asyncio.sleep(0)  # sleep: no time, only a turn for the others

    async def set_quota(self, pods: int) -> None:
        """Allow so many pods."""
        self.server.set_quota(self.namespace, pods)

    async def compact(self) -> None:
        """Forget all history."""
        self.server.compact()


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_server_in_memory_behaves_as_the_real_one(
    check: Callable[[KubeClient, Place], Awaitable[None]],
) -> None:
    """A simulation is worth what its server is; the same check runs on a real API server."""

    async def scenario() -> None:
        place = InMemory()
        await asyncio.wait_for(check(place.server.client(), place), WAIT_SECONDS)
        assert place.server.open_watches == ()

    asyncio.run(scenario())
    assert check.__doc__
