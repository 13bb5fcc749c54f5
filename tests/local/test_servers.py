"""Jobs with servers: who runs them, when they are ended, and what follows when one dies.

``paddock pserver`` itself is stood in for by a program of that name, which is what a job can be
told to use; the real one is in tests/real.
"""

from __future__ import annotations

import os
import shlex
import signal
import sys
from typing import TYPE_CHECKING

import pytest

from local.jobs import PRELUDE, children_of, wait_until
from paddock.local.guardian import state_of

if TYPE_CHECKING:
    from local.jobs import World

SERVE = """
ENV = os.environ
ME = ENV["PADDLE_PSERVER_ID"]
signal.signal(signal.SIGTERM, lambda n, f: (tell("told", "ps", ME), os._exit(0)))
print("server", ME, "serves", flush=True)
at = ENV["POD_IP"] + ":" + ENV["PADDLE_PORT"]
place = ENV["PADDOCK_PS_DATA_DIR"]
tell("serves", ME, os.getpid(), at, place, ENV["PADDLE_TRAINERS_NUM"], *sys.argv[1:])
forever()
"""
TRAIN = "tell('trains', ATTEMPT, RANK)\ngate()\n"
BOTH = """
role = os.environ["TRAINING_ROLE"]
tell("up", role, os.getpid())
if role == "PSERVER": forever()
gate()
"""


def stand_in(world: World, text: str = SERVE) -> str:
    """A program that --server_script takes for Paddock's own server."""
    path = world.folder / "paddock"
    # As pip writes it: a first line `#!PROGRAM` takes no program with a space in its path.
    start = f"#!/bin/sh\n'''exec' '{sys.executable}' \"$0\" \"$@\"\n'''\n"
    path.write_text(start + PRELUDE + text, "utf-8")
    path.chmod(0o755)
    return f"{shlex.quote(str(path))} pserver"


def test_a_killed_server_is_started_again_in_place(world: World) -> None:
    """The trainers go on; it finds its address and its data where they were."""
    running = world.start(
        "--server_num", 2, "--worker_num", 2, "--server_script", stand_in(world),
        world.script(TRAIN),
    )  # fmt: skip
    world.events.wait("trains", count=2)
    (before,) = (e for e in world.events.wait("serves", count=2) if e[1] == "1")
    os.kill(int(before[2]), signal.SIGKILL)
    after = world.events.wait("serves", "1", count=2)[1]
    world.open_gate(2)
    ended = running.end()
    assert (ended.code, ended.left) == (0, [])
    assert after[3:] == before[3:]
    assert after[2] != before[2]
    assert len(world.events.all("trains")) == 2
    line = ended.line(f"(pid {before[2]}) was killed by SIGKILL")
    assert "server 1 on " in line
    assert "restarted in place, 1 of 3 restarts in 10 minutes (--server-restarts)" in line
    assert "servers on this node were restarted 1 time" in ended.err
    assert "first failure" not in ended.err


def test_a_server_told_to_end_by_others_is_started_again(world: World) -> None:
    """It ends well on SIGTERM; the trainers need it all the same."""
    running = world.start(
        "--server_num", 1, "--worker_num", 1, "--server_script", stand_in(world),
        world.script(TRAIN),
    )  # fmt: skip
    (server,) = world.events.wait("serves")
    os.kill(int(server[2]), signal.SIGTERM)
    world.events.wait("serves", count=2)
    world.open_gate(1)
    ended = running.end()
    assert ended.code == 0
    assert "exited with code 0; restarted in place" in ended.err


def test_the_log_of_a_server_started_again_goes_on(world: World) -> None:
    """First what the one before has written, then a line that separates them."""
    text = "print('last words', flush=True)\n" + SERVE
    running = world.start(
        "--server_num", 1, "--worker_num", 1, "--server_script", stand_in(world, text),
        world.script(TRAIN),
    )  # fmt: skip
    (first,) = world.events.wait("serves")
    os.kill(int(first[2]), signal.SIGSEGV)
    world.events.wait("serves", count=2)
    world.open_gate(1)
    assert running.end().code == 0
    words = [line for line in world.log(0, "server").decode().splitlines() if line]
    assert words[:2] + words[3:] == ["last words", "server 0 serves"] * 2
    assert "server 0, run " in words[2]
    assert words[2].endswith("restart 1 in place -----")


