"""The same operations on 0.1 to 30 million rows: what a table's size costs, and memory foretold."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.ps.figure import Figure
from paddock.ps.table.index import SLOT_BYTES, slots_for

if TYPE_CHECKING:
    from benchmarks.ps.bench import Bench

SIZES = (100_000, 1_000_000, 10_000_000)
QUICK_SIZES = (100_000, 300_000)
# Of ours alone; 30 M take 3.5 GB of memory and 2.5 GB of disk.
CHECKED = 30_000_000
FORETOLD = 100_000_000
MIB = 1 << 20
DIM, SHARDS = 16, 64
# Buffers, and the pages at the ends of blocks, may add this much to what is foretold.
TOLERANCE = 1.05


def foretold(rows: int) -> float:
    """MiB a million rows: weights, one accumulator and the version, and the index's blocks.

    >>> round(foretold(10_000_000), 1)
    110.1
    """
    row = 4 * (DIM + 1) + 8
    index = sum(slots_for(shard, -(-rows // SHARDS)) for shard in range(SHARDS)) * SLOT_BYTES
    return (row + index / rows) * 1e6 / MIB


def measure(bench: Bench) -> list[Figure]:
    """Keys uniform over all rows, so that caches help as little as they can."""
    figures = []
    for rows in QUICK_SIZES if bench.quick else (*SIZES, CHECKED):
        size = f"{rows / 1e6:g} M rows"
        memory = Figure(f"{size}: memory a million", "MB")
        by_name = {
            "growth_pull": (Figure(f"{size}: pull 26,624 ids", "ms"), "ms"),
            "growth_push": (Figure(f"{size}: push 26,624 ids", "ms"), "each_ms"),
            "rows": (memory, "mb_per_million"),
        }
        fill = Figure(f"{size}: filled in", "s")
        mine = [*(figure for figure, _ in by_name.values()), fill]
        words = ["--what", "growth", "--rows", str(rows), *(["--quick"] if bench.quick else [])]
        sides = ("ours",) if rows == CHECKED else bench.sides
        for side, trainers in bench.run_both(mine, "micro.py", words, sides=sides).items():
            for line in (line for trainer in trainers for line in trainer):
                figure, field = by_name[line["name"]]
                figure.add(side, line[field])
                if line["name"] == "rows":
                    fill.add(side, line["s"])
                    if rows >= SIZES[-1]:
                        memory.target = TOLERANCE * foretold(line["rows"])
        figures += mine
    last = Figure(f"{FORETOLD / 1e6:g} M rows: memory a million, foretold", "MB")
    last.add("ours", foretold(FORETOLD))
    return [*figures, last]
