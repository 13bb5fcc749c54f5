"""Examples a second of ctr-dnn and wide & deep, a server and one to four workers; beside the peer.

Batch 512, one thread each, asynchronous, from slot text on the disk: reading and parsing count.
The peer reads as PaddleRec's trainer for servers does where runner.reader_type is not given, which
is how its models are shipped: a Python dataset and paddle.io.DataLoader; and with QueueDataset,
which its documents advise for clusters. Read in tools/static_ps_trainer.py and
tools/utils/static_ps/reader_helper.py of PaddleRec. A rate is the last epoch's, without what is
compiled or made in the first; the peer's workers' rates are added up.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from benchmarks.ps.figure import Figure

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from benchmarks.rec.bench import RecBench, Task

MODELS = {"dnn": "ctr-dnn", "wide_deep": "wide & deep"}
WORKERS = (1, 2, 4)
SHARE, ROUNDS, EPOCHS = 0.53, 3, 2
TIMES_PEER = 10.0
PEER_EXAMPLES = 30_000  # it is slow; its rate is the same with more
MORE = {"torch": "plain PyTorch with one local table", "queue": "PaddleRec's QueueDataset"}


def measure(bench: RecBench) -> list[Figure]:
    """One worker beside all peers, then more workers beside the default; the most wanted first."""
    figures: list[Figure] = []
    tasks: list[Task] = []
    for workers in WORKERS[:1] if bench.quick else WORKERS:
        for name, title in MODELS.items():
            label = f"{title}, 1 server, {workers} worker{'s' * (workers > 1)}"
            times = TIMES_PEER if workers == 1 else None
            beside = {"loader": Figure(label, "ex/s", None, True, times)}
            beside["loader"].notes["peer"] = "(PaddleRec: DataLoader)"
            if workers == 1:
                for way, note in MORE.items():
                    beside[way] = Figure(f"{label}, beside {note}", "ex/s", more_is_better=True)
            found = list(beside.values())
            figures += found
            tasks.append(("ours", found, partial(ours, bench, name, workers, found)))
            for way, figure in beside.items():
                if way == "torch" or bench.peer is not None:
                    tasks.append(
                        ("peer", [figure], partial(peer, bench, name, workers, way, figure))
                    )
    bench.rounds(SHARE, ROUNDS, tasks)
    return figures


def ours(bench: RecBench, name: str, workers: int, figures: Sequence[Figure]) -> None:
    """The same run counts beside each peer."""
    options = {"framework": "torch", "runner.sync_mode": "async", "runner.epochs": EPOCHS}
    model = f"paddock.models.rank.{name}"
    rate = rate_of(bench.ours(model, options, workers=workers, servers=1))
    for figure in figures:
        figure.add("ours", rate)


def peer(bench: RecBench, name: str, workers: int, way: str, figure: Figure) -> None:
    """One of the other ways."""
    if way == "torch":
        words = ["--data", str(bench.clicks()), "--model", name, "--epochs", str(EPOCHS)]
        found = [bench.script("plain_torch.py", words)]
    else:
        found = bench.peers(name, way, PEER_EXAMPLES, workers=workers, epochs=EPOCHS)
    figure.add("peer", rate_of(found))


def rate_of(workers: Sequence[Sequence[dict[str, Any]]]) -> float | None:
    """Examples a second of all workers in their last epoch; None where something failed."""
    last = [[line["rate"] for line in epochs if "rate" in line] for epochs in workers]
    if not last or not all(last):
        return None
    return sum(float(rates[-1]) for rates in last)
