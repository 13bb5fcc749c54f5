"""Real ranks that stand still: the suspect is named; and what only looks like it is no stall."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

import paddock
from watched import STUCK, launched

pytestmark = [pytest.mark.real, pytest.mark.limit(240)]
PATIENCE = 12  # seconds; the launcher's own is 20 at least
FLAGS = ("--nproc-per-node", "4", "--stall-after", str(PATIENCE))


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


def test_a_rank_stopped_by_its_user_or_profiled_is_no_stall(tmp_path: Path) -> None:
    """SIGSTOP for longer than the patience: it is said as such, and the run goes on after it."""
    with launched(tmp_path, STUCK, "never", flags=FLAGS) as run:
        run.wait(lambda: len(run.rows("progress")) > 3)
        os.kill(run.pid_of(1), signal.SIGSTOP)
        row = run.wait_row("held")
        assert (row["rank"], row["tracer"]) == (1, 0)
        run.wait(lambda: run.rows("sample")[-1]["at"] > row["at"] + PATIENCE, 60)
        assert "rank 1 is stopped" in run.paddock("top", run.run_id)
        os.kill(run.pid_of(1), signal.SIGCONT)
        steps = len(run.rows("progress"))
        over = run.wait_row("held_over")
        run.wait(lambda: len(run.rows("progress")) > steps + 1)
        assert "rank 1 is stopped" not in run.paddock("top", run.run_id)
        bill = json.loads(run.paddock("bill", run.run_id, "--json"))
        (stalled,) = [row["rank_seconds"] for row in bill["spent"] if row["kind"] == "stalled"]
        held = over["at"] - row["at"] + row["seconds"]
        assert 4 * (held - 3) < stalled <= 4 * held + 1, (stalled, held)  # all four wait for it
        pyspy = shutil.which("py-spy") or str(Path(sys.executable).with_name("py-spy"))
        argv = [pyspy, "record", "-d", "15", "-o", str(tmp_path / "p.svg"), "-p"]
        subprocess.run([*argv, str(run.pid_of(2))], check=True, capture_output=True, timeout=100)
        assert run.rows("stall", "held") == [row]


def test_a_rank_in_gdb_is_no_stall(tmp_path: Path) -> None:
    """gdb attaches for longer than the patience; the launcher goes on looking, and says so."""
    gdb = shutil.which("gdb")
    if gdb is None:
        pytest.skip("gdb is not installed")
    with launched(tmp_path, STUCK, "never", flags=FLAGS) as run:
        run.wait(lambda: len(run.rows("progress")) > 3)
        argv = [gdb, "-nx", "-batch", "-p", str(run.pid_of(1)), "-ex", "shell sleep 20"]
        quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL}
        with subprocess.Popen(argv, env={**os.environ, "DEBUGINFOD_URLS": ""}, **quiet) as debugger:
            row = run.wait_row("held")
            assert (row["rank"], row["tracer"]) == (1, debugger.pid)
        steps = len(run.rows("progress"))
        run.wait(lambda: len(run.rows("progress")) > steps + 1)
        assert run.rows("stall") == []


def test_a_rank_in_pdb_is_no_stall(tmp_path: Path) -> None:
    """It waits for its user's next word, the others for it."""
    script = STUCK.replace("read_the_wrong_shard()\n    dist", "breakpoint()\n    dist")
    script = script.replace("rank == 2", "rank == 0")
    with launched(tmp_path, script, "pdb", flags=FLAGS, stdin=subprocess.PIPE) as run:
        row = run.wait_row("held")
        assert (row["rank"], row["debugger"]) == (0, "pdb")
        run.wait(lambda: run.rows("sample")[-1]["at"] > row["at"] + PATIENCE, 60)
        assert run.process.stdin is not None
        run.process.stdin.write("continue\n")
        run.process.stdin.flush()
        run.wait(lambda: any(r["step"] > 60 for r in run.rows("progress")))
        assert run.rows("stall") == []


@pytest.mark.parametrize(
    ("name", "body", "seconds"),
    [("evaluate", "sum(range(10**6))", 45), ("save_checkpoint", "time.sleep(0.2)", 28)],
)
def test_slow_work_between_steps_is_no_stall(
    tmp_path: Path, name: str, body: str, seconds: int
) -> None:
    """Rank 0 computes at one place, or sends to a store that /proc does not count.

    Stacks are taken after 20 s, of a rank that computes three times, 10 s apart.
    """
    work = f"def {name}():\n    end = time.time() + {seconds}\n"
    work += f"    while time.time() < end: {body}\n"
    script = STUCK.replace("t = torch.ones", work + "t = torch.ones", 1)
    script = script.replace(
        "    dist.all", f"    if step == 40 and rank == 0: {name}()\n    dist.all", 1
    )
    with launched(tmp_path, script, "never", flags=(*FLAGS[:-1], "600")) as run:
        run.wait(lambda: any(row["step"] > 40 for row in run.rows("progress")), 150)
        assert run.rows("stall") == []


def test_a_long_first_step_is_no_stall(tmp_path: Path) -> None:
    """Rank 0 computes for longer than ranks may need to meet; no step is known yet."""
    first = "end = time.time() + 75\nwhile rank == 0 and time.time() < end: pass\n"
    script = STUCK.replace("t = torch.ones", first + "t = torch.ones", 1)
    with launched(tmp_path, script, "never", flags=FLAGS[:2]) as run:
        run.wait(lambda: len(run.rows("progress")) > 1, 150)
        assert run.rows("stall") == []


