"""Processes that cannot be killed: the launcher's loop goes on while it waits for them."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from local.hung import HungFolder
from local.jobs import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from local.jobs import World


@pytest.fixture
def hung(tmp_path: Path) -> Iterator[HungFolder]:
    """A file system that hangs; skips where none can be mounted."""
    try:
        made = HungFolder(tmp_path / "hung")
    except OSError as error:
        pytest.skip(f"a file system can be mounted by root with /dev/fuse only: {error}")
    yield made
    made.close()


def test_the_launcher_listens_while_a_child_cannot_be_ended(world: World, hung: HungFolder) -> None:
    """A loop that waited for it would miss heartbeats, and healthy nodes would fence themselves."""
    text = f"""
if os.fork() == 0:
    os.setsid()
    os.stat("{hung.path}/x")
tell("up", os.getpid())
gate()
"""
    running = world.start(world.script(text))
    ((_, pid),) = world.events.wait("up")
    hung.wait()
    world.open_gate(1)
    wait_until(lambda: not Path("/proc", pid).exists())  # it is reaped: the sweep has begun
    running.signal(signal.SIGTERM)
    running.wait_for("send the signal again to kill")
    hung.release()
    ended = running.end()
    assert ended.left == []
    assert ended.err.index("waiting up to") < ended.err.index("ended 1 process the job had left")


def test_a_hook_that_cannot_be_ended_keeps_nobody(world: World, hung: HungFolder) -> None:
    """It is killed and left; whoever ordered that goes on."""
    script = world.script("tell('up')")
    running = world.start("--elastic_pre_hook", f"exec stat {hung.path}/x", script)
    hung.wait()
    running.signal(signal.SIGTERM)
    running.wait_for("exit code 143")
    hung.release()
    ended = running.end()
    assert (ended.code, ended.left, world.events.all("up")) == (143, [], [])
