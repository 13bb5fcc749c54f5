"""A cluster in memory with operators in it, in made-up time; and somebody who writes down all."""

from __future__ import annotations

import asyncio
from random import Random
from typing import TYPE_CHECKING, Any

from kube_memory import MemoryServer
from machine import toy
from paddock.kube.client import PADDLE_JOBS, PODS, Query
from paddock.operator.names import LABEL_ATTEMPT
from paddock.operator.options import OperatorOptions
from paddock.operator.run import Operator
from paddock.operator.runtime.log import Logger

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from machine.virtual import VirtualClock
    from paddock.kube.client import KubeClient, Manifest
    from paddock.operator.runtime.controller import Reconcile

QUIET = OperatorOptions(metrics_bind_address="0", health_probe_bind_address="0")
ELECTED = OperatorOptions(
    metrics_bind_address="0",
    health_probe_bind_address="0",
    leader_elect=True,
    leader_election_namespace="paddle-system",
)


class Copy:
    """One operator process."""

    def __init__(self, world: World, operator: Operator) -> None:
        self.operator = operator
        self._world = world
        self._stop = asyncio.Event()
        self.task = asyncio.ensure_future(operator.run(self._stop))

    def kill(self) -> None:
        """SIGKILL: nothing more is done, nothing is said."""
        self.task.cancel()

    async def stop(self) -> None:
        """SIGTERM."""
        self._stop.set()
        await self.task


class World:
    """The server ticks once a second; its kubelets act only when a test says so."""

    def __init__(self, clock: VirtualClock, *, seed: int = 0) -> None:
        self.clock = clock
        self.rng = Random(seed)
        self.server = MemoryServer(now=clock.now)
        self.lines: list[str] = []
        self.log = Logger(self.lines.append, clock, level="debug", form="text")
        self.made: list[tuple[str, str]] = []  # (pod, attempt), in the order they were made
        self._tasks = [
            asyncio.ensure_future(self._tick()), asyncio.ensure_future(self._write_down())
        ]  # fmt: skip

    def start(
        self,
        name: str = "operator-0",
        *,
        reconcile: Reconcile = toy.reconcile,
        options: OperatorOptions = QUIET,
        client: KubeClient | None = None,
        pause: Callable[[], Awaitable[None]] | None = None,
    ) -> Copy:
        """Start an operator. client: its own by default, paused as it is told."""
        if client is None:
            client = self.server.client(name, pause=pause) if pause else self.server.client(name)
        operator = Operator(
            client, options, reconcile,
            clock=self.clock, rng=self.rng, log=self.log, identity=name,
        )  # fmt: skip
        return Copy(self, operator)

    def submit(self, name: str, replicas: int, **spec: object) -> None:
        """A user makes a job."""
        self.server.create(PADDLE_JOBS, "ml", toy.job_manifest(name, replicas, **spec))

    def job(self, name: str) -> dict[str, Any]:
        """A job as it is now."""
        return self.server.get(PADDLE_JOBS, "ml", name).document

    def status(self, name: str) -> dict[str, Any]:
        """Its status."""
        found: dict[str, Any] = self.job(name).get("status") or {}
        return found

    def pods(self) -> list[str]:
        """Names of all pods."""
        return [str(p.document["metadata"]["name"]) for p in self.server.all(PODS, "ml")]

    def run_pods(self) -> None:
        """Every pod that is not going runs."""
        self._each_pod(self.server.kubelet.run)

    def succeed_pods(self) -> None:
        """Every pod that is not going has succeeded."""
        self._each_pod(self.server.kubelet.succeed)

    def writes(self) -> int:
        """Writes that clients asked for so far, those on leases apart."""
        return sum(
            count
            for (verb, kind, _), count in self.server.counts.items()
            if verb in ("create", "patch", "delete") and not kind.startswith("leases")
        )

    def _each_pod(self, do: Callable[[str], None]) -> None:
        for stored in self.server.all(PODS, "ml"):
            metadata = stored.document["metadata"]
            if not metadata.get("deletionTimestamp"):
                do(f"ml/{metadata['name']}")

    async def _tick(self) -> None:
        while True:
            await self.clock.sleep(1.0)
            self.server.tick()

    async def _write_down(self) -> None:
        """A watch of its own that no fault ends."""
        witness = self.server.client("witness")
        async for change in witness.watch(
            PODS, Query(), resource_version="0", timeout_seconds=1e12
        ):
            if change.kind == "added":
                meta = change.object.metadata
                self.made.append((meta.name, meta.label(LABEL_ATTEMPT)))


def patch_job(world: World, name: str, change: Manifest) -> None:
    """A user edits a job."""
    world.server.patch(PADDLE_JOBS, "ml", name, change)
