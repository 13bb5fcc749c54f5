"""First step: from Enter to the first training step of the last rank, and after a failure.

Ours is measured without and with --warm: "cold", and warm after one run that has learned; "the
next launch" is that of a launcher that stays (--warm keep), once it is idle.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

from benchmarks.figure import Figure, interleave
from benchmarks.world import Running, World, load_average, wait_until

UP_SECONDS = 180.0
NAMES = {"torch": "torch DDP", "paddle": "Paddle DataParallel", "jax": "JAX psum"}
PEERS = {"torch": "torchrun", "paddle": "paddle", "jax": "torchrun"}
COLD = "paddock, cold"


def measure(world: World) -> list[Figure]:
    """Each framework that is installed, at 8 ranks; torch also at 32. With --quick ours at 2."""
    figures: list[Figure] = []
    for framework in NAMES:
        if find_spec(framework) is None:
            continue
        counts = (2,) if world.quick else (8, 32) if framework == "torch" else (8,)
        for nprocs in counts:
            figures += _steps(world, framework, nprocs)
    return figures


def _steps(world: World, framework: str, nprocs: int) -> list[Figure]:
    name = f"first step, {NAMES[framework]}, {nprocs} ranks"
    peer = PEERS[framework]
    start = Figure(name, "s", wanted_ratio=(peer, 0.3 if nprocs < 32 else 0.15))
    again = Figure(f"{name}: after a failure", "s", wanted_ratio=(peer, 0.05))
    following = Figure(f"{name}: the next launch, kept", "s", wanted_ratio=(peer, 0.05))
    size = Figure(f"memory, {nprocs} ranks of {NAMES[framework]}: PSS", "MB")
    if nprocs >= 32:
        size.wanted_ratio = (COLD, 0.5)
    cache = world.folder()

    def once(launcher: str) -> None:
        sample = _run(world, launcher, framework, nprocs, cache)
        for figure, found in zip((start, again, size), sample, strict=True):
            figure.add(launcher, found)

    once("learning")  # the first run with --warm on; not shown
    rounds = 1 if world.quick or nprocs > 8 else 3
    plan = {"paddock": rounds, COLD: rounds}
    if peer in world.launchers:
        plan[peer] = min(rounds, 2)
    interleave((start, again, size), plan, once, load_average)
    for seconds in _kept(world, framework, nprocs, cache, rounds):
        following.add("paddock", seconds)
    shutil.rmtree(cache)
    # A peer's second start costs it what its first did.
    if peer in start.samples:
        again.samples[peer] = following.samples[peer] = start.samples[peer]
    for figure in (start, again, following, size):
        cold = figure.result(COLD)
        if cold is not None:
            figure.notes["paddock"] = f"[without --warm {cold:.1f}]"
    return [start, again, following, size]


def _run(
    world: World, launcher: str, framework: str, nprocs: int, cache: Path
) -> tuple[float | None, float | None, float | None]:
    """Seconds to the last rank's step, and after a failure; MB of the ranks and their server."""
    env = {"BENCH_FRAMEWORK": framework}
    options: list[str] = []
    if launcher not in PEERS.values():
        env |= {"XDG_CACHE_HOME": str(cache), "BENCH_CULPRIT": str(nprocs - 1)}
        options = ["--max_restart", "1", "--warm", "off" if launcher == COLD else "on"]
        launcher = "paddock"
    job = world.run(launcher, nprocs, "step.py", env=env, options=options)
    try:
        up = job.await_stamps("up", nprocs, UP_SECONDS)
        if len(up) < nprocs:
            raise RuntimeError(f"{launcher}:\n{job.output.read_text(errors='replace')[-2000:]}")
        seconds = (up[-1].at_ns - job.started_ns) / 1e9
        megabytes = _pss(job)
        job.release()
        if launcher != "paddock":
            return seconds, None, None
        again = job.await_stamps("again", nprocs, UP_SECONDS)
        job.wait(UP_SECONDS)  # what was learned is kept at its end
        if len(again) < nprocs:
            return seconds, None, megabytes
        return seconds, (again[-1].at_ns - job.stamps("dead")[0].at_ns) / 1e9, megabytes
    finally:
        job.end()


def _kept(world: World, framework: str, nprocs: int, cache: Path, rounds: int) -> list[float]:
    """Seconds to the last rank's step of launches that fork from what is imported."""
    stamps = cache / "stamps"
    env = {"BENCH_FRAMEWORK": framework, "XDG_CACHE_HOME": str(cache),
           "XDG_RUNTIME_DIR": str(cache), "BENCH_STAMPS": str(stamps),
           "BENCH_GATE": os.devnull}  # fmt: skip
    found = []
    for _ in range(rounds + 1):
        stamps.write_text("")
        job = world.run(
            "paddock", nprocs, "step.py", env=env, options=["--warm", "keep"],
            prefix=["env", "-C", str(cache)], stamps=stamps,
        )  # fmt: skip
        up = job.await_stamps("up", nprocs, UP_SECONDS)
        if len(up) == nprocs:
            found.append((up[-1].at_ns - job.started_ns) / 1e9)
        job.wait(UP_SECONDS)
        wait_until(lambda: _is_idle(cache), UP_SECONDS)
    stop = [sys.executable, "-m", "paddock", "warm", "stop"]
    subprocess.run(stop, env={**world.env, **env}, check=True, stdout=subprocess.DEVNULL)
    return found[1:]  # the first has imported


def _is_idle(cache: Path) -> bool:
    (lock,) = (cache / "paddock").glob("*.lock")
    row = json.loads(lock.read_text("ascii"))
    return bool(row["state"] == "idle")


def _pss(job: Running) -> float:
    """Of the ranks, and of the warm server, which is their launcher's child as they are."""
    ranks = set(job.rank_pids())
    pids = set(ranks)
    for pid in ranks:
        pids |= _siblings(pid)
    return sum(_pss_of(pid) for pid in pids) / 1024


def _siblings(pid: int) -> set[int]:
    stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    parent = stat.rpartition(")")[2].split()[1]
    text = Path(f"/proc/{parent}/task/{parent}/children").read_text(encoding="ascii")
    return {int(word) for word in text.split()}


def _pss_of(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as f:
            return next(int(line.split()[1]) for line in f if line.startswith("Pss:"))
    except ProcessLookupError:  # a zombie has none
        return 0
