"""The kill table: nothing of a job survives, whoever is killed and how."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from local.jobs import children_of, wait_until
from local.warm.test_server import in_a_process
from paddock.local.guardian import reap_orphans, state_of

if TYPE_CHECKING:
    from local.jobs import World

# A rank with a child, a grandchild, one in its own session, and one whose parent has gone (a
# daemon): everything a data loader or a compile server may leave.
FAMILY = """
def child(generations, new_session=False, orphan=False):
    pid = os.fork()
    if pid == 0:
        if new_session:
            os.setsid()
        if orphan and os.fork():
            os._exit(0)
        if generations > 1:
            child(generations - 1, new_session)
        tell("child", RANK, os.getpid())
        forever()
child(2)
child(1, new_session=True)
child(2, new_session=True, orphan=True)
tell("up", RANK, os.getpid())
"""
CHILDREN = 5
WAIT = "\nforever()\n"


def start_family(world: World, ranks: int = 2, end: str = WAIT) -> dict[int, int]:
    """Start a job of ranks with families; returns rank -> pid once all are up."""
    world.start("--nproc_per_node", ranks, "--grace", 2, world.script(FAMILY + end))
    up = world.events.wait("up", count=ranks)
    world.events.wait("child", count=CHILDREN * ranks)
    return {int(rank): int(pid) for _, rank, pid in up}


def test_children_of_a_crashed_rank_are_ended(world: World) -> None:
    """Its children, also in their own session or orphaned, would keep devices and ports."""
    pids = start_family(world)
    os.kill(pids[1], signal.SIGKILL)
    ended = world.running[0].end()
    assert (ended.code, ended.left) == (137, [])


def test_children_left_by_a_successful_job_are_ended(world: World) -> None:
    """A job that ends well leaves nothing either."""
    start_family(world, end="\ngate()\nsys.exit(0)\n")
    world.open_gate(2)
    ended = world.running[0].end()
    assert (ended.code, ended.left) == (0, [])


def test_kill_9_of_the_launcher_ends_every_process(world: World) -> None:
    """The guardian inherits what the launcher leaves, and says what happened."""
    start_family(world, ranks=4)
    os.kill(world.running[0].launcher_pid(), signal.SIGKILL)
    ended = world.running[0].end()
    assert (ended.code, ended.left) == (137, [])
    assert "launcher process was killed by signal 9" in ended.err


def test_kill_9_of_the_guardian_ends_every_process(world: World) -> None:
    """The guardian is the process the user sees; the launcher notices its death."""
    start_family(world, ranks=4)
    world.running[0].signal(signal.SIGKILL)
    ended = world.running[0].end()
    assert (ended.code, ended.left) == (-9, [])


def test_kill_9_of_the_whole_process_group_ends_every_process(world: World) -> None:
    """`kill -9 -PGID` takes the guardian; the launcher is in another group on purpose."""
    start_family(world)
    world.running[0].signal_group(signal.SIGKILL)
    assert world.running[0].end().left == []


@pytest.mark.parametrize(
    "number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT], ids=lambda n: n.name
)
def test_each_ending_signal_ends_every_process(world: World, number: signal.Signals) -> None:
    """A closed terminal (SIGHUP) or Ctrl-\\ must not leave what Ctrl-C would have ended."""
    start_family(world)
    world.running[0].signal_group(number)
    ended = world.running[0].end()
    assert (ended.code, ended.left) == (128 + number, [])


SAVES = """
def save(number, frame):
    tell("signal", RANK, number)
    with open(f"saved.{RANK}", "w") as f:
        f.write("state")
    sys.exit(0)
