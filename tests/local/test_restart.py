"""Attempts: when there is another, what it gets, and what is kept of the one before."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from local.jobs import World

ONCE = "tell('up', ATTEMPT, RANK)\nsys.exit(%d if ATTEMPT == 0 and RANK == 1 else 0)\n"


def test_a_failed_attempt_is_followed_by_another(world: World) -> None:
    """All ranks start again, and know that they do."""
    ended = world.run("--nproc_per_node", 3, "--max_restart", 2, world.script(ONCE % 7))
    assert (ended.code, ended.left) == (0, [])
    assert sorted(event[1:] for event in world.events.all("up", 1)) == [
        ("1", "0"), ("1", "1"), ("1", "2"),
    ]  # fmt: skip
    assert "attempt 1: restarting (rank 1 on " in ended.err
    assert " 1 restart " in ended.err


def test_without_restarts_the_first_failure_ends_the_job(world: World) -> None:
    """The default for a job that is not elastic."""
    ended = world.run("--nproc_per_node", 2, world.script(ONCE % 7))
    assert ended.code == 7
    assert world.events.all("up", 1) == []


def test_a_used_up_budget_ends_with_the_last_culprit(world: World) -> None:
    """And says that it is used up."""
    script = world.script("tell('up', ATTEMPT)\nsys.exit(3 + ATTEMPT)\n")
    ended = world.run(
        "--nproc_per_node", 1, "--max_restart", 2, "--restart_backoff", "0.01", script
    )
    assert ended.code == 5
    assert [event[1] for event in world.events.all("up")] == ["0", "1", "2"]
    assert "no restart is left of 2" in ended.err


@pytest.mark.parametrize(
    ("restart_on", "how", "again"),
    [
        ("exit", "sys.exit(7)", True),
        ("signal", "sys.exit(7)", False),
        ("signal", "os.kill(os.getpid(), 9)", True),
        ("exit", "os.kill(os.getpid(), 9)", False),
        ("7", "sys.exit(7)", True),
        ("7,8", "sys.exit(9)", False),
        ("137", "os.kill(os.getpid(), 9)", True),
        ("any", "sys.exit(1)", True),
        ("101,102", "sys.exit(101)", True),
        ("101,102", "sys.exit(1)", False),
    ],
)
def test_restart_on_covers_its_causes_only(
    world: World, restart_on: str, how: str, again: bool
) -> None:
    """A bug fails at once, a preempted or relaunching rank goes on (101, 102: Paddle's codes)."""
    script = world.script(f"tell('up', ATTEMPT)\nif ATTEMPT == 0: {how}\n")
    ended = world.run("--nproc_per_node", 1, "--max_restart", 1, "--restart-on", restart_on, script)
    assert (ended.code == 0, len(world.events.all("up"))) == (again, 2 if again else 1)
    assert again or "--restart-on" in ended.line("first failure")


@pytest.mark.parametrize("code", [101, 102])
def test_the_codes_of_the_elastic_contract_ask_for_a_restart(world: World, code: int) -> None:
    """Of Paddle's elastic launcher: 101 "restart me", 102 "relaunch me"."""
    ended = world.run(
        "--nproc_per_node", 2, "--elastic_level", 1, world.script(ONCE % code)
    )  # fmt: skip
    assert ended.code == 0
    assert len(world.events.all("up", 1)) == 2


def test_nothing_of_an_attempt_runs_when_the_next_starts(world: World) -> None:
    """Two attempts on one device or one checkpoint would destroy each other's work."""
    text = """
if ATTEMPT == 0:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    for i in range(3):
        if os.fork() == 0:
            os.setsid()
            tell("old", os.getpid())
            forever()
    if RANK == 0:
        gate()
        sys.exit(1)
    tell("old", os.getpid())
    forever()
old = [line.split()[1] for line in open("old.txt")] if os.path.exists("old.txt") else []
tell("alive", *[pid for pid in old if os.path.exists(f"/proc/{pid}")])
"""
    running = world.start(
        "--nproc_per_node", 2, "--max_restart", 1, "--grace", "0.3", world.script(text)
    )
    old = world.events.wait("old", count=7)
    (world.folder / "old.txt").write_text("".join(" ".join(event) + "\n" for event in old))
    world.open_gate(1)
    ended = running.end()
    assert (ended.code, ended.left) == (0, [])
    assert world.events.all("alive") == [("alive",), ("alive",)]


def test_the_logs_of_earlier_attempts_are_kept(world: World) -> None:
    """The reason for a restart is in the log of the attempt before it."""
    text = "print('attempt', ATTEMPT)\ntell('wrote', ATTEMPT)\ngate()\nsys.exit(ATTEMPT < 2)\n"
    running = world.start(
        "--nproc_per_node", 2, "--max_restart", 5, "--restart_backoff", "0.01",
        "--log_overwrite", "1", world.script(text),
    )  # fmt: skip
    for attempt in range(3):
        world.events.wait("wrote", attempt, count=2)
        # The first that fails ends both; what the other would have left opens the next attempt's.
        world.open_gate(1 if attempt < 2 else 2)
    assert running.end().code == 0
    for rank in range(2):
        log = world.log(rank).decode()
        assert [line for line in log.splitlines() if line.startswith("attempt")] == [
            "attempt 0", "attempt 1", "attempt 2",
        ]  # fmt: skip
        assert f"attempt 2, rank {rank}, run " in log


def test_each_attempt_gets_fresh_ports(world: World) -> None:
    """A port of the last attempt may still be held by a lingering connection."""
    text = "tell('at', ATTEMPT, os.environ['PADDLE_TRAINER_ENDPOINTS'])\nsys.exit(ATTEMPT < 1)\n"
    ended = world.run("--nproc_per_node", 2, "--max_restart", 1, world.script(text))
    (first,) = {event[2] for event in world.events.all("at", 0)}
    (second,) = {event[2] for event in world.events.all("at", 1)}
    assert ended.code == 0
    assert not set(first.split(",")) & set(second.split(","))


def test_a_stop_between_attempts_ends_the_job(world: World) -> None:
    """SIGTERM while the launcher waits for its back-off has no rank to pass it on to."""
    running = world.start(
        "--nproc_per_node", 1, "--max_restart", 5, "--restart_backoff", "3600:3600",
        world.script("tell('up', ATTEMPT)\nsys.exit(1)"),
    )  # fmt: skip
    world.events.wait("up", 1)
    running.wait_for("restarting", count=2)
    running.signal(signal.SIGTERM)
    ended = running.end()
    assert (ended.code, ended.left) == (143, [])


def test_a_stop_while_an_attempt_ends_is_not_followed_by_another(world: World) -> None:
    """Ctrl-C just after a crash means stop, not restart."""
    text = """
if ATTEMPT == 0 and RANK == 0:
    signal.signal(signal.SIGTERM, lambda n, f: (tell("stopping"), gate(), os._exit(0)))
    tell("up", os.getpid())
    forever()
if ATTEMPT == 0:
    gate()
    sys.exit(1)
tell("again")
"""
    running = world.start("--nproc_per_node", 2, "--max_restart", 3, world.script(text))
    world.events.wait("up")
    world.open_gate(1)
    world.events.wait("stopping")
    running.signal(signal.SIGTERM)
    running.wait_for("send the signal again to kill")
    world.open_gate(1)
    ended = running.end()
    assert (ended.code, ended.left) == (143, [])
    assert world.events.all("again") == []


def test_stdin_is_still_there_for_the_next_attempt(world: World) -> None:
    """Rank 0 of attempt 1 reads on where attempt 0 stopped."""
    read_fd, write_fd = os.pipe()
    text = "tell('got', ATTEMPT, RANK, os.read(0, 4).decode().strip() or 'nothing')\n"
    text += "sys.exit(ATTEMPT < 1 and RANK == 0)\n"
    running = world.start(
        "--nproc_per_node", 1, "--max_restart", 1, world.script(text), stdin=read_fd
    )
    os.close(read_fd)
    os.write(write_fd, b"one\ntwo\n")
    ended = running.end()
    os.close(write_fd)
    assert ended.code == 0
    assert world.events.all("got") == [("got", "0", "0", "one"), ("got", "1", "0", "two")]


USAGE = "import argparse\nargparse.ArgumentParser().parse_args(['--lrr', '1'])\n"


@pytest.mark.parametrize(
    ("how", "flags", "starts"),
    [
        ("import no_such_module", (), 2),
        ("compile('x =', 'model.py', 'exec')", (), 2),
        (USAGE, (), 2),
        ("if RANK == 0: time.sleep(30)\nimport no_such_module", (), 2),  # the others are stopped
        ("raise ModuleNotFoundError(f'no part {ATTEMPT}')", (), 4),
        ("raise ValueError('the data is not there yet')", (), 4),
        ("print('usage: a b', file=sys.stderr)\nsys.exit(2)", (), 4),
        ("sys.exit('usage: a b') if RANK else sys.exit(2)", (), 4),
        (USAGE, ("--restart-on", "2"), 4),
    ],
)
def test_what_no_restart_mends_is_started_twice(
    world: World, how: str, flags: tuple[str, ...], starts: int
) -> None:
    """A wrong flag, a missing module: once more, as a file system may lag, and not for ever."""
    script = world.script(f"tell('up', ATTEMPT, RANK)\n{how}\n")
    ended = world.run(
        "--nproc_per_node", 2, "--max_restart", 3, "--restart_backoff", "0.01", *flags, script
    )
    assert ended.code in (1, 2)
    assert {event[1] for event in world.events.all("up")} == {str(n) for n in range(starts)}
    assert ("it ended so twice at its start, and would again" in ended.err) == (starts == 2)
