"""`paddock data split` beside `cp`, and the memory of the dispatcher with a million chunks."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from typing import TYPE_CHECKING

from benchmarks.ps.figure import Figure
from benchmarks.ps.machine import Others
from benchmarks.ps.peer.install import clean_environment

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.rec.bench import RecBench

ROUNDS = 5
BYTES, QUICK_BYTES = 1 << 30, 64 << 20
TIMES_CP = 2.0
COUNT = 16
MEBIBYTES_MAX = 200.0


def measure(bench: RecBench) -> list[Figure]:
    """Two rules of splitting; then the dispatcher."""
    whole = bench.home / "whole.txt"
    part = b"".join(path.read_bytes() for path in sorted(bench.clicks().glob("part-*")))
    with whole.open("wb") as out:
        while out.tell() < (QUICK_BYTES if bench.quick else BYTES):
            out.write(part)
    figures = [split(bench, whole, rule) for rule in ("lines", "bytes")]
    whole.unlink()
    return [*figures, dispatcher(bench)]


def split(bench: RecBench, whole: Path, rule: str) -> Figure:
    """The command, its start included; cp and then fsync, as split does."""
    gigabytes = whole.stat().st_size / 2**30
    figure = Figure(f"data split --by {rule}, {gigabytes:.2f} GiB", "s", target_ratio=1 / TIMES_CP)
    figure.notes["peer"] = "(cp; sync)"
    env = {**clean_environment(), "PYTHONPATH": str(bench.source)}
    out = bench.home / "shards"
    ours = [sys.executable, "-m", "paddock", "data", "split", str(whole), "--count", str(COUNT)]
    ours += ["--by", rule, "--out", str(out)]
    copy = bench.home / "copy.txt"
    theirs = ["sh", "-c", 'cp "$1" "$2" && sync "$2"', "sh", str(whole), str(copy)]
    for _ in range(1 if bench.quick else ROUNDS):
        bench.wait_idle()
        others = Others()
        for side, argv in (("ours", ours), ("peer", theirs)):
            at = time.perf_counter()
            subprocess.run(argv, env=env, check=True, capture_output=True)
            figure.add(side, time.perf_counter() - at)
        figure.busy.append(round(others.cores(), 2))
        shutil.rmtree(out)
        copy.unlink()
    return figure


def dispatcher(bench: RecBench) -> Figure:
    """What a million chunks and a pass over them add to a process."""
    figure = Figure("dispatcher, a million chunks", "MiB", MEBIBYTES_MAX)
    for line in bench.script("chunks.py", []):
        figure.add("ours", line["added_mb"])
        figure.notes["ours"] = f"({line['turn_us']:.0f} us a turn)"
    return figure
