"""AUC of the four strategies on examples that nobody trained on, beside that of one process."""

from __future__ import annotations

import statistics
import sys
from functools import partial
from typing import TYPE_CHECKING

from benchmarks.ps.figure import Figure

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.rec.bench import RecBench, Task

STRATEGIES = ("sync", "async", "half_async", "geo")
MODEL = "paddock.models.rank.dnn"
SHARE = 0.21
WORKERS = (2, 1, 4)  # what the target speaks of first
EPOCHS = 2
ROUNDS = 5  # --minutes 300
LOSS_MAX = 0.01  # of AUC


def measure(bench: RecBench) -> list[Figure]:
    """One figure a strategy and number of workers; the target is the single process's AUC less
    0.01. Each run is printed as it ends.
    """
    alone = Figure("AUC, ctr-dnn, single", "", more_is_better=True)
    figures = [alone]
    tasks: list[Task] = [("ours", [alone], partial(judge, bench, alone, "sync", 1, 0))]
    for workers in WORKERS:
        for strategy in STRATEGIES:
            name = f"AUC, ctr-dnn, {strategy}, {workers} worker{'s' * (workers > 1)}"
            figure = Figure(name, "", more_is_better=True)
            figures.append(figure)
            tasks.append(("ours", [figure], partial(judge, bench, figure, strategy, workers, 1)))
    bench.rounds(SHARE, ROUNDS, tasks)
    best = alone.result("ours")
    for figure in figures:
        if best is not None and figure is not alone:
            figure.target = round(best - LOSS_MAX, 4)
        if found := figure.samples.get("ours"):
            figure.notes["ours"] = spread(found)
    return figures


def spread(found: Sequence[float]) -> str:
    """
    >>> spread([0.8, 0.81, 0.802])
    '(mean 0.8040, 0.8000 to 0.8100, n = 3)'
    """
    ends = f"{min(found):.4f} to {max(found):.4f}"
    return f"(mean {statistics.mean(found):.4f}, {ends}, n = {len(found)})"


def judge(bench: RecBench, figure: Figure, strategy: str, workers: int, servers: int) -> None:
    """One run."""
    found = area(bench, strategy, workers=workers, servers=servers)
    figure.add("ours", found)
    print(f"\n{figure.name}: {found}", end=" ", file=sys.stderr, flush=True)


def area(bench: RecBench, strategy: str, *, workers: int, servers: int) -> float | None:
    """The AUC of the test line; None where it failed."""
    count = bench.examples // 4
    options = {
        "framework": "torch", "runner.sync_mode": strategy, "runner.epochs": EPOCHS,
        "runner.test_data_dir": bench.clicks(count, seed=2),
        # As many examples a step, by however many workers.
        "runner.train_batch_size": 512 // workers,
    }  # fmt: skip
    return last_area(bench.ours(MODEL, options, workers=workers, servers=servers))


def last_area(workers: Sequence[Sequence[dict[str, float]]]) -> float | None:
    """Of the line that has no rate: the test's."""
    found = [line["auc"] for epochs in workers for line in epochs if "rate" not in line]
    return found[-1] if found else None
