"""The kill table of a warm job: whoever is killed, and when: nothing is left, ranks run once."""

from __future__ import annotations

import os
import select
import signal
import sys
from typing import TYPE_CHECKING

import pytest

from local.jobs import free_port, wait_until
from local.warm.pack import Pack

if TYPE_CHECKING:
    from collections.abc import Sequence

    from local.jobs import World

# The server waits for the gate while it imports, or the process between while it forks rank 1.
SPEAK = """
import os
def wait(*words):
    fd = os.open(os.environ["TEST_EVENTS"], os.O_WRONLY)
    os.write(fd, (" ".join(map(str, words)) + "\\n").encode())
    os.close(fd)
    os.read(os.open(os.environ["TEST_GATE"], os.O_RDONLY), 1)
"""
# As large as a framework: its end takes a moment.
LOADS = (
    SPEAK
    + """
if IN_SERVER:
    large = b"x" * (1 << 28)
    wait("loading", os.getpid())
"""
)
FORKS = """
SERVER, COUNT = os.getpid() if IN_SERVER else 0, []
def before():
    if SERVER not in (0, os.getpid()) and IN_SERVER:
        COUNT.append(1)
        if len(COUNT) == 2:
            wait("forking", SERVER, os.getpid())
os.register_at_fork(before=before)
"""
UP = 'tell("up", RANK, os.getpid(), os.getppid())\ngate()\n'
COLD = "not warm: "


def start(
    world: World, moment: str, *words: object, before: Sequence[str] = ()
) -> tuple[Pack, list[int]]:
    """A warm job at this moment; the pids of the server and of the process that forks."""
    text = {"loading": LOADS, "forking": SPEAK + FORKS, "idle": ""}[moment]
    pack = Pack(world, {"slow": text}, UP)
    running = pack.start()
    world.events.wait("up", count=2)
    world.open_gate(2)
    assert running.end().code == 0
    running = pack.start(*words, before=before)
    if moment == "idle":
        world.events.wait("up", count=4)
        running.wait_for("imported once")  # the launcher knows them, too
        ranks = {int(pid) for _, _, pid, _ in world.events.all("up")[2:]}
        return pack, sorted(set(children(running.launcher_pid())) - ranks)
    (found,) = world.events.wait(moment)
    return pack, [int(word) for word in found[1:]]


def children(pid: int) -> list[int]:
    """Of the launcher's main thread, which starts all."""
    with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as f:
        return [int(word) for word in f.read().split()]


@pytest.mark.parametrize("moment", ["loading", "forking", "idle"])
def test_a_killed_server_costs_no_rank(world: World, moment: str) -> None:
    """What it had not forked is started cold, once; what it had goes on."""
    pack, (server, *_) = start(world, moment)
    os.kill(server, signal.SIGKILL)
    world.events.wait("up", count=4)
    world.open_gate(2)
    ended = world.running[1].end()
    assert (ended.code, ended.left) == (0, []), ended.err
    assert (COLD + "the warm server was killed by signal 9" in ended.err) == (moment != "idle")
    assert len(world.events.all("up")) == 4
    assert pack.left_out() == {}


def test_a_killed_process_between_costs_no_rank(world: World) -> None:
    """It has forked rank 0, which must not begin: it is started again, cold."""
    _, (_, between) = start(world, "forking")
    os.kill(between, signal.SIGKILL)
    world.events.wait("up", count=4)
    world.open_gate(2)
    ended = world.running[1].end()
    assert (ended.code, ended.left) == (0, []), ended.err
    assert COLD + "the process that forks the ranks died" in ended.err
    assert len(world.events.all("up")) == 4


@pytest.mark.parametrize("moment", ["loading", "forking", "idle"])
@pytest.mark.parametrize("who", ["guardian", "launcher", "SIGINT"])
def test_whatever_ends_the_launcher_ends_its_server(world: World, moment: str, who: str) -> None:
    """At once, with the usual verdict; a rank that had not begun never does."""
    start(world, moment)
    running = world.running[1]
    if who == "guardian":
        running.signal(signal.SIGKILL)
    elif who == "launcher":
        os.kill(running.launcher_pid(), signal.SIGKILL)
    else:
        running.signal_group(getattr(signal, who))
    ended = running.end()
    wanted = {"guardian": -9, "launcher": 137, "SIGINT": 130}[who]
    assert (ended.code, ended.left) == (wanted, []), ended.err
    assert "the job had left behind" not in ended.err
    assert len(world.events.all("up")) == (4 if moment == "idle" else 2)


def test_a_time_limit_holds_while_it_loads(world: World) -> None:
    """As while ranks run."""
    start(world, "loading", "--timeout", 5, "--nproc_per_node", 2)
    ended = world.running[1].end()
    assert (ended.code, ended.left) == (124, []), ended.err
    assert "the job's time limit of 5 s is over" in ended.err


