"""What people see of a running job, and what they type into it."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from local.jobs import World

LINES = 1_000_000


def test_stdin_goes_to_rank_0_only(world: World) -> None:
    """`paddock launch train.py < data`: one reader, the others see an empty file."""
    read_fd, write_fd = os.pipe()
    text = "tell('got', RANK, (sys.stdin.read() or 'nothing').strip())\n"
    running = world.start("--nproc_per_node", 3, world.script(text), stdin=read_fd)
    os.close(read_fd)
    os.write(write_fd, b"hello\n")
    os.close(write_fd)
    assert running.end().code == 0
    assert sorted(world.events.all("got")) == [
        ("got", "0", "hello"), ("got", "1", "nothing"), ("got", "2", "nothing"),
    ]  # fmt: skip


def test_a_prompt_of_rank_0_can_be_answered(world: World) -> None:
    """As under python itself: the question first, then the answer."""
    read_fd, write_fd = os.pipe()
    script = world.script("print('hello', input('who are you? '))")
    running = world.start("--nproc_per_node", 1, script, stdin=read_fd)
    os.close(read_fd)
    running.wait_for("who are you? ")
    os.write(write_fd, b"a user\n")
    os.close(write_fd)
    assert running.end().out == "who are you? hello a user\n"


@pytest.mark.limit(90)
def test_a_million_lines_come_complete_and_in_order(world: World) -> None:
    """In the file and on the console, prefixed or not."""
    text = f"""
out = open(1, "w", buffering=1 << 16)
for number in range({LINES}):
    out.write("line %d\\n" % number)
out.flush()
"""
    ended = world.run("--nproc_per_node", 1, world.script(text))
    wanted = "".join(f"line {n}\n" for n in range(LINES))
    assert ended.code == 0
    assert ended.out == wanted
    assert world.log(0).decode() == wanted


def test_what_a_rank_wrote_before_its_death_is_shown(world: World) -> None:
    """200 kB in the pipe when it is killed are not lost."""
    text = "os.write(1, b'x' * 199 + b'\\n')\n" * 10
    text += "import fcntl\nfcntl.fcntl(1, 1031, 1 << 20)\n"
    text += "os.write(1, (b'x' * 199 + b'\\n') * 1000)\nos.kill(os.getpid(), 9)\n"
    ended = world.run("--nproc_per_node", 1, world.script(text))
    assert ended.code == 137
    assert ended.out.count("x" * 199 + "\n") == 1010


def test_python_below_a_wrapper_prints_at_once(world: World) -> None:
    """`./train.sh` that starts python3, as most of them do: its lines outlive SIGKILL, too."""
    script = world.script("print('step 1')\nos.kill(os.getpid(), 9)")
    wrapper = world.folder / "train.sh"
    wrapper.write_text(f"#!/bin/sh\n{sys.executable} {script}\n")
    wrapper.chmod(0o755)
    without = ("env", "--unset", "PYTHONUNBUFFERED")  # what tests run under may have it
    ended = world.start("--nproc_per_node", 1, str(wrapper), before=without).end()
    assert ended.code == 137
    assert b"step 1\n" in world.log(0)


def test_a_program_in_another_language_has_its_glog_lines_shown(world: World) -> None:
    """A C++ trainer tells its loss so; those of a Python rank are mostly its framework's."""
    line = "I1125 20:42:34.510118  2509 train.cc:88] step 1 loss 0.31"
    wrapper = world.folder / "trainer"
    wrapper.write_text(f"#!/bin/sh\necho '{line}'\n")
    wrapper.chmod(0o755)
    assert line in world.run("--nproc_per_node", 1, "--console", "short", str(wrapper)).out
    of_python = world.run(
        "--nproc_per_node", 1, "--console", "short", world.script(f"print('{line}')")
    )
    assert line not in of_python.out and "framework messages" in of_python.err


def test_lines_of_64_ranks_are_whole_and_all_there(world: World) -> None:
    """Every line once, with its rank before it, none torn."""
    text = "for n in range(20):\n    print(f'{RANK}-{n}'.ljust(150, '.'))\n"
    ended = world.run("--nproc_per_node", 64, "--tail", "all", world.script(text))
    wanted = {
        f"[rank {rank}] " + f"{rank}-{n}".ljust(150, ".")
        for rank in range(64)
        for n in range(20)
    }  # fmt: skip
    shown = ended.out.splitlines()
    assert (ended.code, ended.left) == (0, [])
    assert (set(shown), len(shown)) == (wanted, 64 * 20)


