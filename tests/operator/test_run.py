"""One operator process: its probes and metrics over HTTP, its election, its beginning and end."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING

import pytest

from kube_memory import MemoryServer
from machine import toy
from machine.world import QUIET
from paddock.errors import UsageError
from paddock.kube.client import PADDLE_JOBS, PODS
from paddock.operator.run import Operator, own_namespace
from paddock.operator.runtime.clock import Clock
from paddock.operator.runtime.log import Logger

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from paddock.operator.options import OperatorOptions


class Run:
    """An operator on this machine's real clock and loop, with a server in memory."""

    def __init__(self, options: OperatorOptions) -> None:
        clock = Clock()
        self.server = MemoryServer(now=clock.now)
        self.lines: list[str] = []
        self.stop = asyncio.Event()
        self._heard = asyncio.Event()
        self.operator = Operator(
            self.server.client(), options, toy.reconcile,
            clock=clock, rng=Random(0), log=Logger(self._hear, clock, level="debug", form="text"),
            identity="operator-0",
        )  # fmt: skip

    async def heard(self, text: str) -> str:
        """The first line with that text."""
        while True:
            for line in self.lines:
                if text in line:
                    return line
            self._heard.clear()
            await asyncio.wait_for(self._heard.wait(), 20)

    async def port(self, path: str) -> int:
        """Where that path is served."""
        line = await self.heard(path)
        return int(line.partition("port=")[2].split()[0])

    async def ask(self, path: str) -> str:
        """What is answered there."""
        reader, writer = await asyncio.open_connection("127.0.0.1", await self.port(path))
        writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        answer = await reader.read()
        writer.close()
        await writer.wait_closed()
        return answer.decode()

    def _hear(self, line: str) -> None:
        self.lines.append(line)
        self._heard.set()


def played(options: OperatorOptions, scene: Callable[[Run], Awaitable[None]]) -> Run:
    """Run an operator while the scene lasts."""

    async def main() -> Run:
        run = Run(options)
        running = asyncio.ensure_future(run.operator.run(run.stop))
        await scene(run)
        run.stop.set()
        await asyncio.wait_for(running, 20)
        return run

    return asyncio.run(main())


def test_probes_and_metrics_are_served() -> None:
    """What the Deployment of deploy/v1 asks for, and what the dashboard draws."""
    options = replace(
        QUIET, metrics_bind_address="127.0.0.1:0", health_probe_bind_address="127.0.0.1:00"
    )

    async def scene(run: Run) -> None:
        await run.heard("working")
        assert (await run.ask("/healthz")).startswith("HTTP/1.1 200")
        assert (await run.ask("/readyz")).startswith("HTTP/1.1 200")
        run.server.create(PADDLE_JOBS, "ml", toy.job_manifest("demo", 2))
        await run.heard("phase")
        text = await run.ask("/metrics")
        for name in (
            'paddock_jobs{phase="Pending"} 1', "paddock_is_leader 1", "paddock_queue_depth",
            "paddock_reconcile_seconds_count", "paddock_api_requests_total{", "paddock_watch_",
            "process_resident_memory_bytes", "paddock_api_request_seconds_bucket{",
            "# TYPE paddock_job_restarts_total", "# TYPE paddock_reconcile_errors_total",
        ):  # fmt: skip
            assert name in text, name
        assert await run.port("/metrics") != await run.port("/healthz")

    run = played(options, scene)
    assert len(run.server.all(PODS, "ml")) == 2


def test_one_address_may_serve_both() -> None:
    """--metrics-bind-address and --health-probe-bind-address are the same."""
    options = replace(
        QUIET, metrics_bind_address="127.0.0.1:0", health_probe_bind_address="127.0.0.1:0"
    )

    async def scene(run: Run) -> None:
        await run.heard("working")
        assert await run.port("/metrics") == await run.port("/healthz")

    played(options, scene)


def test_an_elected_operator_says_whether_it_leads() -> None:
    """The gauge that tells which of the copies works."""
    options = replace(
        QUIET,
        metrics_bind_address="127.0.0.1:0",
        leader_elect=True,
        leader_election_namespace="paddle-system",
    )

    async def scene(run: Run) -> None:
        await run.heard("working")
        assert "paddock_is_leader 1" in await run.ask("/metrics")

    run = played(options, scene)
    assert any("gave the lease back" in line for line in run.lines)


def test_an_address_that_cannot_be_had_ends_the_start() -> None:
    """An operator without its probes would be killed by its kubelet, without a word why."""

    async def main() -> None:
        options = replace(QUIET, health_probe_bind_address="192.0.2.1:1")
        await Run(options).operator.run(asyncio.Event())

    with pytest.raises(UsageError, match="--health-probe-bind-address: cannot listen"):
        asyncio.run(main())


def test_outside_a_pod_the_lease_is_where_the_operator_is_installed() -> None:
    """paddle-system, as the manifests have it."""
    assert own_namespace() == "paddle-system"
