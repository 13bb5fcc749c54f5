"""Ctrl-Z below a shell with jobs: the ranks stand still, and go on with fg or bg."""

from __future__ import annotations

import os
import pty
import re
import shlex
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from local.jobs import MARK, kill_marked, wait_until
from local.test_guardian import WRAPPERS, wrapped
from paddock.local.guardian import state_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from local.jobs import World

STEPS = """
for number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(number, lambda n, f: (tell("saved", RANK), sys.exit(0)))
tell("up", RANK, os.getpid())
while True:
    gate()
    tell("step", RANK)
"""


# bash calls a job stopped (148) until it has seen that it was continued, or has ended.
ENDED = "while wait %1; code=$?; [ $code = 148 ]; do :; done; echo code $code\n"


class Shell:
    """An interactive bash at a terminal of its own, with job control."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.mark = f"pause-{os.getpid()}-{id(self)}"
        self._shown = ""
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            env = world.env({MARK: self.mark, "NO_COLOR": "1", "TERM": "dumb"})
            os.chdir(world.folder)
            os.execvpe("bash", ["bash", "--norc", "--noprofile", "-i"], env)

    def type(self, text: str) -> None:
        """Type these keys."""
        os.write(self.fd, text.encode())

    def wait_for(self, pattern: str) -> re.Match[str]:
        """Read until the terminal has shown this, and forget what it showed up to there."""
        while not (match := re.search(pattern, self._shown)):
            self._shown += os.read(self.fd, 1 << 16).decode("ascii", "replace")
        self._shown = self._shown[match.end() :]
        return match

    def launch(self, *words: str) -> None:
        """Type `paddock launch` with these words."""
        command = [sys.executable, "-m", "paddock", "launch", "--log_dir", "log", *words]
        self.type(shlex.join(command) + "\n")

    def close(self) -> None:
        """End what runs."""
        kill_marked(self.mark)
        os.waitpid(self.pid, 0)
        os.close(self.fd)


@pytest.fixture
def shell(world: World) -> Iterator[Shell]:
    """A shell that the test leaves nothing of."""
    made = Shell(world)
    yield made
    made.close()


def pause(world: World, shell: Shell) -> None:
    """Press Ctrl-Z once both ranks are at work, and wait until they and the command stand still."""
    ranks = [int(event[2]) for event in world.events.wait("up", count=2)]
    shell.type("\x1a")
    wait_until(lambda: all(state_of(pid) == b"T" for pid in ranks))
    shell.wait_for("Stopped")


@pytest.mark.parametrize("wrapper", [*WRAPPERS, "none"])
def test_ctrl_z_pauses_the_ranks_and_fg_goes_on(world: World, shell: Shell, wrapper: str) -> None:
    """Also those that a wrapper has put into a process group or a session of their own."""
    words = [world.script(STEPS)] if wrapper == "none" else wrapped(world, STEPS, wrapper)
    shell.launch("--nproc_per_node", "2", *words)
    pause(world, shell)
    world.open_gate(2)
    shell.type("fg\n")
    world.events.wait("step", count=2)
    shell.wait_for("goes on after")
    shell.type("\x03")
    world.events.wait("saved", count=2)
    shell.wait_for("stopped by Ctrl-C")
    shell.type("echo code $?\n")
    assert shell.wait_for(r"code (\d+)")[1] == "130"


def test_bg_lets_a_paused_job_go_on_behind(world: World, shell: Shell) -> None:
    """The shell is free for another command."""
    shell.launch("--nproc_per_node", "2", world.script(STEPS))
    pause(world, shell)
    shell.type("bg\n")
    world.open_gate(2)
    world.events.wait("step", count=2)
    shell.type(f"kill %1; {ENDED}")
    assert shell.wait_for(r"code (\d+)")[1] == "143"
    assert len(world.events.all("saved")) == 2


def test_a_paused_job_that_is_killed_saves_and_ends(world: World, shell: Shell) -> None:
    """`kill %1` of the shell: what stands still could neither save nor end."""
    shell.launch("--nproc_per_node", "2", world.script(STEPS))
    pause(world, shell)
    shell.type("kill %1\n")
    world.events.wait("saved", count=2)
    shell.type(ENDED)
    assert shell.wait_for(r"code (\d+)")[1] == "143"


def test_paddock_stop_ends_a_paused_job(world: World, shell: Shell) -> None:
    """From another terminal: its ranks save, and the stopped command ends with it."""
    shell.launch("--nproc_per_node", "2", world.script(STEPS))
    run = shell.wait_for(r"train-\w{4}(?= )")[0]
    pause(world, shell)
    argv = [sys.executable, "-m", "paddock", "stop", run]
    # The run is recorded soon after its ranks have begun, not before.
    wait_until(lambda: subprocess.run(argv, env=world.env(), check=False).returncode == 0)
    world.events.wait("saved", count=2)
    shell.type(ENDED)
    assert shell.wait_for(r"code (\d+)")[1] == "143"
