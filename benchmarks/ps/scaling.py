"""Examples a second of 1 to 4 servers with 1 to 4 trainers, the light model."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from benchmarks.ps.figure import Figure
from benchmarks.ps.training import rate_of

if TYPE_CHECKING:
    from benchmarks.ps.bench import Bench

SIZES = (1, 2, 3, 4)
QUICK_SIZES = (1, 2)
EPOCHS = 3


def measure(bench: Bench) -> list[Figure]:
    """Once each: the table shows a trend. More processes than cores is said beside the figure."""
    figures = []
    sizes = QUICK_SIZES if bench.quick else SIZES
    words = ["--data", str(bench.data(parts=max(sizes))), "--epochs", str(EPOCHS)]
    cores = os.cpu_count() or 1
    for servers in sizes:
        for trainers in sizes:
            crowded = f" on {cores} cores" if servers + trainers > cores else ""
            name = f"{servers} servers, {trainers} trainers{crowded}"
            figure = Figure(f"scaling, {name}", "ex/s", more_is_better=True)
            many = {"servers": servers, "trainers": trainers}
            for side, found in bench.run_both([figure], "train.py", words, **many).items():
                figure.add(side, rate_of(found))
            figures.append(figure)
    return figures
