"""The launcher's exit code is the culprit's, and its report says who, where and why."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from local.jobs import World


@pytest.mark.parametrize("code", [1, 7, 2, 124, 125, 126, 127, 255])
def test_the_exit_code_is_the_culprits(world: World, code: int) -> None:
    """A scheduler above reads it: 1 for everything (torchrun) tells it nothing."""
    ended = world.run("--nproc_per_node", 2, world.script(f"sys.exit({code} if RANK else 0)"))
    assert (ended.code, ended.left) == (code, [])
    assert "first failure: rank 1 (pid " in ended.err
    assert f"exited with code {code}\n" in ended.err
    assert f"exit code {code}" in ended.err


@pytest.mark.parametrize("name", ["SIGKILL", "SIGSEGV", "SIGABRT", "SIGTERM"])
def test_a_signal_gives_128_and_its_number(world: World, name: str) -> None:
    """As a shell reports it, and by its name for people."""
    number = getattr(signal, name)
    text = "import resource\nresource.setrlimit(resource.RLIMIT_CORE, (0, 0))\n"
    text += f"if RANK == 1: os.kill(os.getpid(), {int(number)})\nforever()\n"
    ended = world.run("--nproc_per_node", 2, world.script(text))
    assert ended.code == 128 + number
    assert f"was killed by {name}" in ended.line("first failure")


def test_success_is_0_and_leaves_nothing(world: World) -> None:
    """Nothing on stdout but what rank 0 wrote."""
    ended = world.run("--nproc_per_node", 3, world.script("print('done', RANK)"))
    assert (ended.code, ended.out, ended.left) == (0, "done 0\n", [])
    assert "paddock: done" in ended.err


def test_the_report_quotes_the_traceback_and_the_log(world: World) -> None:
    """The answer to "why" without opening 64 files."""
    text = "if RANK == 1: raise ValueError('loss is nan at step 7')\nforever()\n"
    ended = world.run("--nproc_per_node", 3, world.script(text))
    assert ended.code == 1
    assert "ValueError: loss is nan at step 7" in ended.err
    assert "log: log/workerlog.1 on " in ended.err
    assert "stopped as a result: rank 0, rank 2" in ended.err


def test_the_abort_line_of_the_documents_is_there(world: World) -> None:
    """Scripts of users search for it."""
    world.run("--nproc_per_node", 2, world.script("sys.exit(3 if RANK else 0)"))
    wanted = (
        "ABORT!!! Out of all 2 trainers, the trainer process with rank=[1] was aborted. "
        "Please check its log."
    )
    assert wanted in (world.log_dir / "launcher.log").read_text()


def test_a_missing_program_gives_127(world: World) -> None:
    """As a shell does (POSIX sh, 2.8.2)."""
    ended = world.run("--nproc_per_node", 2, "--no_python", "no-such-program-7")
    assert (ended.code, ended.left) == (127, [])
    assert ended.err.startswith("paddock: error: program 'no-such-program-7' is not on PATH")


def test_a_program_that_may_not_run_gives_126(world: World) -> None:
    """With the command that mends it."""
    program = world.folder / "train.sh"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o644)
    ended = world.run("--nproc_per_node", 2, "--no_python", program)
    assert (ended.code, ended.left) == (126, [])
    assert f"hint: chmod +x {program}" in ended.err


@pytest.mark.parametrize(
    ("first_line", "code"), [("#!/no/such/interpreter", 127), ("\x7fELF nonsense", 126)]
)
def test_a_program_the_kernel_refuses_is_reported(world: World, first_line: str, code: int) -> None:
    """Only the kernel can tell; the report says which process and how."""
    program = world.folder / "train.bin"
    program.write_text(first_line + "\n")
    program.chmod(0o755)
    ended = world.run("--nproc_per_node", 2, "--max_restart", 3, "--no_python", program)
    assert (ended.code, ended.left) == (code, [])
    assert "could not be started" in ended.err


def test_a_time_limit_gives_124(world: World) -> None:
    """--timeout, as timeout(1) reports it."""
    ended = world.run("--nproc_per_node", 2, "--timeout", "0.5", world.script("forever()"))
    assert (ended.code, ended.left) == (124, [])
    assert "--timeout" in ended.err


def test_a_script_that_closes_its_output_is_still_judged(world: World) -> None:
    """Daemons close 0, 1 and 2; the exit code counts, not the pipe."""
    ended = world.run(
        "--nproc_per_node", 2, world.script("os.close(1)\nos.close(2)\nos._exit(5 * RANK)")
    )
    assert ended.code == 5


def test_a_shell_program_is_launched_as_it_is(world: World) -> None:
    """No Python in it at all."""
    program = world.folder / "train.sh"
    program.write_text('#!/bin/sh\necho "rank $PADDLE_TRAINER_ID of $PADDLE_TRAINERS_NUM"\n')
    program.chmod(0o755)
    ended = world.run("--nproc_per_node", 2, program)
    assert (ended.code, ended.out) == (0, "rank 0 of 2\n")
    assert world.log(1) == b"rank 1 of 2\n"


def test_a_module_is_launched_by_its_name(world: World) -> None:
    """-m, as python has it."""
    Path(world.folder, "trainer.py").write_text("import sys\nprint('module', *sys.argv[1:])\n")
    ended = world.run(
        "--nproc_per_node", 1, "-m", "trainer", "--lr", "0.1",
        env={"PYTHONPATH": f"{os.environ.get('PYTHONPATH', '')}:{world.folder}:{world.source}"},
    )  # fmt: skip
    assert (ended.code, ended.out) == (0, "module --lr 0.1\n")
