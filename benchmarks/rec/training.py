"""Examples a second of ctr-dnn and wide & deep, a server and one to four workers; beside the peer.

Batch 512, one thread each, asynchronous, from slot text on the disk: reading and parsing count.
The peer is asked in both ways that PaddleRec has to read, and the faster counts. A rate is the
last epoch's, without what is compiled or made in the first; workers' rates are added up.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.ps.figure import Figure
from benchmarks.ps.machine import Others

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from benchmarks.rec.bench import RecBench

MODELS = {"dnn": "ctr-dnn", "wide_deep": "wide & deep"}
WORKERS = (1, 2, 4)
ROUNDS, EPOCHS = 3, 2
TIMES_PEER = 10.0
READERS = ("queue", "loader")


def measure(bench: RecBench) -> list[Figure]:
    """A figure for each model and number of workers; then the price of the servers."""
    figures = []
    for name, title in MODELS.items():
        for workers in WORKERS[:1] if bench.quick else WORKERS:
            label = f"{title}, 1 server, {workers} worker{'s' * (workers > 1)}"
            times = TIMES_PEER if workers == 1 else None
            found = Figure(label, "ex/s", more_is_better=True, target_ratio=times)
            figures.append(found)
            for _ in range(1 if bench.quick else ROUNDS):
                beside_peer(bench, found, name, workers)
        figures.append(beside_torch(bench, name, title))
    return figures


def beside_peer(bench: RecBench, figure: Figure, name: str, workers: int) -> None:
    """One round."""
    bench.wait_idle()
    others = Others()
    figure.add("ours", rate_of(ours(bench, name, workers, servers=1)))
    if bench.peer is not None:
        rates = [rate_of(bench.peers(name, way, workers=workers, epochs=EPOCHS)) for way in READERS]
        known = [(rate, way) for rate, way in zip(rates, READERS, strict=True) if rate]
        if known:
            rate, way = max(known)
            figure.add("peer", rate)
            figure.notes["peer"] = f"({way})"
    figure.busy.append(round(others.cores(), 2))


def beside_torch(bench: RecBench, name: str, title: str) -> Figure:
    """`paddock rec` with a server beside plain PyTorch with one local table; and without one."""
    figure = Figure(f"{title}: 1 worker 1 server beside plain PyTorch", "ex/s", more_is_better=True)
    figure.notes["peer"] = "(torch, one table)"
    for _ in range(1 if bench.quick else ROUNDS):
        bench.wait_idle()
        others = Others()
        figure.add("ours", rate_of(ours(bench, name, 1, servers=1)))
        words = ["--data", str(bench.clicks()), "--model", name, "--epochs", str(EPOCHS)]
        figure.add("peer", rate_of([bench.script("plain_torch.py", words)]))
        figure.busy.append(round(others.cores(), 2))
    return figure


def ours(bench: RecBench, name: str, workers: int, *, servers: int) -> list[list[dict[str, float]]]:
    """The epochs of every worker."""
    options = {"framework": "torch", "runner.sync_mode": "async", "runner.epochs": EPOCHS}
    return bench.ours(f"paddock.models.rank.{name}", options, workers=workers, servers=servers)


def rate_of(workers: Sequence[Sequence[dict[str, Any]]]) -> float | None:
    """Examples a second of all workers in their last epoch; None where something failed."""
    last = [[line["rate"] for line in epochs if "rate" in line] for epochs in workers]
    if not last or not all(last):
        return None
    return sum(float(rates[-1]) for rates in last)
