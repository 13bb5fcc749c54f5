"""What is launched on this machine is found without having been told of."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

from paddock.local.launches import running_launches

if TYPE_CHECKING:
    from local.jobs import World


def test_a_running_launch_is_found_once_under_the_pid_that_signals_reach(world: World) -> None:
    """Guardian and launcher are one; a submitted job, which records itself, is listed as such."""
    script = world.script("tell('up')\nforever()")
    one = world.start("--nproc_per_node", 2, script)
    other = world.start("--record", world.folder / "record", "--nproc_per_node", 1, script)
    world.events.wait("up", count=3)
    mine = [launch for launch in running_launches() if str(script) in launch.command]
    assert [launch.pid for launch in mine] == [one.pid]
    assert mine[0].command.endswith(f"--nproc_per_node 2 {script}")
    os.kill(mine[0].pid, signal.SIGTERM)
    assert one.end().code == 143
    other.signal(signal.SIGTERM)
    other.end()
    assert [launch for launch in running_launches() if str(script) in launch.command] == []