signal.signal(signal.SIGTERM, save)
signal.signal(signal.SIGINT, save)
tell("up", RANK, os.getpid())
forever()
"""


def test_a_clean_stop_on_sigterm_is_said_as_such(world: World) -> None:
    """A preempted job where every rank saved is not a failure, and not a success."""
    running = world.start("--nproc_per_node", 4, world.script(SAVES))
    world.events.wait("up", count=4)
    running.signal(signal.SIGTERM)
    ended = running.end()
    assert (ended.code, ended.left) == (143, [])
    assert "all ranks exited cleanly" in ended.err
    assert sorted(p.name for p in world.folder.glob("saved.*")) == [f"saved.{i}" for i in range(4)]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_ranks_get_the_signal_that_ended_the_launcher(world: World, number: int) -> None:
    """Unless SIGTERM is all that they handle, as of these two: then that, whatever came."""
    running = world.start("--nproc_per_node", 2, world.script(SAVES))
    world.events.wait("up", count=2)
    running.signal_group(number)
    ended = running.end()
    heard = {event[1:] for event in world.events.all("signal")}
    wanted = "15" if number == signal.SIGHUP else str(int(number))
    assert (ended.code, ended.left) == (128 + number, [])
    assert heard == {("0", wanted), ("1", wanted)}


def test_a_stop_where_a_rank_fails_to_save_is_not_called_clean(world: World) -> None:
    """Whoever reads `clean` would resume from a checkpoint that is not there."""
    text = """
def save(number, frame):
    sys.exit(3 if RANK == 1 else 0)
signal.signal(signal.SIGTERM, save)
tell("up", RANK)
forever()
"""
    running = world.start("--nproc_per_node", 2, world.script(text))
    world.events.wait("up", count=2)
    running.signal(signal.SIGTERM)
    ended = running.end()
    assert ended.code == 143
    assert "1 rank did not exit cleanly" in ended.err


IGNORES = """
for number in (signal.SIGTERM, signal.SIGINT):
    signal.signal(number, lambda n, f: tell("ignored", RANK))
tell("up", RANK, os.getpid())
forever()
"""


def test_a_rank_that_ignores_sigterm_is_killed_after_the_grace(world: World) -> None:
    """--grace is how long a checkpoint may take, and no longer."""
    running = world.start("--nproc_per_node", 2, "--grace", "0.5", world.script(IGNORES))
    world.events.wait("up", count=2)
    running.signal(signal.SIGTERM)
    ended = running.end()
    assert len(world.events.all("ignored")) == 2
    assert (ended.code, ended.left) == (143, [])


# How a script starts a trainer without exec: in its own process group, or in a new one.
WRAPPERS = {
    "same group": "{python} {script}; echo over",
    "timeout": "timeout 600 {python} {script}; echo over",
    "setsid": "setsid --wait {python} {script}; echo over",
    "background": "{python} {script} & wait; echo over",
    "two shells": "sh -c '{python} {script}; echo over'; echo over",
}


def wrapped(world: World, text: str, wrapper: str = "same group") -> list[str]:
    """The words that launch this script below a shell."""
    script = world.script(text)
    command = WRAPPERS[wrapper].format(python=shlex.quote(sys.executable), script=script)
    path = world.folder / "run.sh"
    path.write_text(f"#!/bin/bash\n{command}\n", "utf-8")
    path.chmod(0o755)
    return [str(path)]


# It saves when the test lets it, so a shell that SIGTERM ends has long gone.
SAVES_LATER = SAVES.replace("    with open", "    gate()\n    with open")


@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_a_trainer_below_a_shell_has_the_grace(world: World, wrapper: str) -> None:
    """The shell dies of SIGTERM at once; what it has started still saves."""
    running = world.start("--nproc_per_node", 2, *wrapped(world, SAVES_LATER, wrapper))
    up = world.events.wait("up", count=2)
    shells = [int(pid) for pid in children_of(running.launcher_pid())]
    running.signal(signal.SIGTERM)
    heard = world.events.wait("signal", count=2)
    wait_until(lambda: all(state_of(pid) == b"Z" for pid in shells))
    assert {e[2] for e in heard} == {"15"}
    assert all(state_of(int(pid)) != b"Z" for _, _, pid in up)
    world.open_gate(4)
    ended = running.end()
    assert (ended.code, ended.left) == (143, [])
    assert len(list(world.folder.glob("saved.*"))) == 2


def test_a_trainer_has_the_grace_where_its_shell_was_killed(world: World) -> None:
    """The only rank has failed, and nobody has signalled anything."""
    running = world.start("--nproc_per_node", 1, *wrapped(world, SAVES_LATER))
    world.events.wait("up")
    (shell,) = children_of(running.launcher_pid())
    os.kill(shell, signal.SIGKILL)
    world.events.wait("signal", "0", "15")
    world.open_gate(1)
    ended = running.end()
    assert (ended.code, ended.left) == (137, [])
    assert len(list(world.folder.glob("saved.*"))) == 1


def test_a_trainer_below_a_shell_is_killed_after_the_grace(world: World) -> None:
    """As a rank itself is."""
    running = world.start("--nproc_per_node", 2, "--grace", "0.5", *wrapped(world, IGNORES))
    world.events.wait("up", count=2)
    running.signal(signal.SIGTERM)
    ended = running.end()
    assert len(world.events.all("ignored")) == 2
    assert (ended.code, ended.left) == (143, [])
    assert "ended 2 processes the job had left behind" in ended.err


def test_a_second_signal_kills_what_lives_below_a_shell_at_once(world: World) -> None:
    """Nobody waits for an hour's grace in front of a terminal."""
    running = world.start("--nproc_per_node", 2, "--grace", 3600, *wrapped(world, IGNORES))
    world.events.wait("up", count=2)
    shells = children_of(running.launcher_pid())
    running.signal(signal.SIGTERM)
    world.events.wait("ignored", count=2)
    wait_until(lambda: all(state_of(pid) == b"Z" for pid in shells))
    running.signal(signal.SIGTERM)
    ended = running.end()
    assert (ended.code, ended.left) == (143, [])


