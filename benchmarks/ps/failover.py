"""A primary is killed (kill -9): until a push of its trainer is acknowledged by the replica."""

from __future__ import annotations

import signal
import time
from typing import TYPE_CHECKING

from benchmarks.ps.figure import Figure
from benchmarks.ps.group import ChildFailed
from benchmarks.ps.machine import Others
from benchmarks.ps.ours.job import READY, READY_SECONDS, OursJob

if TYPE_CHECKING:
    from benchmarks.ps.bench import Bench

ROUNDS = 3
SECONDS = 3.0
LIMIT_SECONDS = 60.0
RUNNING_SECONDS = 1.0  # of pushes before the kill


def measure(bench: Bench) -> list[Figure]:
    """Ours only: the peer has no replica; its trainer sleeps 300 s and goes on from nothing."""
    figure = Figure("failover: longest pause of a push", "s", SECONDS)
    figure.notes["peer"] = "lost"
    bench.wait_idle()
    others = Others()
    for _ in range(1 if bench.quick else ROUNDS):
        try:
            figure.add("ours", _pause(bench))
        except ChildFailed as error:
            bench.failed("ours: failover", error)
        finally:
            bench.clean()
    figure.busy.append(round(others.cores(), 2))
    return [figure]


def _pause(bench: Bench) -> float:
    """The longest time between two acknowledged pushes, with a kill in between."""
    with bench.group() as group:
        job = OursJob(group, bench.source, 1, ack="replica")
        primary, replica = job.start_pair()
        for child in (primary, replica):
            child.wait_line(READY, READY_SECONDS)
        trainer = job.start_trainer("steady.py", ["--seconds", "12"])
        trainer.wait_line("pushing", READY_SECONDS)
        time.sleep(RUNNING_SECONDS)
        primary.kill(signal.SIGKILL)
        (line,) = (m for m in trainer.wait(LIMIT_SECONDS) if m["name"] == "steady")
        if line["lost"]:
            raise ChildFailed(f"failover lost or doubled pushes: {line}")
        return float(line["longest_s"])
