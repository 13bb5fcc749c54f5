"""Memory of a million rows; how long saving and loading them takes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.ps.figure import Figure

if TYPE_CHECKING:
    from benchmarks.ps.bench import Bench

ROWS = 1_000_000
QUICK_ROWS = 200_000
ROUNDS = 2
MB, SAVE_SECONDS, LOAD_SECONDS = 150.0, 0.5, 1.0


def measure(bench: Bench) -> list[Figure]:
    """One accumulator a row on both sides, which is what the peer calls adagrad.

    Then, of ours, an accumulator for each element: 64 bytes a row more, so no target.
    """
    rows = QUICK_ROWS if bench.quick else ROWS
    memory = Figure("memory of a million rows, row adagrad", "MB", MB)
    save = Figure(f"save {rows:,} rows", "s", SAVE_SECONDS)
    load = Figure(f"load {rows:,} rows", "s", LOAD_SECONDS)
    wide = Figure("memory of a million rows, element adagrad", "MB")
    by_name = {"rows": (memory, "mb_per_million"), "save": (save, "s"), "load": (load, "s")}
    for number in range(1 if bench.quick else ROUNDS):
        folder = str(bench.home / f"checkpoint{number}")
        words = ["--what", "rows", "--rows", str(rows), "--folder", folder]
        for side, trainers in bench.run_both((memory, save, load), "micro.py", words).items():
            for line in (line for trainer in trainers for line in trainer):
                figure, field = by_name[line["name"]]
                figure.add(side, line[field])
        rule = ["--what", "rows", "--rows", str(rows), "--rule", "adagrad"]
        for line in (line for found in bench.run("ours", "micro.py", rule) for line in found):
            wide.add("ours", line["mb_per_million"])
    return [memory, wide, save, load]