@pytest.mark.parametrize(
    ("tail", "shown"),
    [
        ("0", "0\n"),
        ("none", ""),
        ("2", "2\n"),
        ("1,3", "[rank 1] 1\n[rank 3] 3\n"),
        ("worker", "[rank 0] 0\n[rank 1] 1\n[rank 2] 2\n[rank 3] 3\n"),
    ],
)
def test_tail_chooses_whose_output_is_shown(world: World, tail: str, shown: str) -> None:
    """One process as it is, several with role and rank."""
    ended = world.run("--nproc_per_node", 4, "--tail", tail, world.script("print(RANK)"))
    assert "".join(sorted(ended.out.splitlines(keepends=True))) == shown


def test_stderr_of_a_rank_is_in_its_log_and_on_the_console(world: World) -> None:
    """On one terminal or pipe, warnings and tracebacks stand among the other lines, in order."""
    script = world.script("print('one')\nprint('two', file=sys.stderr)\nprint('three')\n")
    read_end, write_end = os.pipe()
    with open(read_end) as console:
        running = world.start("--log_level", "ERROR", "--nproc_per_node", 1, script,
                              stdout=write_end, stderr=write_end)  # fmt: skip
        os.close(write_end)
        assert console.read() == "one\ntwo\nthree\n"
    assert running.end().code == 0
    assert world.log(0) == b"one\ntwo\nthree\n"


def test_who_keeps_stderr_apart_gets_it_apart(world: World) -> None:
    """2>err.txt held the launcher's lines, and the rank's warnings were in out.txt."""
    script = world.script("print('one')\nprint('two', file=sys.stderr)\n")
    ended = world.run("--log_level", "ERROR", "--nproc_per_node", 2, "--tail", "all", script)
    assert sorted(ended.out.splitlines()) == ["[rank 0] one", "[rank 1] one"]
    assert sorted(ended.err.splitlines()) == ["[rank 0] two", "[rank 1] two"]
    assert sorted(world.log(1).splitlines()) == [b"one", b"two"]


@pytest.mark.parametrize(
    ("words", "out", "err"),
    [
        ("--redirects 3", "", ""),
        ("--redirects 1 --prefix never", "", "e0|e1"),
        ("--redirects 3 --tee 1:1", "[rank 1] o1", ""),
        ("-r 3 -t 0:2,1:3 --log-line-prefix-template [${role_name}${local_rank}]:",
         "[rank1]:o1", "[rank0]:e0|[rank1]:e1"),
        ("--local-ranks-filter 1", "[rank 1] o1", "[rank 1] e1"),
    ],
)  # fmt: skip
def test_the_console_shows_the_streams_that_torchrun_shows(
    world: World, words: str, out: str, err: str
) -> None:
    """The log files have both streams of every rank in any case."""
    script = world.script("print(f'o{RANK}')\nprint(f'e{RANK}', file=sys.stderr)\n")
    ended = world.run(
        "--log_level", "ERROR", "--nproc_per_node", 2, "--role", "rank", *words.split(), script
    )
    assert ("|".join(sorted(ended.out.splitlines())), "|".join(sorted(ended.err.splitlines()))) == (
        out,
        err,
    )
    assert sorted(world.log(0).split()) == [b"e0", b"o0"]


def test_a_progress_bar_on_stderr_is_seen_while_it_grows(world: World) -> None:
    """tqdm writes there, without a newline; apart from stdout it must not wait for one."""
    running = world.start("--nproc_per_node", 1, world.script(
        "sys.stderr.write('50%')\nsys.stderr.flush()\ngate()"))  # fmt: skip
    running.wait_for("50%")
    world.open_gate(1)
    assert running.end().code == 0


def test_what_record_of_torch_has_written_is_the_reason(world: World) -> None:
    """The traceback is in a file; what is printed later hides nothing."""
    ended = world.run("--nproc_per_node", 1, world.script(
        "import json, os\n"
        "what = {'message': 'x', 'extraInfo': {'py_callstack': 'Traceback (most recent call last):"
        "\\n  File \"t.py\", line 1\\nValueError: from the file\\n'}}\n"
        "with open(os.environ['TORCHELASTIC_ERROR_FILE'], 'w') as f:\n"
        "    json.dump({'message': what}, f)\n"
        "print('good bye')\nsys.exit(3)"))  # fmt: skip
    assert ended.code == 3
    assert "ValueError: from the file" in ended.err