def test_a_failure_elsewhere_ends_a_node_that_still_loads(world: World) -> None:
    """At once, with the verdict of the job; what was to run there never does."""
    pack = Pack(world, {"slow": LOADS}, UP)
    nodes = ("--nnodes", 2, "--nproc_per_node", 1, "--master", f"127.0.0.1:{free_port()}")
    running = pack.start("--nproc_per_node", 1)
    world.open_gate(1)
    assert running.end().code == 0
    pack.start(*nodes, log="on").wait_for("no job key")  # it is where they meet
    pack.start(*nodes, warm="off", log="off")
    world.events.wait("loading")
    (_, (_, _, pid, _)) = world.events.wait("up", count=2)
    os.kill(int(pid), signal.SIGKILL)
    for running in world.running[1:]:
        ended = running.end()
        assert (ended.code, ended.left) == (137, []), ended.err
    assert len(world.events.all("up")) == 2


# The timer goes off when the test says so.
IN_A_HURRY = """
import os, runpy, sys
from paddock.local.warm.server import WarmServer
fd = os.open(os.environ["TEST_EVENTS"] + ".timer", os.O_RDONLY | os.O_NONBLOCK)
def set_timer(self, seconds):
    self._seconds, self._seen = seconds, self._process.progress
    self._loop.watch(fd, 1, lambda _events: os.read(fd, 1) and self._look())
WarmServer._set_timer = set_timer
sys.argv[:4] = ["paddock"]
runpy.run_module("paddock", run_name="__main__")
"""


def start_in_a_hurry(world: World, moment: str) -> tuple[Pack, int]:
    """A warm job at this moment, and the timer's file."""
    path = f"{world.events.path}.timer"
    os.mkfifo(path)
    timer = os.open(path, os.O_RDWR)
    pack, _ = start(world, moment, before=[sys.executable, "-c", IN_A_HURRY])
    return pack, timer


def test_a_server_that_has_forked_some_is_waited_for(world: World) -> None:
    """Hundreds of forks of a large process take longer than the patience with one."""
    _, timer = start_in_a_hurry(world, "forking")
    os.write(timer, b"!")
    wait_until(lambda: not select.select([timer], [], [], 0)[0])
    world.open_gate(1)
    world.events.wait("up", count=4)
    os.close(timer)
    world.open_gate(2)
    ended = world.running[1].end()
    assert (ended.code, ended.left, COLD in ended.err) == (0, [], False), ended.err


@pytest.mark.parametrize("moment", ["loading", "forking"])
def test_a_server_that_hangs_is_not_waited_for(world: World, moment: str) -> None:
    """An import that hangs is left out; where no import hangs, the ranks start cold."""
    pack, timer = start_in_a_hurry(world, moment)
    os.write(timer, b"!!")  # the first look sees that it has stirred
    world.events.wait("up", count=4)
    os.close(timer)
    world.open_gate(2)
    ended = world.running[1].end()
    assert (ended.code, ended.left) == (0, []), ended.err
    why = "gave no sign of life for 30 s"
    assert (f"{COLD}the warm server {why}" in ended.err) == (moment == "forking")
    why = "the import gave no sign of life for 120 s"
    assert pack.left_out() == ({"pack.slow": why} if moment == "loading" else {})
    assert len(world.events.all("up")) == 4


PATIENT = """
import os, runpy, sys
from paddock.local.warm import process
with open(os.path.join(process.HOOK, "sitecustomize.py")) as f:
    text = f.read()
process.HOOK = os.environ["TEST_EVENTS"] + ".hook"
os.mkdir(process.HOOK)
with open(os.path.join(process.HOOK, "sitecustomize.py"), "w") as f:
    f.write(text.replace("FIRST_SECONDS = 0.3", "FIRST_SECONDS = 60.0"))
sys.argv[:4] = ["paddock"]
runpy.run_module("paddock", run_name="__main__")
"""
MEETS = """
import socket
end = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
if len(sys.argv) > 1:
    sys.exit(0)
if RANK:
    socket.create_connection(end)
else:
    time.sleep(0.2)  # longer than the other takes to come here
    socket.create_server(end).accept()
"""


def test_the_others_begin_when_the_first_rank_listens(world: World) -> None:
    """Whoever calls too early is refused, and frameworks wait seconds before they try again."""
    pack = Pack(world, {"quick": ""}, MEETS)
    assert pack.start(args=["learn"]).end().code == 0
    ended = pack.start(before=[sys.executable, "-c", PATIENT]).end()
    assert (ended.code, ended.left) == (0, []), ended.err


def test_attempts_fork_from_one_server(world: World) -> None:
    """It learns from the first of them; each has its own number and environment."""
    text = 'tell("up", ATTEMPT, RANK, os.getppid())\n'
    text += "if RANK and ATTEMPT < 2:\n    forever()\ngate()\nsys.exit(ATTEMPT < 2)\n"
    pack = Pack(world, {"quick": ""}, text)
    running = pack.start("--max_restart", 3, "--nproc_per_node", 2)
    for attempt in range(3):
        world.events.wait("up", attempt, count=2)
        world.open_gate(1 + (attempt == 2))
    ended = running.end()
    assert (ended.code, ended.left, pack.count_servers()) == (0, [], 1), ended.err
    told = world.events.all("up")
    wanted = [(str(attempt), str(rank)) for attempt in range(3) for rank in range(2)]
    assert sorted(each[1:3] for each in told) == wanted
    assert len({each[3] for each in told}) == 1  # the launcher
