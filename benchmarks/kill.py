"""kill -9 of the launcher with 4 ranks: how many of them live on."""

from __future__ import annotations

import os
import time

from benchmarks.figure import Figure, interleave, rounds
from benchmarks.memory import own_processes
from benchmarks.world import World, load_average

NPROCS = 4
AFTER_SECONDS = (0.2, 1.0)


def measure(world: World) -> list[Figure]:
    """Of Paddock, each of its two processes in turn: the guardian and the launcher."""
    return kills(world, rounds(world, paddock=6, mpirun=1, torchrun=1, paddle=1))


def kills(world: World, plan: dict[str, int]) -> list[Figure]:
    """Of each launcher as often as the plan says; the ranks alive after each delay."""
    figures = [
        Figure(
            f"kill -9 of the launcher: of {NPROCS} ranks alive after {t:g} s",
            "ranks",
            wanted=0,
            is_worst=True,
        )
        for t in AFTER_SECONDS
    ]
    turn = 0

    def once(launcher: str) -> None:
        nonlocal turn
        job = world.run(launcher, NPROCS, "wait.py")
        try:
            job.ready(NPROCS)
            time.sleep(0.2)
            own = own_processes(job)
            victim = own[turn % len(own)]
            if launcher == "paddock":
                turn += 1
            os.kill(victim, 9)
            killed = time.monotonic()
            for figure, after in zip(figures, AFTER_SECONDS, strict=True):
                time.sleep(max(0.0, killed + after - time.monotonic()))
                figure.add(launcher, len(job.alive_ranks()))
        finally:
            job.end()

    interleave(figures, plan, once, load_average)
    return figures