def test_the_documented_lines_come_before_training_ends(world: World) -> None:
    """Notebooks and schedulers wait for "status running"; it must not sit in a buffer."""
    words = ("--nproc_per_node", 2, "--console", "paddle")
    running = world.start(*words, world.script("gate()"))
    running.wait_for("replicas 2, status running")
    world.open_gate(2)
    ended = running.end()
    for text in (
        "-----------  Configuration  ----------------------",
        "Job: default, mode collective, replicas 1[1:1], elastic False",
        "Pod completed",
        "Exit code 0",
    ):
        assert text in ended.err


def test_a_quiet_launcher_says_only_what_went_wrong(world: World) -> None:
    """--log_level ERROR."""
    script = world.script("print('out', flush=True)\ngate()\nsys.exit(RANK)")
    running = world.start("--nproc_per_node", 2, "--log_level", "ERROR", script)
    running.wait_for("out")
    world.open_gate(2)
    ended = running.end()
    assert (ended.code, ended.out) == (1, "out\n")
    assert " INFO " not in ended.err and "first failure: rank 1" in ended.err


def test_a_closed_console_does_not_end_the_job(world: World) -> None:
    """`paddock launch ... | head -1`."""
    read_fd, write_fd = os.pipe()
    text = "for n in range(10_000): print('line', n)\ntell('done')\n"
    running = world.start("--nproc_per_node", 1, world.script(text), stdout=write_fd)
    os.close(write_fd)
    os.close(read_fd)
    ended = running.end()
    assert ended.code == 0
    assert world.log(0).count(b"\n") == 10_000


def pipe_nobody_reads() -> tuple[int, int]:
    """A pager nobody scrolls."""
    return os.pipe()


def terminal_nobody_reads() -> tuple[int, int]:
    """A stalled ssh, or Ctrl-S: what is written waits in the kernel until that is full."""
    return os.openpty()


@pytest.mark.parametrize("console", [pipe_nobody_reads, terminal_nobody_reads])
def test_a_console_that_does_not_drain_does_not_stop_others(
    world: World, console: Callable[[], tuple[int, int]]
) -> None:
    """Other ranks train on, their logs grow, and all end although nobody reads a line."""
    read_fd, write_fd = console()
    text = """
if RANK == 0:
    while True:
        os.write(1, b"x" * 4095 + b"\\n")
for n in range(50_000):
    print("line", n)
tell("trained")
gate()
"""
    words = ("--nproc_per_node", 2, world.script(text))
    running = world.start(*words, stdout=write_fd, stderr=write_fd)
    world.events.wait("trained")
    running.signal(signal.SIGTERM)
    ended = running.end()
    is_blocking = os.get_blocking(write_fd)  # it is the user's shell's too
    os.close(read_fd)
    os.close(write_fd)
    assert (ended.code, ended.left, is_blocking) == (143, [], True)
    assert world.log(1).count(b"line") == 50_000


def test_a_terminal_shows_everything_in_order(world: World) -> None:
    """Its lines pass through a pipe and a thread of ours, which must not be seen."""
    text = "for n in range(20_000): print('line', n)\nsys.stdout.flush()\nsys.exit(3)\n"
    ended, lines = world.run_on_terminal(world.script(text), until=b"exit code 3")
    assert ended.code == 3
    assert "".join(f"line {n}\n" for n in range(20_000)) in lines
    assert lines.index("1 rank on") < lines.index("line 0\n") < lines.index("first failure")


def test_last_words_to_a_stuck_terminal_keep_nobody(world: World) -> None:
    """The launcher is killed: the guardian ends what it left, tries to say so, and goes."""
    read_fd, write_fd = os.openpty()
    own = os.open(os.ttyname(write_fd), os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(own, b"x" * 100)
    os.close(own)
    running = world.start(world.script("tell('up')\nforever()"), stderr=write_fd)
    world.events.wait("up")
    os.kill(running.launcher_pid(), signal.SIGKILL)
    ended = running.end()
    os.close(read_fd)
    os.close(write_fd)
    assert (ended.code, ended.left) == (137, [])
