"""Bills of real runs: several launchers of one job, a restart, a stall, a history that goes."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from watched import launched

STEPS = """\
import os, sys, time
attempt, rank = int(os.environ["PADDOCK_ATTEMPT"]), int(os.environ["RANK"])
for step in range(5 if attempt else 0, 12):
    print(f"step {step} loss {1 / (step + 1):.3f}", flush=True)
    time.sleep(0.5)
    if rank == 1 and attempt == 0 and step == 9:
        sys.exit(3)
    if rank == 1 and attempt == 1 and step == 8:
        time.sleep(9)
"""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def test_the_bill_of_several_launchers_is_whole(tmp_path: Path) -> None:
    """Each launcher writes its own history; the bill of any of them is that of the whole job."""
    (tmp_path / "train.py").write_text(STEPS)
    env = {**os.environ, "XDG_STATE_HOME": str(tmp_path / "state"), "PADDOCK_TOKEN": "t" * 32}
    argv = [sys.executable, "-m", "paddock", "launch", "--nnodes", "3", "--master",
            f"127.0.0.1:{free_port()}", "--max-restart", "1", "--stall-after", "4s",
            "--devices", "cpu", "--rank"]  # fmt: skip
    began = time.time()
    nodes = []
    for rank in range(3):
        words = [*argv, str(rank), "train.py"]
        nodes.append(subprocess.Popen(words, cwd=tmp_path, env=env, stderr=subprocess.DEVNULL))
        time.sleep(1)  # sleep: nodes that come late are what is tried
    assert [node.wait(100) for node in nodes] == [0, 0, 0]
    wall = time.time() - began

    def paddock(*words: str) -> Any:
        done = subprocess.run([sys.executable, "-m", "paddock", *words, "--json"], cwd=tmp_path,
                              env=env, capture_output=True, text=True, check=True)  # fmt: skip
        return json.loads(done.stdout)

    bills = [paddock("bill", row["id"]) for row in paddock("list")]
    assert len(bills) == 3
    assert all(bill["spent"] == bills[0]["spent"] for bill in bills)
    bill, spent = bills[0], {each["kind"]: each["rank_seconds"] for each in bills[0]["spent"]}
    assert (bill["ranks"], bill["attempts"], bill["steps"], bill["is_over"]) == (3, 2, 11, True)
    assert sum(spent.values()) == pytest.approx(bill["wall_seconds"] * 3, abs=1e-9)
    assert bill["wall_seconds"] <= wall
    assert all(spent[kind] > 0 for kind in ("rendezvous", "lost", "stalled", "useful")), spent


@pytest.mark.parametrize("last", ["", "print('done')"])
def test_a_script_that_tells_no_step_is_no_warm_up(tmp_path: Path, last: str) -> None:
    """Half of the run at least was its own; nearly all of it was told as warm-up."""
    script = f"import time\ntime.sleep(4)\n{last}\n"
    with launched(tmp_path, script, flags=("--nproc-per-node", "2")) as run:
        assert run.process.wait(60) == 0
        bill = json.loads(run.paddock("bill", run.run_id, "--json"))
    spent = {each["kind"]: each["share"] for each in bill["spent"]}
    assert spent["warm-up"] == 0
    assert spent["useful"] > 0.5, spent


def test_a_job_outlives_its_history(tmp_path: Path) -> None:
    script = "import os, time\nfor s in range(9**9):\n print('step', s, 'loss', 1.0, flush=True)\n"
    script += " time.sleep(0.1)\n if os.path.exists('end'): break\n"
    with launched(tmp_path, script, flags=("--devices", "cpu")) as run:
        run.wait(lambda: len(run.rows("progress")) > 1)
        (path,) = tmp_path.glob("log/runs/*/history.jsonl")
        path.unlink()
        out = tmp_path / "out.txt"
        run.wait(lambda: "the history of this run has a gap" in out.read_text())
        time.sleep(2.5)  # sleep: more rows, and no more warnings
        (tmp_path / "end").touch()
        assert run.process.wait(20) == 0
        assert out.read_text().count("has a gap") == 1
        argv = [sys.executable, "-m", "paddock", "stacks", path.parent.name]
        done = subprocess.run(argv, capture_output=True, text=True)
        assert (done.returncode, "has ended" in done.stderr) == (2, True), done.stderr
