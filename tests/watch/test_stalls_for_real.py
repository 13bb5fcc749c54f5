"""Real ranks that stand still: the suspect is named; and what only looks like it is no stall."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from watched import STUCK, launched

pytestmark = [pytest.mark.real, pytest.mark.limit(240)]
FLAGS = ("--nproc-per-node", "4", "--stall-after", "25")


@pytest.fixture(scope="module", autouse=True)
def _needs() -> None:
    pytest.importorskip("torch")
    if not os.access(Path(sys.executable).with_name("py-spy"), os.X_OK) and not shutil.which(
        "py-spy"
    ):
        pytest.skip("py-spy is not installed")


@pytest.mark.parametrize("how", ["sleep", "loop", "pipe", "lock"])
def test_the_rank_that_the_others_wait_for_is_named(tmp_path: Path, how: str) -> None:
    """Four ranks of gloo, one stuck in its own code: /proc alone cannot tell who, stacks can."""
    with launched(tmp_path, STUCK, how, flags=(*FLAGS, "--on-stall", "stop")) as run:
        row = run.wait_row("stall")
        assert row["suspects"] == [2]
        places = {place.partition(" at ")[0]: ranks for ranks, place in row["groups"]}
        assert places["all_reduce"] == [0, 1, 3]
        assert places["read_the_wrong_shard"] == [2]
        assert run.process.wait(60) == 124
        assert "stalled: nothing has moved for" in (tmp_path / "out.txt").read_text()


def test_a_rank_stopped_by_its_user_is_no_stall(tmp_path: Path) -> None:
    """SIGSTOP for longer than the patience: it is said as such, and the run goes on after it."""
    with launched(tmp_path, STUCK, "never", flags=FLAGS) as run:
        run.wait(lambda: len(run.rows("progress")) > 3)
        os.kill(run.pid_of(1), signal.SIGSTOP)
        row = run.wait_row("held")
        assert (row["rank"], row["tracer"]) == (1, 0)
        before = run.wait_row("attempt")["at"]
        run.wait(lambda: run.rows("sample")[-1]["at"] > row["at"] + 25, 60)
        os.kill(run.pid_of(1), signal.SIGCONT)
        steps = len(run.rows("progress"))
        run.wait(lambda: len(run.rows("progress")) > steps + 1)
        assert run.rows("stall") == [], before


def test_a_profiler_that_is_attached_is_no_stall(tmp_path: Path) -> None:
    with launched(tmp_path, STUCK, "never", flags=FLAGS) as run:
        run.wait(lambda: len(run.rows("progress")) > 3)
        pyspy = shutil.which("py-spy") or str(Path(sys.executable).with_name("py-spy"))
        argv = [pyspy, "record", "-d", "15", "-o", str(tmp_path / "p.svg"), "-p"]
        subprocess.run([*argv, str(run.pid_of(2))], check=True, capture_output=True, timeout=100)
        assert run.rows("stall", "held") == []


def test_a_checkpoint_that_takes_longer_than_the_patience_is_no_stall(tmp_path: Path) -> None:
    """Rank 0 writes, the others wait in a barrier; bytes move."""
    slow = STUCK.replace(
        "    dist.all_reduce(t)",
        "    if step == 60 and rank == 0:\n"
        "        with open('checkpoint', 'wb', buffering=0) as file:\n"
        "            for _ in range(350):\n"
        "                file.write(bytes(8192)); time.sleep(0.1)\n"
        "    dist.all_reduce(t)",
        1,
    )
    with launched(tmp_path, slow, "never", flags=FLAGS) as run:
        run.wait(lambda: any(row["step"] >= 70 for row in run.rows("progress")), 150)
        assert run.rows("stall") == []


def test_the_survivors_stacks_are_kept_when_a_rank_fails(tmp_path: Path) -> None:
    failing = STUCK.replace("read_the_wrong_shard()\n    dist", "sys.exit(7)\n    dist")
    with launched(tmp_path, failing, "fail", flags=FLAGS) as run:
        assert run.process.wait(100) == 7
        row = run.wait_row("stacks")
        assert row["why"] == "rank 2 exited with code 7"
        assert sorted(rank for ranks, _ in row["groups"] for rank in ranks) == [0, 1, 3]
