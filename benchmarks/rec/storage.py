"""`paddock data split` beside `cp`, and the memory of the dispatcher with a million chunks."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from functools import partial
from typing import TYPE_CHECKING

from benchmarks.ps.figure import Figure
from benchmarks.ps.peer.install import clean_environment

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.rec.bench import RecBench, Task

SHARE, ROUNDS = 0.15, 3
# Below a gigabyte the start of the command decides: 0.3 s.
BYTES, QUICK_BYTES = 1 << 30, 64 << 20
TIMES_CP = 2.0
COUNT = 16
MEBIBYTES_MAX = 200.0


def measure(bench: RecBench) -> list[Figure]:
    """Two rules of splitting, and the dispatcher."""
    whole = bench.home / "whole.txt"
    part = b"".join(path.read_bytes() for path in sorted(bench.clicks().glob("part-*")))
    with whole.open("wb") as out:
        while out.tell() < (QUICK_BYTES if bench.quick else BYTES):
            out.write(part)
    figures = []
    tasks: list[Task] = []
    for rule in ("lines", "bytes"):
        name = f"data split --by {rule}, {whole.stat().st_size / 2**30:.2f} GiB"
        figure = Figure(name, "s", target_ratio=1 / TIMES_CP, notes={"peer": "(cp; sync)"})
        figures.append(figure)
        tasks.append(("ours", [figure], partial(split, bench, whole, rule, figure)))
    memory = Figure("dispatcher, a million chunks", "MiB", MEBIBYTES_MAX)
    tasks.append(("ours", [memory], partial(dispatcher, bench, memory)))
    bench.rounds(SHARE, ROUNDS, tasks)
    whole.unlink()
    return [*figures, memory]


def split(bench: RecBench, whole: Path, rule: str, figure: Figure) -> None:
    """The command, its start included; cp and then sync, as split does."""
    env = {**clean_environment(), "PYTHONPATH": str(bench.source)}
    out, copy = bench.home / "shards", bench.home / "copy.txt"
    ours = [sys.executable, "-m", "paddock", "data", "split", str(whole), "--count", str(COUNT)]
    ours += ["--by", rule, "--out", str(out)]
    theirs = ["sh", "-c", 'cp "$1" "$2" && sync "$2"', "sh", str(whole), str(copy)]
    for side, argv in (("ours", ours), ("peer", theirs)):
        at = time.perf_counter()
        subprocess.run(argv, env=env, check=True, capture_output=True)
        figure.add(side, time.perf_counter() - at)
    shutil.rmtree(out)
    copy.unlink()


def dispatcher(bench: RecBench, figure: Figure) -> None:
    """What a million chunks and a pass over them add to a process."""
    for line in bench.script("chunks.py", []):
        figure.add("ours", line["added_mb"])
        figure.notes["ours"] = f"({line['turn_us']:.0f} us a turn)"
