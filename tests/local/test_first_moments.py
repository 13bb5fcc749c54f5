"""What can go wrong before the launcher has set itself up, and in a log directory of others."""

from __future__ import annotations

import os
import signal
import sys
from typing import TYPE_CHECKING

from local.jobs import PRELUDE

if TYPE_CHECKING:
    from local.jobs import World


def test_a_daemon_forked_at_once_dies_with_the_guardian(world: World) -> None:
    """A shell forks faster than a launcher imports: both were subreapers before it started."""
    script = world.folder / "daemon.sh"
    script.write_text("#!/bin/sh\n(setsid sleep 1000 &)\necho up\nexec sleep 1000\n")
    script.chmod(0o755)
    running = world.start("--nproc_per_node", 2, "--tail", "all", script)
    running.wait_for("] up", count=2)
    running.signal(signal.SIGKILL)
    assert running.end().left == []


def test_a_daemon_forked_at_once_does_not_reach_the_next_attempt(world: World) -> None:
    """The sweep between attempts sees orphans because they became the launcher's."""
    script = world.folder / "daemon.sh"
    script.write_text("#!/bin/sh\n(trap '' TERM; setsid sleep 1000 &)\nexit 9\n")
    script.chmod(0o755)
    ended = world.run("--max_restart", 1, "--grace", 0.2, script)
    assert (ended.code, ended.left) == (9, [])
    assert ended.err.count("the job had left behind") == 2


def test_a_signal_at_any_moment_ends_the_job_as_that_signal(world: World) -> None:
    """It waits, blocked, until it can be taken; no traceback, no orphan, no other exit code."""
    script = world.script("signal.signal(15, lambda *_: sys.exit(0)); tell('up'); forever()")
    running = world.start("--nproc_per_node", 2, "--console", "paddle", script)
    running.wait_for("Configuration")  # written before anything else is ready
    running.signal(signal.SIGTERM)
    ended = running.end()
    assert (ended.code, ended.left) == (143, [])
    assert "Traceback" not in ended.err


def test_links_and_fifos_in_the_log_directory_are_refused(world: World) -> None:
    """A log must not write where a link leads, nor wait for the reader of a FIFO."""
    script = world.script("tell('started')")
    victim = world.folder / "victim"
    victim.write_text("precious")
    world.log_dir.mkdir()
    os.symlink(victim, world.log_dir / "workerlog.0")
    assert world.run(script).code == 2
    os.unlink(world.log_dir / "workerlog.0")
    os.mkfifo(world.log_dir / "workerlog.0")
    ended = world.run(script)
    assert (ended.code, ended.left) == (2, [])
    assert "workerlog.0' cannot be opened" in ended.err
    assert victim.read_text() == "precious"
    assert world.events.all("started") == []


def test_a_hook_runs_before_each_attempt_and_ends_with_the_job(world: World) -> None:
    """It is the user's own command; while it runs, signals and leases still count."""
    hook = world.folder / "hook.py"
    hook.write_text(PRELUDE + "tell('hook')")
    script = world.script("tell('up', ATTEMPT); sys.exit(7 if ATTEMPT == 0 else 0)")
    ended = world.run(
        *("--max_restart", 1, "--elastic_pre_hook", f"'{sys.executable}' '{hook}'", script)
    )
    assert ended.code == 0
    assert [e[0] for e in world.events.all()] == ["hook", "up", "hook", "up"]
    stuck = world.start("--elastic_pre_hook", "echo in hook; exec sleep 1000", script)
    stuck.wait_for("in hook")
    stuck.signal(signal.SIGTERM)
    ended = stuck.end()
    assert (ended.code, ended.left) == (143, [])
