"""Ctrl-C: ranks get SIGINT, so that `except KeyboardInterrupt` saves; then SIGTERM, SIGKILL."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest

from local.jobs import free_port
from local.test_guardian import WRAPPERS, wrapped
from paddock.local.lingering import signal_for

if TYPE_CHECKING:
    from local.jobs import Ended, Running, World

INT, TERM = 1 << signal.SIGINT - 1, 1 << signal.SIGTERM - 1

# The idiom, saving for as long as the test likes. A second interrupt would end it.
SAVES = """
try:
    try:
        tell("up", RANK, os.getpid())
        forever()
    except KeyboardInterrupt:
        tell("saving", RANK)
        gate()
        open(f"saved.{RANK}", "w").close()
except KeyboardInterrupt:
    tell("interrupted twice", RANK)
"""


def interrupted_in_time(world: World, running: Running) -> Ended:
    """The end of two ranks of SAVES that Ctrl-C finds at work, and that have the time to save."""
    world.events.wait("up", count=2)
    running.signal_group(signal.SIGINT)
    world.events.wait("saving", count=2)
    world.open_gate(2)
    return running.end()


@pytest.mark.parametrize("warm", ["off", "on"])
def test_what_saves_on_keyboard_interrupt_saves_on_ctrl_c(world: World, warm: str) -> None:
    """The usual idiom of training scripts, which torchrun's users have as well."""
    running = world.start("--nproc_per_node", 2, "--warm", warm, world.script(SAVES))
    ended = interrupted_in_time(world, running)
    assert (ended.code, ended.left) == (130, [])
    assert len(list(world.folder.glob("saved.*"))) == 2
    assert "all ranks exited cleanly" in ended.err


@pytest.mark.parametrize("wrapper", [*(w for w in WRAPPERS if w != "background"), "no shell"])
def test_a_trainer_below_a_wrapper_is_interrupted_once(world: World, wrapper: str) -> None:
    """`timeout` hands the signal on; a second one would end the saving that the first began."""
    words = wrapped(world, SAVES, wrapper if wrapper in WRAPPERS else "same group")
    if wrapper == "no shell":
        words = ["--no_python", "timeout", "600", *words]
    running = world.start("--nproc_per_node", 2, *words)
    ended = interrupted_in_time(world, running)
    assert (ended.code, ended.left) == (130, [])
    assert world.events.all("interrupted twice") == []
    assert len(list(world.folder.glob("saved.*"))) == 2


def test_the_ranks_of_every_node_are_interrupted(world: World) -> None:
    """Ctrl-C on one of them: what saves together has to hear the same."""
    script = world.script(SAVES)
    words = ("--nnodes", 2, "--master", f"127.0.0.1:{free_port()}", script)
    nodes = [world.start(*words, log_dir=world.folder / f"log{i}") for i in range(2)]
    world.events.wait("up", count=2)
    nodes[1].signal_group(signal.SIGINT)
    world.events.wait("saving", count=2)
    world.open_gate(2)
    ends = [node.end() for node in nodes]
    assert [(ended.code, ended.left) for ended in ends] == [(130, []), (130, [])]
    assert len(list(world.folder.glob("saved.*"))) == 2


def test_sigterm_follows_within_the_grace_and_ends_nobody_who_saves(world: World) -> None:
    """Rank 1 takes note of every signal; rank 0, which SIGTERM would end, saves until then."""
    notes = """
if RANK == 1:
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda n, f: tell("heard", n))
    tell("up", RANK)
    forever()
"""
    script = world.script(notes + SAVES)
    running = world.start("--nproc_per_node", 2, "--grace", 8, script)
    world.events.wait("up", count=2)
    running.signal_group(signal.SIGINT)
    world.events.wait("saving", "0")
    world.events.wait("heard", "15")
    world.open_gate(1)
    ended = running.end()
    assert (ended.code, ended.left) == (130, [])
    assert [event[1] for event in world.events.all("heard")] == ["2", "15"]
    assert len(list(world.folder.glob("saved.*"))) == 1
    assert "1 rank did not exit cleanly" in ended.err


IGNORES = """
signal.signal(signal.SIGINT, signal.SIG_IGN)
signal.signal(signal.SIGTERM, lambda n, f: (tell("heard", n), sys.exit(0)))
tell("up", RANK)
forever()
"""


@pytest.mark.parametrize("is_wrapped", [False, True])
def test_a_rank_that_ignores_sigint_has_all_the_grace(world: World, is_wrapped: bool) -> None:
    """Also below a shell, whose background commands ignore it: SIGTERM comes at once."""
    words = wrapped(world, IGNORES, "background") if is_wrapped else [world.script(IGNORES)]
    running = world.start("--nproc_per_node", 2, "--grace", 3600, *words)
    world.events.wait("up", count=2)
    running.signal_group(signal.SIGINT)
    world.events.wait("heard", "15", count=2)
    ended = running.end()
    assert (ended.code, ended.left) == (130, [])