def test_what_a_dead_server_left_in_its_group_is_gone(world: World) -> None:
    """It could hold the port and the data that the next one needs."""
    text = """
if os.environ["PADDLE_PSERVER_ID"] and not os.path.exists("once"):
    open("once", "w").close()
    if os.fork() == 0:
        tell("child", os.getpid())
        forever()
"""
    running = world.start(
        "--server_num", 1, "--worker_num", 1, "--server_script", stand_in(world, text + SERVE),
        world.script(TRAIN),
    )  # fmt: skip
    (child,) = world.events.wait("child")
    (server,) = world.events.wait("serves")
    os.kill(int(server[2]), signal.SIGKILL)
    world.events.wait("serves", count=2)
    wait_until(lambda: not os.path.exists(f"/proc/{child[1]}/fd/0"))
    world.open_gate(1)
    assert running.end().code == 0


def test_a_server_that_keeps_dying_ends_the_job(world: World) -> None:
    """As the failure it is, with its exit code and its last words."""
    text = "print('no disk', flush=True)\ntell('serves')\nsys.exit(9)\n"
    ended = world.run(
        "--server_num", 1, "--worker_num", 1, "--server_restarts", 2,
        "--server_script", stand_in(world, text), world.script("forever()"),
    )  # fmt: skip
    assert (ended.code, ended.left) == (9, [])
    assert len(world.events.all("serves")) == 3
    assert "not restarted: 2 restarts in 10 minutes (--server-restarts) are used up" in ended.err
    assert "server 0" in ended.line("first failure")
    assert "no disk" in ended.err


@pytest.mark.parametrize(
    ("flags", "how", "code"),
    [(["--server_restarts", "0"], "os.kill(os.getpid(), 9)", 137), ([], "sys.exit(2)", 2)],
)
def test_a_server_that_may_not_start_again_ends_the_job(
    world: World, flags: list[str], how: str, code: int
) -> None:
    """Restarts switched off, and flags that would be as wrong the second time."""
    text = f"tell('serves')\n{how}\n"
    ended = world.run(
        "--server_num", 1, "--worker_num", 1, *flags, "--server_script", stand_in(world, text),
        world.script("forever()"),
    )  # fmt: skip
    assert (ended.code, ended.left) == (code, [])
    assert len(world.events.all("serves")) == 1
    assert "again" not in ended.err


def test_a_server_that_is_the_script_is_not_started_again(world: World) -> None:
    """Its tables went with it."""
    running = world.start("--server_num", 1, "--worker_num", 1, world.script(BOTH))
    world.events.wait("up", "TRAINER")
    (server,) = world.events.wait("up", "PSERVER")
    os.kill(int(server[2]), signal.SIGKILL)
    ended = running.end()
    assert (ended.code, ended.left) == (137, [])
    assert len(world.events.all("up")) == 2


def test_servers_end_with_the_last_trainer(world: World) -> None:
    """With SIGTERM, and the job has succeeded whatever they answer."""
    text = SERVE.replace("os._exit(0)", "os._exit(3)")
    running = world.start(
        "--server_num", 2, "--worker_num", 2, "--server_script", stand_in(world, text),
        world.script(TRAIN),
    )  # fmt: skip
    world.events.wait("serves", count=2)
    world.events.wait("trains", count=2)
    world.open_gate(1)
    assert world.events.all("told") == []
    world.open_gate(1)
    ended = running.end()
    assert (ended.code, ended.left) == (0, [])
    assert len(world.events.all("told")) == 2


