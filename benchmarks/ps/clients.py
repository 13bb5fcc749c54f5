"""Thirty-two trainers with small pulls on one server: is anybody starved?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.ps.figure import Figure
from benchmarks.ps.group import ChildFailed
from benchmarks.ps.machine import Others
from benchmarks.ps.ours.job import ours_job

if TYPE_CHECKING:
    from benchmarks.ps.bench import Bench

CLIENTS = 32
SECONDS = 4.0
LIMIT_SECONDS = 120.0
# pulls a second and client; 0: each asks again as soon as it has its answer.
PACES = (20.0, 0.0)


def measure(bench: Bench) -> list[Figure]:
    """Ours only: 32 trainers of the peer need 16 GB. 26 ids a pull; one process a client."""
    figures = []
    for pace in PACES:
        name = f"32 clients, {pace:g} pulls/s each" if pace else "32 clients, as fast as they can"
        middle, tail = Figure(f"{name}: p50", "ms"), Figure(f"{name}: p99", "ms")
        ratio = Figure(f"{name}: p99 / p50", "")
        unfair = Figure(
            f"{name}: pulls of the slowest client / the fastest", "", more_is_better=True
        )
        rate = Figure(f"{name}: pulls of all", "1/s", more_is_better=True)
        mine = [middle, tail, ratio, unfair, rate]
        seconds = SECONDS / 4 if bench.quick else SECONDS
        words = ["--clients", str(CLIENTS), "--seconds", str(seconds), "--pace", str(pace)]
        bench.wait_idle()
        others = Others()
        try:
            with bench.group() as group, ours_job(group, bench.source, trainers=CLIENTS) as job:
                ((line,),) = job.run_trainers("many.py", words, LIMIT_SECONDS, processes=1)
            middle.add("ours", line["p50_ms"])
            tail.add("ours", line["p99_ms"])
            ratio.add("ours", line["p99_ms"] / line["p50_ms"])
            unfair.add("ours", line["fewest"] / line["most"])
            rate.add("ours", line["rate"])
        except ChildFailed as error:
            bench.failed("ours: 32 clients", error)
        finally:
            bench.clean()
        for figure in mine:
            figure.busy.append(round(others.cores(), 2))
        figures += mine
    return figures