def test_a_checkpoint_that_takes_longer_than_the_patience_is_no_stall(tmp_path: Path) -> None:
    """Rank 0 writes, the others wait in a barrier; bytes move."""
    slow = STUCK.replace(
        "    dist.all_reduce(t)",
        "    if step == 40 and rank == 0:\n"
        "        with open('checkpoint', 'wb', buffering=0) as file:\n"
        "            for _ in range(200):\n"
        "                file.write(bytes(8192)); time.sleep(0.1)\n"
        "    dist.all_reduce(t)",
        1,
    )
    with launched(tmp_path, slow, "never", flags=FLAGS) as run:
        run.wait(lambda: any(row["step"] >= 50 for row in run.rows("progress")), 150)
        assert run.rows("stall") == []


def test_the_survivors_stacks_are_kept_when_a_rank_fails(tmp_path: Path) -> None:
    failing = STUCK.replace("read_the_wrong_shard()\n    dist", "sys.exit(7)\n    dist")
    with launched(tmp_path, failing, "fail", flags=FLAGS) as run:
        assert run.process.wait(100) == 7
        row = run.wait_row("stacks")
        assert row["why"] == "rank 2 exited with code 7"
        assert sorted(rank for ranks, _ in row["groups"] for rank in ranks) == [0, 1, 3]


def test_everyones_stacks_are_kept_when_the_time_is_over(tmp_path: Path) -> None:
    """A job that hangs until --timeout ends with the place of each rank."""
    flags = ("--nproc-per-node", "3", "--timeout", "60", "--stall-after", "0")
    with launched(tmp_path, STUCK, "sleep", flags=flags) as run:
        assert run.process.wait(100) == 124
        row = run.wait_row("stacks")
        assert "time limit" in row["why"]
        places = {place.partition(" at ")[0]: ranks for ranks, place in row["groups"]}
        assert places == {"all_reduce": [0, 1], "read_the_wrong_shard": [2]}
        assert "before the stop: 2 x all_reduce at train.py" in (tmp_path / "out.txt").read_text()


def test_a_failure_on_one_node_keeps_the_stacks_of_the_others(tmp_path: Path) -> None:
    """Two launchers: rank 2 fails, its own node and the other one keep theirs before they stop."""
    failing = STUCK.replace("rank == 2 and ", "").replace(
        "read_the_wrong_shard()\n    dist",
        "sys.exit(7) if rank == 2 else os.read(os.pipe()[0], 1)\n    dist",
    )
    with socket.create_server(("127.0.0.1", 0)) as free:
        master = f"127.0.0.1:{free.getsockname()[1]}"
    flags = ("--nproc-per-node", "2", "--nnodes", "2", "--master", master, "--node-rank")
    folders = [tmp_path / name for name in "ab"]
    for folder in folders:
        folder.mkdir()
    with (
        launched(folders[0], failing, "fail", flags=(*flags, "0")) as first,
        launched(folders[1], failing, "fail", flags=(*flags, "1")) as second,
    ):
        assert (first.process.wait(100), second.process.wait(100)) == (7, 7)
        kept = [run.wait_row("stacks")["groups"] for run in (first, second)]
    assert [sorted(rank for ranks, _ in groups for rank in ranks) for groups in kept] == [
        [0, 1],
        [3],
    ]
    assert all(place.startswith("<module> at train.py") for groups in kept for _, place in groups)


def test_a_dump_that_hangs_does_not_keep_the_job_from_ending(tmp_path: Path) -> None:
    """The stop comes all the same, and no process of the dump is left."""
    python = shutil.which("python3", path="/usr/bin:/usr/local/bin")
    if python is None:
        pytest.skip("needs a Python without a py-spy beside it")
    slow = tmp_path / "py-spy"
    slow.write_text(f"#!/bin/sh\necho $$ >> {tmp_path}/pids\nexec sleep 1000\n")
    slow.chmod(0o755)
    script = (
        "import os, sys, time\ntime.sleep(4)\n"
        "if os.environ['RANK'] == '1': sys.exit(7)\ntime.sleep(99)\n"
    )
    source = str(Path(paddock.__file__).parents[1])
    with launched(
        tmp_path, script, flags=("--nproc-per-node", "2"), python=python,
        env={"PYTHONPATH": source, "PATH": f"{tmp_path}:{os.environ['PATH']}"},
    ) as run:  # fmt: skip
        assert run.process.wait(60) == 7
        pids = (tmp_path / "pids").read_text().split()
        assert pids and not any(Path("/proc", pid).exists() for pid in pids)
        assert run.wait_row("stacks")["groups"][0][0] == [0]


def test_a_stall_without_whole_stacks_says_how_to_get_them(tmp_path: Path) -> None:
    """Where there is no py-spy, the kernel's word alone helps few."""
    python = shutil.which("python3", path="/usr/bin:/usr/local/bin")
    if python is None or Path(python).with_name("py-spy").exists():
        pytest.skip("needs a Python without a py-spy beside it")
    with launched(
        tmp_path, "import time\ntime.sleep(99)\n",
        flags=("--nproc-per-node", "2", "--stall-after", "3"), python=python,
        env={"PYTHONPATH": str(Path(paddock.__file__).parents[1]), "PATH": "/usr/bin:/bin"},
    ) as run:  # fmt: skip
        assert run.wait_row("stall")["suspects"] == []
        run.wait(lambda: "or launch with --debug-ranks" in (tmp_path / "out.txt").read_text())
