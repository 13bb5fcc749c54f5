"""The table of README: like for like, each launcher measured as often as the other.

A restart is measured where the launcher restarts, never taken from its first start.
"""

from __future__ import annotations

import shutil
from importlib.util import find_spec

from benchmarks.failure import cascades
from benchmarks.figure import Figure, interleave, rounds
from benchmarks.kill import kills
from benchmarks.restart import OPTIONS
from benchmarks.start import starts
from benchmarks.world import World, load_average

SECONDS_MAX = 60.0
COLD = "paddock, cold"


def measure(world: World) -> list[Figure]:
    """Start, cascade and kill with plain ranks; a DDP script's start and recovery."""
    figures = [
        starts(world, 2, rounds(world, paddock=10, torchrun=10))[0],
        cascades(world, rounds(world, paddock=20, torchrun=20)),
        kills(world, rounds(world, paddock=5, torchrun=5))[1],
    ]
    if find_spec("torch") is not None:
        for nprocs in (2,) if world.quick else (2, 8):
            figures += _ddp(world, nprocs)
    return figures


def _ddp(world: World, nprocs: int) -> list[Figure]:
    """From Enter to the last rank's first step, and from a rank's death to its next one."""
    name = f"DDP, {nprocs} ranks"
    figures = (Figure(f"{name}: first step", "s"), Figure(f"{name}: step after a crash", "s"))
    cache = world.folder()

    def once(launcher: str) -> None:
        for figure, found in zip(figures, _crash(world, launcher, nprocs, str(cache)), strict=True):
            figure.add(launcher, found)

    _crash(world, "paddock", nprocs, str(cache))  # the first run with --warm on learns
    plan = rounds(world, paddock=3, torchrun=3)
    interleave(figures, {**plan, COLD: plan["paddock"]}, once, load_average)
    shutil.rmtree(cache)
    for figure in figures:
        figure.notes["paddock"] = f"[without --warm {figure.result(COLD) or 0:.2f}]"
        for launcher, times in plan.items():
            if (found := len(figure.samples.get(launcher, ()))) < times:
                note = f"[in {found} of {times} runs, else not within {SECONDS_MAX:g} s]"
                figure.notes[launcher] = f"{figure.notes.get(launcher, '')} {note}".strip()
    return list(figures)


def _crash(
    world: World, launcher: str, nprocs: int, cache: str
) -> tuple[float | None, float | None]:
    """A rank dies after its first step, and the launcher restarts the job, once. None: never."""
    env = {
        "BENCH_FRAMEWORK": "torch",
        "BENCH_CULPRIT": str(nprocs - 1),
        "XDG_CACHE_HOME": cache,
    }
    name = "torchrun" if launcher == "torchrun" else "paddock"
    options = [*OPTIONS[name]]
    if name == "paddock":
        options += ["--warm", "off" if launcher == COLD else "on"]
    job = world.run(name, nprocs, "step.py", env=env, options=options)
    try:
        up = job.await_stamps("up", nprocs, SECONDS_MAX)
        job.release()
        again = job.await_stamps("again", nprocs, SECONDS_MAX)
        first = (up[-1].at_ns - job.started_ns) / 1e9 if len(up) == nprocs else None
        if len(again) < nprocs:
            return first, None
        job.wait(SECONDS_MAX)  # what was learned is kept at its end
        dead_ns = job.stamps("dead")[0].at_ns
        return first, (again[-1].at_ns - dead_ns) / 1e9
    finally:
        job.end()
