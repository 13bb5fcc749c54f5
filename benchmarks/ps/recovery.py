"""A server with ten million rows is killed (kill -9): until its next life can be asked."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

from benchmarks.ps.figure import Figure
from benchmarks.ps.group import ChildFailed
from benchmarks.ps.machine import Others
from benchmarks.ps.ours.job import READY, ours_job

if TYPE_CHECKING:
    from benchmarks.ps.bench import Bench

ROWS, QUICK_ROWS = 10_000_000, 300_000
TAIL_PUSHES = 40  # after the snapshot: what the log has to give
TAIL_KEYS = 26_624  # of one of them
SECONDS = 3.0
LIMIT_SECONDS = 120.0


def measure(bench: Bench) -> list[Figure]:
    """Ours only: the peer keeps neither log nor snapshot, a new server of its begins empty."""
    rows = QUICK_ROWS if bench.quick else ROWS
    recovered = Figure(f"{rows / 1e6:g} M rows recovered from snapshot + log", "s", SECONDS)
    snapshot = Figure(f"{rows / 1e6:g} M rows: snapshot, writes going on", "s")
    recovered.notes["peer"] = snapshot.notes["peer"] = "lost"
    # At most half of the rows: those that the tail does not touch are checked too.
    tail = min(TAIL_PUSHES, rows // (2 * TAIL_KEYS))
    words = ["--rows", str(rows), "--tail", str(tail)]
    bench.wait_idle()
    others = Others()
    try:
        with bench.group() as group, ours_job(group, bench.source) as job:
            (lines,) = job.run_trainers("fill.py", words, LIMIT_SECONDS)
            for line in lines:
                if line["name"] == "snapshot":
                    snapshot.add("ours", line["s"])
            # Twice: a recovery must leave what the next one needs.
            for _ in range(2):
                job.servers[-1].kill(signal.SIGKILL)
                again = job.start_server(0)
                recovered.add("ours", again.wait_line(READY, LIMIT_SECONDS))
            check = [*words, "--check"]
            job.run_trainers("fill.py", check, LIMIT_SECONDS)
    except ChildFailed as error:
        bench.failed("ours: recovery", error)
    finally:
        bench.clean()
    recovered.busy.append(round(others.cores(), 2))
    return [recovered, snapshot]
