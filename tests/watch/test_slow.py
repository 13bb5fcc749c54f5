"""The rank that may hold the others up, by what is seen of all."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from paddock.watch.history import HistoryRows, read_history
from paddock.watch.slow import slow_text
from watched import launched

STEPS = """\
import os, time, paddock
if os.environ["PADDLE_TRAINER_ID"] == "1":
    os.nice(15)
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
for step in range(10**9):
    paddock.report(step=step)
    until = time.thread_time() + 0.05
    while time.thread_time() < until: pass
    time.sleep(0.05)
"""


def history(**slow: float) -> HistoryRows:
    """A minute of four ranks on two nodes; rank 3 has these numbers per second."""
    rows = [
        {"kind": "attempt", "at": 0.0, "attempt": 0, "node": f"node{node}",
         "ranks": [["worker", 2 * node + at, 9, "x"] for at in range(2)]}
        for node in range(2)
    ]  # fmt: skip
    usual = {"step": 4.0, "waited": 0.02, "faults": 0.0, "cpu": 0.9}
    for at in range(0, 61, 10):
        for rank in range(4):
            now = {**usual, **(slow if rank == 3 else {})}
            rows.append({"kind": "progress", "at": at, "rank": rank, "step": int(now["step"] * at)})
            numbers = {name: now[name] * at for name in ("waited", "faults", "cpu")}
            rows.append({"kind": "sample", "at": at, "rank": rank, **numbers})
    return HistoryRows(rows)


@pytest.mark.parametrize(
    ("slow", "said"),
    [
        ({}, ""),
        ({"waited": 0.05}, ""),
        ({"step": 3.8}, ""),
        ({"step": 2.0}, "rank 3 on node1 may be slow: 0.5 s a step, the others 0.25 s"),
        ({"step": 2.0, "waited": 0.5}, "rank 3 on node1 may be slow: 0.5 s a step, the others"
         " 0.25 s; waits for a core 50 % of its time, the others 2 %"),
        ({"faults": 300.0},
         "rank 3 on node1 may be slow: 300 pages a second from the disk, the others 0"),
        ({"cpu": 3.0}, "rank 3 on node1 may be slow: uses 300 % of a core, the others 90 %"),
    ],
)  # fmt: skip
def test_only_a_rank_that_stands_out_is_named(slow: dict[str, float], said: str) -> None:
    assert slow_text(history(**slow)) == said


def test_a_node_whose_ranks_are_all_slow_is_named_as_a_whole() -> None:
    rows = history().rows
    for row in rows:
        if row["kind"] == "progress" and row["rank"] > 1:
            row["step"] //= 2
    said = "ranks 2-3 on node1 may be slow: 0.5 s a step, the others 0.25 s"
    assert slow_text(HistoryRows(rows)) == said


@pytest.mark.real
@pytest.mark.limit(240)
def test_a_rank_whose_core_is_taken_is_named(tmp_path: Path) -> None:
    """Others compute on its core: its steps are slow, and the board and the bill say why."""
    core = min(os.sched_getaffinity(0))
    burn = f"import os\nos.sched_setaffinity(0, {{{core}}})\nwhile True: pass"
    burners = [subprocess.Popen([sys.executable, "-c", burn]) for _ in range(2)]
    try:
        with launched(tmp_path, STEPS, flags=("--nproc-per-node", "3")) as run:
            path = tmp_path / "log" / "runs" / run.run_id / "history.jsonl"
            said = run.wait(lambda: slow_text(read_history([path])))
            assert said.startswith(f"rank 1 on {os.uname().nodename} may be slow: "), said
            assert " s a step, the others " in said
            sample = run.wait(lambda: [r for r in run.rows("sample") if r["rank"] == 1][1:])[-1]
            assert sample["waited"] > 5, "of some 20 s"
            assert f"rank 1 on {os.uname().nodename} may be" in run.paddock("top", run.run_id)
            assert f"rank 1 on {os.uname().nodename} may be" in run.paddock("bill", run.run_id)
    finally:
        for each in burners:
            each.kill()
            each.wait()