SAVES_SLOWLY = SAVES.replace("    with open", "    time.sleep(0.5)\n    with open")


def test_a_signal_to_every_process_of_a_job_is_one_signal(world: World) -> None:
    """As a batch system ends a job: launcher, guardian and ranks hear of it by themselves."""
    running = world.start("--nproc_per_node", 2, world.script(SAVES_SLOWLY))
    world.events.wait("up", count=2)
    (launcher,) = children_of(running.pid)
    os.kill(launcher, signal.SIGTERM)
    world.events.wait("signal", count=2)
    running.signal(signal.SIGTERM)
    ended = running.end()
    assert (ended.code, ended.left) == (143, [])
    assert "all ranks exited cleanly" in ended.err


def test_a_second_ctrl_c_kills_at_once(world: World) -> None:
    """Nobody waits for an hour's grace in front of a terminal."""
    running = world.start("--nproc_per_node", 2, "--grace", 3600, world.script(IGNORES))
    world.events.wait("up", count=2)
    running.signal_group(signal.SIGINT)
    world.events.wait("ignored", count=2)
    running.signal_group(signal.SIGINT)
    ended = running.end()
    assert (ended.code, ended.left) == (130, [])


def test_a_signal_taken_by_another_thread_wakes_the_launcher(world: World) -> None:
    """Python runs handlers in the main thread only; the kernel may choose another, or come late."""
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    running = world.start("--nproc_per_node", 2, "--grace", 3600, world.script(IGNORES))
    world.events.wait("up", count=2)
    pid = running.launcher_pid()
    (thread,) = {int(name) for name in os.listdir(f"/proc/{pid}/task")} - {pid}
    assert libc.tgkill(pid, thread, signal.SIGINT) == 0
    world.events.wait("ignored", count=2)
    assert libc.tgkill(pid, thread, signal.SIGINT) == 0
    ended = running.end()
    assert (ended.code, ended.left) == (130, [])


def test_a_tree_of_200_grandchildren_is_ended(world: World) -> None:
    """Sweeping goes round by round; a wide and deep tree needs several."""
    text = """
for i in range(10):
    if os.fork() == 0:
        os.setsid()
        for j in range(20):
            if os.fork() == 0:
                tell("leaf")
                forever()
        forever()
forever()
"""
    running = world.start("--nproc_per_node", 1, "--grace", 1, world.script(text))
    world.events.wait("leaf", count=200)
    running.signal(signal.SIGTERM)
    ended = running.end()
    assert (ended.code, ended.left) == (143, [])


def test_a_process_that_forks_without_end_is_ended(world: World) -> None:
    """A child that forks its successor and exits moves faster than one look at /proc."""
    text = """
if os.fork() == 0:
    os.setsid()
    for generation in range(20_000):
        if os.fork():
            os._exit(0)
        if generation == 20:
            tell("moving")
        time.sleep(0.001)
    os._exit(0)
forever()
"""
    running = world.start("--nproc_per_node", 1, "--grace", 1, world.script(text))
    world.events.wait("moving")
    running.signal(signal.SIGTERM)
    assert running.end().left == []


