"""The whole runtime on an API server in memory: what must hold whatever happens to either."""

from __future__ import annotations

from typing import TYPE_CHECKING

from machine.virtual import run_virtual
from machine.world import World

if TYPE_CHECKING:
    from machine.virtual import VirtualClock


def test_a_job_runs_from_creation_to_completion() -> None:
    """The plain path: pods are made, followed, and the job is Completed."""

    async def main(clock: VirtualClock) -> None:
        world = World(clock)
        world.start()
        world.submit("demo", 3)
        await clock.pass_time(1)
        assert world.pods() == ["demo-worker-0", "demo-worker-1", "demo-worker-2"]
        world.run_pods()
        await clock.pass_time(1)
        assert world.status("demo")["phase"] == "Running"
        world.succeed_pods()
        await clock.pass_time(1)
        assert world.status("demo")["phase"] == "Completed"
        print("".join(world.lines))
        print(world.server.counts)

    run_virtual(main)
