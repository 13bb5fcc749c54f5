"""Ranks of --debug-ranks write their stacks themselves; no other process gets a signal for it."""

from __future__ import annotations

import os
import site
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING

import pytest

import paddock
from paddock.contracts.environment import DEBUG_FDS, DEBUG_VARIABLE
from paddock.local.warm.process import HOOK
from paddock.watch.debugged import own_numbers, own_stacks
from paddock.watch.stacks import dump, missing_hint
from watched import STUCK, launched

if TYPE_CHECKING:
    from collections.abc import Iterator

SECONDS = 30.0
LOCK = """\
import threading
def 等待锁():
    lock = threading.Lock(); lock.acquire()
    print("ready", flush=True)
    lock.acquire()
等待锁()
"""
READY = "print('ready', flush=True); import time; time.sleep(99)"


@contextmanager
def rank(code: str, *flags: str) -> Iterator[subprocess.Popen[str]]:
    """A Python as a launcher of --debug-ranks starts it, once its script has printed a line."""
    process = subprocess.Popen(
        [sys.executable, *flags, "-c", code], stdout=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": HOOK, DEBUG_VARIABLE: "1"},
    )  # fmt: skip
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "ready\n"
        yield process
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("code", [LOCK, LOCK.replace("lock.acquire()\n等", "while True: pass\n等")])
def test_a_rank_writes_its_stack_as_often_as_it_is_asked(code: str) -> None:
    """No py-spy: stuck in C code, or computing. Names are those of the script."""
    with rank(code) as process:
        for _ in range(3):
            (stack,), _ = dump({5: process.pid}, "", SECONDS)
            names = [frame.function for frame in stack.frames]
            assert (names, stack.rank) == (["等待锁", "<module>"], 5)
            assert (stack.by, stack.problem) == ("faulthandler", "")
        assert process.poll() is None


def test_a_rank_writes_its_stack_also_where_py_spy_hangs(tmp_path: Path) -> None:
    hanging = tmp_path / "py-spy"
    hanging.write_text("#!/bin/sh\nexec sleep 1000\n")
    hanging.chmod(0o755)
    with rank(READY) as process:
        (stack,), _ = dump({0: process.pid}, str(hanging), 4.0)
    assert stack.by == "faulthandler"


def test_a_file_of_the_script_in_place_of_the_pipe_is_left_alone(tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.write_text("precious")
    code = f"import os; os.dup2(os.open({str(own)!r}, os.O_RDWR), {DEBUG_FDS[2]}); {READY}"
    with rank(code) as process:
        assert own_numbers({0: process.pid}, monotonic() + 1) == {}
    assert own.read_text() == "precious"


def test_a_script_that_closes_all_files_has_no_traceback_of_ours() -> None:
    code = "import os, time; os.closerange(3, 1 << 12); time.sleep(0.2); print('done')"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True,
        env={**os.environ, "PYTHONPATH": HOOK, DEBUG_VARIABLE: "1"},
    )  # fmt: skip
    assert (done.stdout, done.stderr) == ("done\n", "")


def test_both_ways_to_whole_stacks_are_told_where_there_are_none() -> None:
    with rank(READY, "-S") as process:
        stacks, _ = dump({0: process.pid}, "", SECONDS)
    hint = missing_hint(stacks)
    assert "pip install 'paddock-train[debug]'" in hint
    assert "--debug-ranks" in hint


@pytest.mark.parametrize(
    ("code", "flags"),
    [
        (READY, ("-S",)),  # a Python that reads no sitecustomize
        ("import signal; signal.signal(signal.SIGRTMIN + 10, signal.SIG_DFL); " + READY, ()),
        ("import signal; signal.pthread_sigmask(0, range(1, 65)); " + READY, ()),
        (f"import os; os.dup2(os.open('/dev/null', 1), {DEBUG_FDS[0]}); " + READY, ()),
    ],
)
def test_no_signal_goes_to_a_process_that_would_not_answer(
    code: str, flags: tuple[str, ...]
) -> None:
    with rank(code, *flags) as process:
        assert own_stacks({0: process.pid}, monotonic() + 1) == {}
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.3)


