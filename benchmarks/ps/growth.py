"""The same operations on 0.1, 1 and 10 million rows: what a table's size costs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.ps.figure import Figure

if TYPE_CHECKING:
    from benchmarks.ps.bench import Bench

SIZES = (100_000, 1_000_000, 10_000_000)
QUICK_SIZES = (100_000, 300_000)


def measure(bench: Bench) -> list[Figure]:
    """Keys uniform over all rows, so that caches help as little as they can."""
    figures = []
    for rows in QUICK_SIZES if bench.quick else SIZES:
        size = f"{rows / 1e6:g} M rows"
        by_name = {
            "growth_pull": (Figure(f"{size}: pull 26,624 ids", "ms"), "ms"),
            "growth_push": (Figure(f"{size}: push 26,624 ids", "ms"), "each_ms"),
            "rows": (Figure(f"{size}: memory a million", "MB"), "mb_per_million"),
        }
        fill = Figure(f"{size}: filled in", "s")
        mine = [*(figure for figure, _ in by_name.values()), fill]
        words = ["--what", "growth", "--rows", str(rows), *(["--quick"] if bench.quick else [])]
        for side, trainers in bench.run_both(mine, "micro.py", words).items():
            for line in (line for trainer in trainers for line in trainer):
                figure, field = by_name[line["name"]]
                figure.add(side, line[field])
                if line["name"] == "rows":
                    fill.add(side, line["s"])
        figures += mine
    return figures