def test_a_stopped_rank_is_ended_too(world: World) -> None:
    """SIGTERM waits in a stopped process (a debugger, Ctrl-Z); SIGKILL does not."""
    pids = start_family(world)
    os.kill(pids[0], signal.SIGSTOP)
    world.running[0].signal(signal.SIGTERM)
    assert world.running[0].end().left == []


def test_a_stopped_launcher_of_one_node_is_left_alone(world: World) -> None:
    """Nobody waits for it: whoever stopped it lets it go on when they like."""
    script = world.script("tell('up')\ngate()\n")
    running = world.start("--nproc_per_node", 1, "--lease", 0.5, script)
    world.events.wait("up")
    os.kill(running.launcher_pid(), signal.SIGSTOP)
    assert world.events.poll(1.0) is False
    os.kill(running.launcher_pid(), signal.SIGCONT)
    world.open_gate(1)
    assert running.end().code == 0


def test_signals_the_parent_ignores_stay_ignored(world: World) -> None:
    """nohup paddock launch ... must outlive its terminal."""
    running = world.start(
        "--nproc_per_node", 1, world.script(SAVES), before=["nohup"]
    )  # fmt: skip
    world.events.wait("up")
    running.signal_group(signal.SIGHUP)
    assert world.events.poll(0.3) is False
    running.signal_group(signal.SIGTERM)
    assert running.end().code == 143


# Daemons of a rank end; how many of its launcher's children are zombies, once there is none or in
# the end? Another rank has ended as well, and stays: its launcher still asks how.
ORPHANS = """
ENDED = 50
if RANK:
    sys.exit(0)
for i in range(ENDED):
    if not (child := os.fork()):
        if i % 2:
            os.setsid()
        if not os.fork():
            tell("orphan")
        os._exit(0)
    os.waitpid(child, 0)
def zombies():
    count = 0
    for task in os.listdir(f"/proc/{os.getppid()}/task"):
        for pid in open(f"/proc/{os.getppid()}/task/{task}/children").read().split():
            try:
                count += open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[0] == "Z"
            except OSError:
                pass
    return count
gate()  # all of them have begun to end
until = time.monotonic() + 5
while zombies() > WORLD - 1 and time.monotonic() < until:
    time.sleep(0.01)
tell("zombies", zombies(), os.getpid())
"""


@pytest.mark.parametrize("warm", ["off", "on"])
def test_orphans_of_ranks_stay_no_zombies_while_the_job_runs(world: World, warm: str) -> None:
    """They would count against the limit of processes, and a rank could fork no more."""
    running = world.start("--nproc_per_node", 2, "--warm", warm, world.script(ORPHANS))
    world.events.wait("orphan", count=50)
    world.open_gate(1)
    [(_, zombies, _)] = world.events.wait("zombies")
    ended = running.end()
    assert (ended.code, int(zombies) <= 1) == (0, True)


def test_orphans_stay_no_zombies_where_the_guardian_is_the_init_of_a_container(
    world: World,
) -> None:
    """As PID 1 it gets the orphans of nobody: the launcher, a subreaper, is nearer."""
    before = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]
    if subprocess.run([*before, "true"], capture_output=True).returncode:
        pytest.skip("no namespace of processes may be made here")
    running = world.start("--nproc_per_node", 1, world.script(ORPHANS), before=before)
    world.events.wait("orphan", count=50)
    world.open_gate(1)
    assert [int(zombies) for _, zombies, _ in world.events.wait("zombies")] == [0]
    assert running.end().code == 0


def test_the_exit_code_of_a_rank_and_of_an_own_tool_is_there_after_orphans_were_reaped() -> None:
    """Who started it still waits for it."""

    def reap() -> None:
        kept = {os.posix_spawn("/bin/false", ["false"], {}, setpgroup=0)}
        tool = subprocess.Popen(["false"])
        orphan = os.posix_spawn("/bin/true", ["true"], {}, setpgroup=0)
        for pid in (*kept, tool.pid, orphan):
            os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        reap_orphans(kept)
        assert set(children_of(os.getpid())) == {*kept, tool.pid}
        assert tool.wait() == 1

    in_a_process(reap)