def test_the_users_own_sitecustomize_runs_and_children_are_as_without(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import builtins; builtins.theirs = 7\n")
    child = f"import os; print(os.environ['PYTHONPATH'], {DEBUG_VARIABLE!r} in os.environ)"
    code = (
        "import subprocess, sys; print(theirs, flush=True)\n"
        f"subprocess.run([sys.executable, '-c', {child!r}])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True,
        env={**os.environ, "PYTHONPATH": f"{HOOK}:{tmp_path}", DEBUG_VARIABLE: "1"},
    )  # fmt: skip
    assert done.stdout.split() == ["7", str(tmp_path), "False"]


@pytest.mark.real
@pytest.mark.limit(240)
@pytest.mark.parametrize(
    ("warm", "stuck", "place"),
    [
        ("off", "os.read(os.pipe()[0], 1)", "read_the_wrong_shard"),
        ("on", "dist.recv(t, src=0)", "recv"),
    ],
)
def test_ranks_of_torch_tell_their_stacks_where_py_spy_may_not(
    tmp_path: Path, warm: str, stuck: str, place: str
) -> None:
    """Four ranks of gloo, one stuck in its own code, or in a collective like all others; py-spy is
    refused. The flight recorder tells who is behind.
    """
    pytest.importorskip("torch")
    refused = tmp_path / "py-spy"
    refused.write_text("#!/bin/sh\necho Permission denied >&2\nexit 1\n")
    refused.chmod(0o755)
    python = str(Path(sys.executable).resolve())  # the one without a py-spy beside it
    source = str(Path(paddock.__file__).parents[1])
    flags = ("--nproc-per-node", "4", "--debug-ranks", "--warm", warm)
    with launched(
        tmp_path, STUCK.replace("os.read(os.pipe()[0], 1)", stuck), "pipe", flags=flags,
        python=python, env={
            "PATH": f"{tmp_path}:{os.environ['PATH']}",
            "PYTHONPATH": os.pathsep.join((source, *site.getsitepackages())),
        },
    ) as run:  # fmt: skip
        run.wait(lambda: any(row["step"] >= 30 for row in run.rows("progress")))
        asked = ("stacks", run.run_id)
        text = run.wait(lambda: f"rank 2: {place} " in (t := run.paddock(*asked)) and t)
        assert "the others wait for rank 2" in text
        assert f"rank 2: {place} at train.py:13 after #40, by faulthandler" in text
        assert "ranks 0-1,3: all_reduce #41 at train.py:18, by faulthandler" in text


@pytest.mark.real
@pytest.mark.limit(120)
def test_sigterm_comes_within_a_short_grace_though_stacks_are_taken(tmp_path: Path) -> None:
    """py-spy hangs; the survivor has most of --grace left to save all the same."""
    python = str(Path(sys.executable).resolve())
    (tmp_path / "py-spy").write_text("#!/bin/sh\nexec sleep 1000\n")
    (tmp_path / "py-spy").chmod(0o755)
    script = (
        "import os, signal, sys, time\n"
        "def save(*_):\n    open('saved', 'w').close(); os._exit(0)\n"
        "signal.signal(signal.SIGTERM, save)\ntime.sleep(3)\n"
        "if os.environ['RANK'] == '1': sys.exit(7)\ntime.sleep(99)\n"
    )
    source = str(Path(paddock.__file__).parents[1])
    with launched(
        tmp_path, script, flags=("--nproc-per-node", "2", "--grace", "0.9"), python=python,
        env={"PYTHONPATH": source, "PATH": f"{tmp_path}:{os.environ['PATH']}"},
    ) as run:  # fmt: skip
        assert run.process.wait(60) == 7
        assert (tmp_path / "saved").exists()
