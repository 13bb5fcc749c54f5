"""A rank dies and the job restarts: until the first and the last rank of the next attempt run."""

from __future__ import annotations

import random
import time

from benchmarks.failure import two_agents
from benchmarks.figure import Figure, interleave, rounds
from benchmarks.world import Running, World, load_average

LIMIT_SECONDS = 8.0
OPTIONS = {
    "paddock": ("--max_restart", "1"),
    "torchrun": ("--max-restarts", "1"),
}


def measure(world: World) -> list[Figure]:
    """One machine at 2 and 8 ranks, then over two agents."""
    figures = []
    for nprocs in (2,) if world.quick else (2, 8):
        first = Figure(f"restart: dead rank to the next attempt, {nprocs} ranks", "s", wanted=0.06)
        last = Figure(f"restart: to the last rank of it, {nprocs} ranks", "s")

        def once(
            launcher: str, nprocs: int = nprocs, of: tuple[Figure, Figure] = (first, last)
        ) -> None:
            env = {"BENCH_CULPRIT": str(nprocs - 1)}
            job = world.run(launcher, nprocs, "wait.py", env=env, options=OPTIONS[launcher])
            try:
                job.ready(nprocs)
                time.sleep(0.2 + random.random() / 10)
                for figure, sample in zip(of, _until_again(job, job, nprocs), strict=True):
                    figure.add(launcher, sample)
            finally:
                job.end()

        interleave((first, last), rounds(world, paddock=7, torchrun=2), once, load_average)
        figures += [first, last]
    figures.append(_across(world))
    return figures


def _across(world: World) -> Figure:
    figure = Figure("restart over two agents, 2 ranks each: last rank", "s", wanted=0.3)

    def once(launcher: str) -> None:
        jobs = two_agents(world, launcher, {"BENCH_CULPRIT": "3"}, OPTIONS[launcher])
        try:
            figure.add(launcher, _until_again(jobs[0], jobs[1], 4)[1])
        finally:
            for job in jobs:
                job.end()

    interleave((figure,), rounds(world, paddock=5, torchrun=2), once, load_average)
    return figure


def _until_again(seen: Running, gated: Running, nprocs: int) -> tuple[float | None, float | None]:
    """Seconds from the death to the first and last rank of the next attempt; None: never."""
    gated.release()
    again = seen.await_stamps("again", nprocs, LIMIT_SECONDS)
    if len(again) < nprocs:
        return None, None
    dead_ns = seen.stamps("dead")[0].at_ns
    return (again[0].at_ns - dead_ns) / 1e9, (again[-1].at_ns - dead_ns) / 1e9