def test_a_server_that_ignores_sigterm_is_killed(world: World) -> None:
    """After the grace, and the job has succeeded all the same."""
    text = BOTH.replace("forever()", "signal.signal(15, signal.SIG_IGN); tell('deaf'); forever()")
    running = world.start(
        "--server_num", 1, "--worker_num", 1, "--grace", "0.2", world.script(text)
    )
    world.events.wait("deaf")
    world.open_gate(1)
    ended = running.end()
    assert (ended.code, ended.left) == (0, [])


def test_trainers_that_are_told_to_stop_still_have_their_servers(world: World) -> None:
    """Ctrl-C means save, and what there is to save is in the servers."""
    train = """
def save(number, frame):
    tell("told", "worker", RANK)
    gate()
    os._exit(0)
signal.signal(signal.SIGINT, save)
tell("trains", ATTEMPT, RANK)
forever()
"""
    running = world.start(
        "--server_num", 1, "--worker_num", 2, "--server_script", stand_in(world),
        world.script(train),
    )  # fmt: skip
    world.events.wait("serves")
    world.events.wait("trains", count=2)
    running.signal(signal.SIGINT)
    world.events.wait("told", "worker", count=2)
    assert world.events.all("told", "ps") == []
    world.open_gate(2)
    ended = running.end()
    assert (ended.code, ended.left) == (130, [])
    assert world.events.all("told")[-1] == ("told", "ps", "0")
    assert "all ranks exited cleanly" in ended.err


def test_a_trainer_below_a_shell_still_has_its_servers(world: World) -> None:
    """The shell has ended and its trainer has not: it saves through the servers."""
    train = """
def save(number, frame):
    tell("told", "worker", RANK)
    gate()
    tell("saved", RANK)
    os._exit(0)
signal.signal(signal.SIGTERM, save)
tell("trains", ATTEMPT, RANK)
forever()
"""
    shell = world.folder / "run.sh"
    start = f"{shlex.quote(sys.executable)} {world.script(train)}"
    shell.write_text(f"#!/bin/sh\n{start}\necho over\n", "utf-8")
    shell.chmod(0o755)
    running = world.start(
        "--server_num", 1, "--worker_num", 2, "--server_script", stand_in(world), shell,
    )  # fmt: skip
    world.events.wait("serves")
    world.events.wait("trains", count=2)
    parents = children_of(running.launcher_pid())
    running.signal(signal.SIGTERM)
    world.events.wait("told", "worker", count=2)
    wait_until(lambda: sum(state_of(pid) == b"Z" for pid in parents) == 2)
    assert world.events.poll(0.3) is False  # the server has heard nothing
    world.open_gate(2)
    ended = running.end()
    assert (ended.code, ended.left) == (143, [])
    assert len(world.events.all("saved")) == 2
    assert world.events.all("told")[-1] == ("told", "ps", "0")


def test_a_new_attempt_gives_its_servers_empty_places(world: World) -> None:
    """Its trainers begin anew, too; what they want to keep they load from a checkpoint."""
    running = world.start(
        "--server_num", 1, "--worker_num", 1, "--max_restart", 1, "--server_script",
        stand_in(world), world.script("tell('trains')\ngate()\nsys.exit(ATTEMPT < 1)\n"),
    )  # fmt: skip
    for number in (1, 2):
        world.events.wait("serves", count=number)
        world.events.wait("trains", count=number)
        world.open_gate(1)
    assert running.end().code == 0
    places = [event[4] for event in world.events.all("serves")]
    assert len(set(places)) == 2
    assert all(p.startswith(f"{world.log_dir}/ps/") and p.endswith("/server-0") for p in places)
    assert not (world.log_dir / "ps").exists()


KEEP = SERVE.replace(
    'tell("serves"', "os.makedirs(place)\nopen(place + '/log', 'w').close()\ntell(\"serves\""
)


