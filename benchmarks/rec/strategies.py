"""AUC of the four strategies on examples that nobody trained on, beside that of one process."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from benchmarks.ps.figure import Figure

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.rec.bench import RecBench, Task

STRATEGIES = ("sync", "async", "half_async", "geo")
MODEL = "paddock.models.rank.dnn"
SHARE = 0.21
WORKERS, EPOCHS = 2, 2
LOSS_MAX = 0.01  # of AUC


def measure(bench: RecBench) -> list[Figure]:
    """One figure a strategy; the target is the single process's AUC less 0.01."""
    alone = Figure("AUC, ctr-dnn, single", "", more_is_better=True)
    figures = [alone]
    tasks: list[Task] = [("ours", [alone], partial(judge, bench, alone, "sync", 1, 0))]
    for strategy in STRATEGIES:
        name = f"AUC, ctr-dnn, {strategy}, {WORKERS} workers"
        figures.append(Figure(name, "", more_is_better=True))
        task = partial(judge, bench, figures[-1], strategy, WORKERS, 1)
        tasks.append(("ours", figures[-1:], task))
    bench.rounds(SHARE, 1, tasks)
    if (best := alone.result("ours")) is not None:
        for figure in figures[1:]:
            figure.target = round(best - LOSS_MAX, 4)
    return figures


def judge(bench: RecBench, figure: Figure, strategy: str, workers: int, servers: int) -> None:
    """One run."""
    figure.add("ours", area(bench, strategy, workers=workers, servers=servers))


def area(bench: RecBench, strategy: str, *, workers: int, servers: int) -> float | None:
    """The AUC of the test line; None where it failed."""
    count = bench.examples // 4
    options = {
        "framework": "torch", "runner.sync_mode": strategy, "runner.epochs": EPOCHS, "geo_step": 10,
        "runner.test_data_dir": bench.clicks(count, seed=2),
        # As many examples a step, by however many workers.
        "runner.train_batch_size": 512 // workers,
    }  # fmt: skip
    return last_area(bench.ours(MODEL, options, workers=workers, servers=servers))


def last_area(workers: Sequence[Sequence[dict[str, float]]]) -> float | None:
    """Of the line that has no rate: the test's."""
    found = [line["auc"] for epochs in workers for line in epochs if "rate" not in line]
    return found[-1] if found else None
