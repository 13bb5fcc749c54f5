"""Pull, push and dense pull of one trainer and one server: section 7's first figures."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.ps.figure import Figure

if TYPE_CHECKING:
    from benchmarks.ps.bench import Bench

ROUNDS = 3
# ids of one call -> at most so many ms.
PULL_MS = {26: 0.15, 26_624: 2.2, 212_992: 13.0}
PUSH_MS = {26: None, 26_624: 3.2, 212_992: 16.0}
DENSE_MS = 7.0
DENSE_FLOATS = 4_000_000  # 16 MB


def measure(bench: Bench) -> list[Figure]:
    """Medians of a call; dim 16, one accumulator a row (what the peer calls adagrad), warm rows.

    The peer acknowledges no push: its figure is a stream of pushes and one flush, divided. Ours is
    shown both ways.
    """
    by_name: dict[tuple[str, str, int], Figure] = {}
    for ids, target in PULL_MS.items():
        by_name["pull", "ms", ids] = Figure(f"pull {ids:,} ids", "ms", target)
        if ids == 26:
            by_name["pull", "p99_ms", ids] = Figure(f"pull {ids:,} ids, p99", "ms")
    for ids, target in PUSH_MS.items():
        acknowledged = Figure(f"push {ids:,} ids, logged, each waited for", "ms", target)
        by_name["acknowledged", "ms", ids] = acknowledged
        by_name["push", "each_ms", ids] = Figure(f"push {ids:,} ids, in a stream", "ms")
    by_name["dense_pull", "ms", DENSE_FLOATS] = Figure("dense pull, 16 MB", "ms", DENSE_MS)
    by_name["dense_set", "ms", DENSE_FLOATS] = Figure("dense set, 16 MB", "ms")
    by_name["dense_push", "ms", DENSE_FLOATS] = Figure(
        "dense gradient, 16 MB, logged, waited for", "ms"
    )
    words = ["--what", "sparse,dense", "--data", str(bench.data()), "--dense", str(DENSE_FLOATS)]
    words += ["--quick"] if bench.quick else []
    for _ in range(1 if bench.quick else ROUNDS):
        found = bench.run_both(by_name.values(), "micro.py", words)
        for side, trainers in found.items():
            for line in (line for trainer in trainers for line in trainer):
                count = line.get("ids") or line["floats"]
                for (name, field, wanted), figure in by_name.items():
                    if (name, wanted) == (line["name"], count):
                        figure.add(side, line[field])
                if (side, line["name"]) == ("peer", "push"):
                    figure = by_name["acknowledged", "ms", count]
                    figure.add(side, line["each_ms"])
                    figure.notes[side] = "(not acknowledged)"
    return list(by_name.values())
