"""Examples a second of wide & deep, asynchronous, one server and one trainer; and the AUC."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING

from benchmarks.ps.figure import Figure

if TYPE_CHECKING:
    from collections.abc import Iterable

    from benchmarks.ps.bench import Bench, Measured

# (name, layers, at least so many examples a second), batch 1,024, dim 16, Adam.
MODELS = (("light (64)", "64", 130_000.0), ("400x3", "400,400,400", 32_000.0))
ROUNDS = 2
EPOCHS = 3


def measure(bench: Bench) -> list[Figure]:
    """The median epoch: the first one, which makes the rows, is among the three."""
    figures: list[Figure] = []
    data = bench.data(parts=1)
    for name, layers, target in MODELS:
        rate = Figure(f"training, {name}", "ex/s", target, more_is_better=True)
        area = Figure(f"training, {name}: AUC in epoch {EPOCHS}", "", more_is_better=True)
        figures += [rate, area]
        words = ["--data", str(data), "--layers", layers, "--epochs", str(EPOCHS)]
        for _ in range(1 if bench.quick else ROUNDS):
            for side, trainers in bench.run_both((rate, area), "train.py", words).items():
                rate.add(side, rate_of(trainers))
                for epochs in trainers:
                    area.add(side, epochs[-1]["auc"])
    return figures


def rate_of(trainers: Measured) -> float | None:
    """Examples a second of all trainers: the sum of their median epochs; None for none."""
    if not trainers:
        return None
    return sum(_median(line["rate"] for line in epochs) for epochs in trainers)


def _median(values: Iterable[float]) -> float:
    return statistics.median(values)
