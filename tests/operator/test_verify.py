"""`paddock operator check`: what it says of real operators on the API server in memory."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from kube_memory import refusals
from machine.virtual import run_virtual
from machine.world import ELECTED, World
from paddock.errors import PaddockError
from paddock.kube.client import LEASES, PADDLE_JOBS
from paddock.operator.names import LEASE
from paddock.operator.verify import LEADER_SECONDS_MAX, check_operator

if TYPE_CHECKING:
    from machine.virtual import VirtualClock

NAMESPACE = "paddle-system"


def test_a_leader_that_lives_is_named() -> None:
    """After the next renewal, not by what an old record says; each release has its own lease."""

    async def main(clock: VirtualClock) -> None:
        world = World(clock)
        world.start("first", options=ELECTED)
        world.start("other", options=replace(ELECTED, leader_election_id="team-b"))
        await clock.pass_time(5)
        client = world.server.client("check")
        said = await check_operator(client, NAMESPACE, LEASE, [])
        assert said == "first leads and serves the jobs of all namespaces"
        said = await check_operator(client, NAMESPACE, "team-b", ["a", "b"])
        assert said == "other leads and serves the jobs of a, b"

    run_virtual(main)


def test_a_dead_leader_is_none_and_its_successor_is_waited_for() -> None:
    """The lease still names the dead one."""

    async def main(clock: VirtualClock) -> None:
        world = World(clock)
        first = world.start("first", options=ELECTED)
        await clock.pass_time(5)
        first.kill()
        client = world.server.client("check")
        began = clock.monotonic()
        with pytest.raises(PaddockError) as caught:
            await check_operator(client, NAMESPACE, LEASE, [])
        assert caught.value.message == f"nobody renewed lease {NAMESPACE}/{LEASE} for 30 s"
        assert caught.value.exit_code == 1
        assert clock.monotonic() - began <= LEADER_SECONDS_MAX + 1
        first = world.start("third", options=ELECTED)
        await clock.pass_time(5)
        first.kill()
        world.start("second", options=ELECTED)
        assert (await check_operator(client, NAMESPACE, LEASE, [])).startswith("second leads")

    run_virtual(main)


def test_another_lease_that_lives_is_named() -> None:
    """The chart's release has a lease of its own: without --lease its operator seemed dead."""

    async def main(clock: VirtualClock) -> None:
        world = World(clock)
        ours = world.start("ours-0_1", options=replace(ELECTED, leader_election_id="ours"))
        await clock.pass_time(5)
        with pytest.raises(PaddockError) as caught:
            await check_operator(world.server.client("check"), NAMESPACE, LEASE, [])
        said = "ours-0_1 leads by another: --namespace paddle-system --lease ours"
        assert caught.value.hint == said
        ours.kill()
        with pytest.raises(PaddockError) as caught:
            await check_operator(world.server.client("check"), NAMESPACE, LEASE, [])
        assert caught.value.hint.startswith("kubectl -n paddle-system get pods")

    run_virtual(main)


def test_everything_that_is_wrong_is_said_at_once() -> None:
    """No definition, and no right to read the lease."""

    async def main(clock: VirtualClock) -> None:
        world = World(clock)
        world.server.serve(PADDLE_JOBS, served=False)
        world.server.fail(
            refusals.forbidden(LEASES, LEASE, "no"),
            times=None,
            when=lambda call: call.resource is LEASES,
        )
        with pytest.raises(PaddockError) as caught:
            await check_operator(world.server.client("check"), NAMESPACE, LEASE, ["a"])
        first, second = caught.value.message.split("; ")
        assert first.startswith("PaddleJobs of namespace a cannot be listed:")
        assert second.startswith(f"lease {NAMESPACE}/{LEASE} cannot be read:")
        assert caught.value.hint.endswith("paddock operator install")

    run_virtual(main)