@pytest.mark.parametrize("code", [0, 3])
def test_state_of_servers_is_kept_and_one_line_says_where(world: World, code: int) -> None:
    """After success too: it may be the only copy of what was learned."""
    running = world.start(
        "--server_num", 2, "--worker_num", 1, "--server_script", stand_in(world, KEEP),
        world.script(f"gate()\nsys.exit({code})\n"),
    )  # fmt: skip
    places = [event[4] for event in world.events.wait("serves", count=2)]
    assert all(os.path.isfile(f"{place}/log") for place in places)
    world.open_gate(1)
    ended = running.end()
    assert (ended.code, ended.left) == (code, [])
    assert all(os.path.isfile(f"{place}/log") for place in places)
    assert f"the servers' state is kept in {os.path.dirname(places[0])};" in ended.err


def test_state_of_earlier_runs_and_of_the_users_is_left_alone(world: World) -> None:
    """Nothing but empty directories of this run is ever removed."""
    earlier = world.log_dir / "ps" / "0123-0" / "server-0"
    earlier.mkdir(parents=True)
    chosen = world.folder / "nvme"
    for env in ({}, {"PADDOCK_PS_DATA_DIR": str(chosen)}):
        seen = len(world.events.all("serves"))
        running = world.start(
            "--server_num", 1, "--worker_num", 1, "--server_script", stand_in(world, KEEP),
            world.script(TRAIN), env=env,
        )  # fmt: skip
        place = world.events.wait("serves", count=seen + 1)[seen][4]
        world.open_gate(1)
        assert running.end().code == 0
        assert os.path.isfile(f"{place}/log")
    assert earlier.is_dir()


def test_the_start_says_how_to_ask_the_servers(world: World) -> None:
    """A line to copy; nothing of the kind for servers that are not Paddock's."""
    running = world.start(
        "--server_num", 2, "--worker_num", 1, "--server_script", stand_in(world),
        world.script(TRAIN),
    )  # fmt: skip
    found = sorted(world.events.wait("serves", count=2), key=lambda event: event[1])
    world.open_gate(1)
    line = running.end().line("servers: paddock ps status")
    assert " paddock: servers: " in line
    assert line.endswith(f" --endpoints {found[0][3]},{found[1][3]}")
    running = world.start("--server_num", 1, "--worker_num", 1, world.script(BOTH))
    world.events.wait("up", count=2)
    world.open_gate(1)
    assert "paddock ps" not in running.end().err


def test_flags_of_the_server_are_passed_on(world: World) -> None:
    """--server_script takes a whole command."""
    running = world.start(
        "--server_num", 1, "--worker_num", 1, "--server_script",
        stand_in(world) + " --ack 'two words'", world.script(TRAIN),
    )  # fmt: skip
    (event,) = world.events.wait("serves")
    world.open_gate(1)
    assert running.end().code == 0
    assert event[6:] == ("pserver", "--ack", "two", "words")


def test_servers_can_have_a_script_of_their_own(world: World) -> None:
    """Not restarted in place: nobody knows where its state is."""
    own = world.script("tell('own', os.environ['TRAINING_ROLE'], *sys.argv[1:])\nforever()", "s.py")
    running = world.start(
        "--server_num", 1, "--worker_num", 1, "--server_script", f"'{own}' 7",
        world.script("tell('up', *sys.argv[1:])\ngate()"), "--lr", 1,
    )  # fmt: skip
    assert world.events.wait("own") == [("own", "PSERVER", "7")]
    assert world.events.wait("up") == [("up", "--lr", "1")]
    world.open_gate(1)
    ended = running.end()
    assert ended.code == 0
    assert "servers run " in (world.log_dir / "launcher.log").read_text()


def test_a_server_script_that_is_not_there_is_said_first(world: World) -> None:
    """Together with what else is wrong; nothing is started."""
    ended = world.run(
        "--server_num", 1, "--worker_num", 1, "--server_script", "nowhere.py",
        world.script("tell('up')"),
    )  # fmt: skip
    assert ended.code == 2
    assert "script 'nowhere.py' does not exist" in ended.err
    assert world.events.all("up") == []
