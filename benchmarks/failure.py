"""A rank dies (exit 7): until its peers have SIGTERM, here and at another agent. Who is blamed?"""

from __future__ import annotations

import random
import re
import time

from benchmarks.figure import Figure, interleave, rounds
from benchmarks.world import Running, World, free_port, load_average, node_options

LIMIT_SECONDS = 8.0
# How each launcher names the rank that failed first in what it prints.
BLAMED = {
    "paddock": re.compile(r"rank (\d+)"),
    "torchrun": re.compile(r"Root Cause \(first observed failure\):.*?rank\s*:\s*(\d+)", re.DOTALL),
    "mpirun": re.compile(r"Process name: \[\[\d+,\d+\],(\d+)\]"),
}


def measure(world: World) -> list[Figure]:
    """Peers signalled at 2, 8 and 32 ranks; across two agents; culprits of cascades."""
    figures: list[Figure] = []
    for nprocs in (2,) if world.quick else (2, 8, 32):
        first = Figure(f"rank death to first peer signalled, {nprocs} ranks", "ms", wanted=5)
        last = Figure(f"rank death to last peer signalled, {nprocs} ranks", "ms")
        gone = Figure(f"rank death to launcher gone, {nprocs} ranks", "ms")
        paddle = {"paddle": 1} if nprocs == 2 else {}
        plan = rounds(world, paddock=7, mpirun=2, torchrun=2, **paddle)

        def once(
            launcher: str, nprocs: int = nprocs, of: tuple[Figure, ...] = (first, last, gone)
        ) -> None:
            for figure, sample in zip(of, _death(world, launcher, nprocs), strict=True):
                figure.add(launcher, sample)

        interleave((first, last, gone), plan, once, load_average)
        figures += [first, last, gone] if nprocs > 2 else [first, gone]
    figures.append(_across(world))
    figures.append(cascades(world, rounds(world, paddock=20, mpirun=4, torchrun=4)))
    return figures


def _death(world: World, launcher: str, nprocs: int) -> tuple[float | None, float | None, float]:
    """Milliseconds from the death to the first and last peer signalled, and to the end."""
    culprit = nprocs - 1
    job = world.run(launcher, nprocs, "wait.py", env={"BENCH_CULPRIT": str(culprit)})
    try:
        job.ready(nprocs)
        time.sleep(0.2 + random.random() / 10)  # a poller is met at any phase
        job.release()
        job.wait(LIMIT_SECONDS)
        ended_ns = time.monotonic_ns()
        dead = job.await_stamps("dead", 1, 1.0)[0].at_ns
        told = job.stamps("term")
        first = (told[0].at_ns - dead) / 1e6 if told else None
        last = (told[-1].at_ns - dead) / 1e6 if len(told) == nprocs - 1 else None
        return first, last, (ended_ns - dead) / 1e6
    finally:
        job.end()


def _across(world: World) -> Figure:
    """The dead rank is on node 1; the peer signalled is on node 0. Two agents on loopback."""
    figure = Figure("rank death to peers of another agent signalled", "ms", wanted=50)

    def once(launcher: str) -> None:
        jobs = two_agents(world, launcher, {"BENCH_CULPRIT": "3"})
        try:
            jobs[1].release()
            dead = jobs[0].await_stamps("dead", 1, 2.0)[0].at_ns
            jobs[0].await_stamps("term", 3, LIMIT_SECONDS)
            here = {s.rank: s.at_ns for s in jobs[0].stamps("term")}
            if 0 in here:
                figure.add(launcher, (here[0] - dead) / 1e6)
            else:
                figure.notes[launcher] = f"not within {LIMIT_SECONDS:g} s"
        finally:
            for job in jobs:
                job.end()

    interleave((figure,), rounds(world, paddock=7, torchrun=1), once, load_average)
    return figure


def two_agents(
    world: World, launcher: str, env: dict[str, str], options: tuple[str, ...] = ()
) -> tuple[Running, Running]:
    """Two agents on loopback with two ranks each, all up; they share one file of stamps."""
    port = free_port()
    first = second = None
    try:
        first = world.run(
            launcher,
            2,
            "wait.py",
            env=env,
            options=[*node_options(launcher, 0, 2, port, "127.0.0.1"), *options],
        )
        second = world.run(
            launcher,
            2,
            "wait.py",
            env=env,
            options=[*node_options(launcher, 1, 2, port, "127.0.0.1"), *options],
            stamps=first.folder / "stamps",
        )
        first.ready(4)
    except BaseException:
        for job in (first, second):
            if job is not None:
                job.end()
        raise
    time.sleep(0.2 + random.random() / 10)
    return first, second


def cascades(world: World, plan: dict[str, int]) -> Figure:
    """8 ranks, one fails, the others lose their peer 10 to 40 ms later and fail too."""
    figure = Figure("culprit named wrongly in a cascade of 8 ranks", "%", wanted=0)
    seeds = dict.fromkeys(world.launchers, 0)

    def once(launcher: str) -> None:
        seeds[launcher] += 1
        culprit = random.Random(seeds[launcher]).randrange(8)
        env = {"BENCH_CULPRIT": str(culprit), "BENCH_SEED": str(seeds[launcher])}
        job = world.run(launcher, 8, "cascade.py", env=env)
        try:
            job.ready(8)
            time.sleep(random.random() / 10)
            job.release()
            job.wait(LIMIT_SECONDS)
            text = job.output.read_text(errors="replace")
        finally:
            job.end()
        found = BLAMED[launcher].search(text)
        is_wrong = found is None or int(found[1]) != culprit
        figure.add(launcher, 100.0 if is_wrong else 0.0)

    interleave((figure,), plan, once, load_average)
    for launcher, samples in figure.samples.items():
        wrong = sum(1 for s in samples if s)
        figure.notes[launcher] = f"[{wrong} of {len(samples)}]"
        figure.samples[launcher] = [sum(samples) / len(samples)]
    return figure