def test_what_a_shell_has_left_gets_sigterm_too(world: World) -> None:
    """The shell is gone at once, and what it has started does not end of SIGINT."""
    text = """
signal.signal(signal.SIGINT, lambda n, f: tell("heard", n))
signal.signal(signal.SIGTERM, lambda n, f: (tell("heard", n), sys.exit(0)))
tell("up", RANK)
forever()
"""
    running = world.start("--grace", 4, *wrapped(world, text, "background"))
    world.events.wait("up")
    running.signal_group(signal.SIGINT)
    world.events.wait("heard", "15")
    ended = running.end()
    assert (ended.code, ended.left) == (130, [])
    assert [event[1] for event in world.events.all("heard")] == ["2", "15"]


def test_ranks_that_an_interrupt_ends_are_no_failures(world: World) -> None:
    """By the signal, by its exit code, and with a traceback and another code."""
    text = """
try:
    tell("up", RANK)
    forever()
except KeyboardInterrupt:
    if RANK == 1:
        sys.exit(130)
    if RANK == 2:
        raise RuntimeError("the loader was interrupted")
    raise
"""
    running = world.start("--nproc_per_node", 3, "--max_restart", 3, world.script(text))
    world.events.wait("up", count=3)
    running.signal_group(signal.SIGINT)
    ended = running.end()
    assert (ended.code, ended.left) == (130, [])
    assert "SIGINT ended 2 ranks; 1 rank did not exit cleanly" in ended.err
    assert "first failure" not in ended.console


def test_should_stop_hears_ctrl_c(world: World) -> None:
    """The loop that asks it at every step ends as with SIGTERM."""
    text = """
import paddock
paddock.should_stop()
tell("up", RANK)
while not paddock.should_stop():
    time.sleep(0.01)
tell("saved", RANK)
"""
    running = world.start("--nproc_per_node", 2, world.script(text))
    world.events.wait("up", count=2)
    running.signal_group(signal.SIGINT)
    ended = running.end()
    assert (ended.code, ended.left) == (130, [])
    assert len(world.events.all("saved")) == 2
    assert "all ranks exited cleanly" in ended.err


@pytest.mark.parametrize(
    ("caught", "ignored", "first", "then"),
    [
        (INT, 0, "SIGINT", None),  # Python: SIGTERM would end what it saves
        (INT | TERM, 0, "SIGINT", "SIGTERM"),
        (TERM, 0, "SIGTERM", "SIGTERM"),
        (TERM, INT, "SIGTERM", "SIGTERM"),
        (0, INT, None, "SIGTERM"),  # a helper that lives while its parent saves
        (0, 0, "SIGINT", "SIGTERM"),
    ],
)
def test_a_process_gets_the_signal_that_it_handles(
    caught: int, ignored: int, first: str | None, then: str | None
) -> None:
    """The first signal, and the SIGTERM that follows it."""
    chosen = [
        signal_for(number, signal.SIGINT, caught=caught, ignored=ignored)
        for number in (signal.SIGINT, signal.SIGTERM)
    ]
    assert chosen == [getattr(signal, name) if name else 0 for name in (first, then)]


# What people write around a training command, to have its output in a file, too.
PIPES = {
    "tee": "{python} {script} 2>&1 | tee log.txt",
    "two filters": "{python} {script} | grep --line-buffered . | cat; echo over",
    "substitution": "exec > >(tee log.txt) 2>&1\n{python} {script}\necho over",
}
PRINTS = """
def save(number, frame):
    tell("saving", RANK)
    gate()
    print("nearly saved", flush=True)
    open(f"saved.{RANK}", "w").close()
    sys.exit(0)
for number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(number, save)
tell("up", RANK, os.getpid())
forever()
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("pipe", PIPES)
def test_what_reads_the_output_of_a_trainer_outlives_it(
    world: World, monkeypatch: pytest.MonkeyPatch, pipe: str, number: int
) -> None:
    """A signal would end tee at once, and the trainer with the next line that it prints."""
    monkeypatch.setitem(WRAPPERS, pipe, PIPES[pipe])
    running = world.start("--nproc_per_node", 2, *wrapped(world, PRINTS, pipe))
    world.events.wait("up", count=2)
    running.signal_group(number)
    world.events.wait("saving", count=2)
    world.open_gate(2)
    ended = running.end()
    assert (ended.code, ended.left) == (128 + number, [])
    assert len(list(world.folder.glob("saved.*"))) == 2
    assert all(b"nearly saved" in world.log(rank) for rank in range(2))
