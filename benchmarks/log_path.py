"""A million lines of 80 bytes from one rank to `wc -l`, and lines that arrive in two halves."""

from __future__ import annotations

import re
import subprocess
import time

from benchmarks.figure import Figure, interleave, rounds
from benchmarks.world import World, load_average

TORN_RANKS = 8
TORN_LINES = 500
# What makes each launcher show every rank's output with its rank in front, if it can.
TAGGED = {
    "paddock": ["--tail", "all"],
    "mpirun": ["--tag-output"],
    "torchrun": ["--tee", "3"],
    "paddle": [],
}
WHOLE = re.compile(rb"<(\d\d)(?:\1){99}>$")


def measure(world: World) -> list[Figure]:
    """Written in 64 KB chunks and by unbuffered print(); whole jobs, start and end included."""
    count = 200_000 if world.quick else 1_000_000
    figures = []
    for writer in ("chunks", "print"):
        figure = Figure(
            f"{count:,} lines through the launcher, {writer}", "s", wanted=0.3, over="bare"
        )

        def once(launcher: str, writer: str = writer, figure: Figure = figure) -> None:
            figure.add(launcher, _flood(world, launcher, writer, count))

        peers = 2 if writer == "chunks" else 1  # print takes seconds, and the peers longest
        ours = 3 if writer == "chunks" else 2
        plan = rounds(world, bare=ours, paddock=ours, mpirun=peers, torchrun=peers)
        interleave((figure,), plan, once, load_average)
        figures.append(figure)
    torn = Figure(f"torn lines of {TORN_RANKS * TORN_LINES:,} written in halves", "%", wanted=0)
    for launcher in world.launchers:
        if launcher != "paddle":  # its console shows rank 0 only
            torn.add(launcher, _torn(world, launcher))
    torn.loads.append(round(load_average(), 2))
    return [*figures, torn]


def _flood(world: World, launcher: str, writer: str, count: int) -> float:
    folder = world.folder()
    stamps = folder / "stamps"
    stamps.touch()
    env = {
        **world.env,
        "BENCH_STAMPS": str(stamps),
        "BENCH_LINES": str(count),
        "BENCH_WRITER": writer,
    }
    if launcher == "bare":
        argv = [world.python, "-u", str(world.ranks / "flood.py")]
    else:
        options = [] if launcher == "paddock" else TAGGED[launcher]  # one rank: shown as it is
        argv = world.command(launcher, 1, "flood.py", logs=folder / "log", options=options)
    started = time.monotonic()
    with subprocess.Popen(["wc", "-l"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as reader:
        assert reader.stdin is not None and reader.stdout is not None
        subprocess.run(
            argv,
            env=env,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=reader.stdin,
            stderr=subprocess.DEVNULL,
            check=True,
        )
        reader.stdin.close()
        seen = int(reader.stdout.read())
    took = time.monotonic() - started
    if seen < count:
        raise RuntimeError(f"{launcher}: {seen} of {count} lines arrived")
    for log in folder.rglob("workerlog.*"):
        log.unlink()  # 80 MB each
    return took


def _torn(world: World, launcher: str) -> float:
    """Of 100 lines, how many did not arrive in one piece on the console."""
    options = TAGGED[launcher]
    env = {"BENCH_LINES": str(TORN_LINES)}
    job = world.run(launcher, TORN_RANKS, "halves.py", options=options, env=env)
    try:
        job.wait(60.0)
        lines = job.output.read_bytes().splitlines()
    finally:
        job.end()
    whole = sum(1 for line in lines if WHOLE.search(line))
    total = TORN_RANKS * TORN_LINES
    return 100.0 * (total - whole) / total
