"""What the commands answer about launches when there is little to say."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

from local.test_runs import Terminal

if TYPE_CHECKING:
    from local.jobs import World


def test_stop_all_names_only_what_it_stops(world: World) -> None:
    """It had a line for each run that had ended."""
    terminal = Terminal(world)
    assert terminal.run(world.script("print('done')")).code == 0
    done = terminal.type("stop", "all")
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == "paddock: nothing is running\n"


def test_logs_of_a_rank_that_is_not_there(world: World) -> None:
    """Nothing was printed, with exit code 0."""
    terminal = Terminal(world)
    assert terminal.run(world.script("print('done')")).code == 0
    done = terminal.type("logs", "last", "--rank", "5")
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr.startswith("paddock: no lines; the ranks of this run: paddock status train-")


def test_a_stopped_run_keeps_what_the_screen_said(world: World) -> None:
    """The list said "node a was told to stop"."""
    terminal = Terminal(world)
    running = terminal.launch(world.script("tell('up'); forever()"))
    world.events.wait("up")
    terminal.control()
    os.kill(running.launcher_pid(), signal.SIGTERM)
    assert running.end().code == 143
    assert terminal.status()["why"].startswith("stopped by SIGTERM; ")
