"""Start: from the exec of the launcher to the last rank's first line, and the whole job."""

from __future__ import annotations

import os
import subprocess
import time

from benchmarks.figure import Figure, interleave, rounds
from benchmarks.world import World, load_average

LINE = b"bench-line"


def measure(world: World) -> list[Figure]:
    """At 2 and at 32 ranks; the ranks' clock, the console, and the end of the launcher."""
    few = rounds(world, bare=15, mpirun=15, paddock=15, torchrun=3, paddle=3)
    many = rounds(world, bare=9, mpirun=9, paddock=9, torchrun=3, paddle=2)
    if "torchrun" in world.found:
        few.setdefault("torchrun", 1)
    figures = starts(world, 2, few)
    runs = figures[0]
    against = Figure("start, 2 ranks: against torchrun", "s", wanted_ratio=("torchrun", 0.05))
    against.samples = {k: v for k, v in runs.samples.items() if k in ("paddock", "torchrun")}
    against.loads = runs.loads
    return [runs, against, *figures[1:], *starts(world, 32, many)]


def starts(world: World, nprocs: int, plan: dict[str, int]) -> list[Figure]:
    """Of each launcher as often as the plan says: ranks run, its line is shown, the job ended."""
    name = f"start, {nprocs} ranks"
    mpirun = ("mpirun", 1.25)
    figures = [
        Figure(f"{name}: last rank runs", "s", wanted_ratio=mpirun),
        Figure(f"{name}: its line on the console", "s", wanted_ratio=mpirun),
        Figure(f"{name}: whole job", "s"),
    ]

    def once(launcher: str) -> None:
        for figure, sample in zip(figures, _run(world, launcher, nprocs), strict=True):
            figure.add(launcher, sample)

    interleave(figures, plan, once, load_average)
    return figures


def _run(world: World, launcher: str, nprocs: int) -> tuple[float, float | None, float]:
    folder = world.folder()
    stamps = folder / "stamps"
    stamps.touch()
    env = {**world.env, "BENCH_STAMPS": str(stamps)}
    if launcher == "bare":
        return _run_bare(world, env, nprocs, folder / "stamps")
    options = {"paddock": ["--tail", "all"]}.get(launcher, [])
    argv = world.command(launcher, nprocs, "hello.py", logs=folder / "log", options=options)
    started = time.monotonic()
    process = subprocess.Popen(
        argv,
        env=env,
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert process.stdout is not None
    shown_at, lines = started, 0
    while data := os.read(process.stdout.fileno(), 1 << 16):
        if LINE in data:
            shown_at = time.monotonic()
            lines += data.count(LINE)
    process.wait()
    ended = time.monotonic()
    process.stdout.close()
    last = _last_stamp(stamps, nprocs)
    return last - started, shown_at - started if lines == nprocs else None, ended - started


def _run_bare(
    world: World, env: dict[str, str], nprocs: int, stamps: os.PathLike[str]
) -> tuple[float, float, float]:
    """The floor: posix_spawn from this process, one pipe, wait."""
    argv = [world.python, "-u", str(world.ranks / "hello.py")]
    read_fd, write_fd = os.pipe()
    started = time.monotonic()
    pids = [
        os.posix_spawn(
            argv[0], argv, env, file_actions=[(os.POSIX_SPAWN_DUP2, write_fd, 1)]
        )
        for _ in range(nprocs)
    ]  # fmt: skip
    os.close(write_fd)
    shown_at = started
    while LINE in os.read(read_fd, 1 << 16):
        shown_at = time.monotonic()
    for pid in pids:
        os.waitpid(pid, 0)
    ended = time.monotonic()
    os.close(read_fd)
    return _last_stamp(stamps, nprocs) - started, shown_at - started, ended - started


def _last_stamp(stamps: os.PathLike[str], nprocs: int) -> float:
    with open(stamps, encoding="ascii") as f:
        times = [int(line.split()[3]) for line in f]
    if len(times) != nprocs:
        raise RuntimeError(f"{len(times)} of {nprocs} ranks ran")
    return max(times) / 1e9
