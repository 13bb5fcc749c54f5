"""What tests of jobs wait with: a wait for what cannot come any more says why, and soon."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

import pytest

from local.jobs import LOOK_SECONDS, Running, patience

if TYPE_CHECKING:
    from local.jobs import World


def test_a_wait_ends_with_the_job_and_shows_its_console(world: World) -> None:
    """Without this a job that ended early takes a test's whole limit, and tells nothing."""
    world.start("--nproc_per_node", 1, world.script("tell('up')\nsys.exit(7)\n"))
    before = patience()
    with pytest.raises(AssertionError, match=r"(?s)heard 1 of 2 .* ended with 7:.*rank 0 \(pid"):
        world.events.wait("up", count=2)
    assert patience() > before / 2


def test_a_wait_goes_on_while_a_process_of_the_job_is_left(world: World) -> None:
    """What was started has ended, and what that started still has something to tell."""
    line = f"(sleep {3 * LOOK_SECONDS}; echo late > $TEST_EVENTS) &"
    running = Running(["sh", "-c", line], cwd=world.folder, env=world.env(), mark=uuid.uuid4().hex)
    world.running.append(running)
    assert running.process.wait() == 0
    assert world.events.wait("late") == [("late",)]
