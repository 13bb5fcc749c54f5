"""What is launched on this machine is found without having been told of."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

from paddock.cli.jobs import launch_rows
from paddock.local.launches import Launch, running_launches

if TYPE_CHECKING:
    from local.jobs import World


def test_a_running_launch_is_found_once_under_the_pid_that_signals_reach(world: World) -> None:
    """Guardian and launcher are one."""
    script = world.script("tell('up')\nforever()")
    one = world.start("--nproc_per_node", 2, script)
    world.events.wait("up", count=2)
    mine = [launch for launch in running_launches() if str(script) in launch.words]
    assert [launch.pid for launch in mine] == [one.pid]
    assert mine[0].words[-3:] == ("--nproc_per_node", "2", str(script))
    os.kill(mine[0].pid, signal.SIGTERM)
    assert one.end().code == 143
    assert [launch for launch in running_launches() if str(script) in launch.words] == []


def test_a_list_shows_no_secret_and_no_job_twice() -> None:
    """A submitted job records itself, and is listed as such; a script may have --record, too."""
    lines = (
        ("--env", "HF_TOKEN=abc", "train.py", "--record"),
        ("--record", "folder", "--nproc_per_node", "1", "train.py"),
        ("--master=etcd://root:pw@h:2379", "train.py"),
    )
    rows = launch_rows(Launch(pid, 3.0, words) for pid, words in enumerate(lines))
    assert [(row[0], row[-1]) for row in rows] == [
        ("pid 0", '--env HF_TOKEN="$HF_TOKEN" train.py --record'),
        ("pid 2", "'--master=etcd://***@h:2379' train.py"),
    ]
