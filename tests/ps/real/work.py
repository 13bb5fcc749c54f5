"""What the trainers of these tests compute: a pure function of seed, trainer, step and rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from paddock.ps import Client, DenseSpec, OptimizerSpec, SparseSpec
from paddock.ps.spec import AccessorSpec, InitialSpec

WORDS = SparseSpec("words", 8, OptimizerSpec("adagrad", lr=0.1))
ADS = SparseSpec("ads", 4, OptimizerSpec("adam", lr=0.01), accessor=AccessorSpec(statistics=True))
TOP = DenseSpec("top", 3000, OptimizerSpec("momentum", lr=0.05), shards=4)
# Sums of whole numbers are the same in any order, so several trainers need not take turns.
ADDED = OptimizerSpec("sum")
VOCABULARY = 500
BATCH = 64


def declare(client: Client, suffix: str = "", *, adds: bool = False) -> None:
    """The three tables; suffix: after their names. adds: they are sums."""
    for spec in (WORDS, ADS, TOP):
        if adds:
            spec = replace(spec, optimizer=ADDED, initial=InitialSpec("zeros"))
        client.create(replace(spec, name=spec.name + suffix))


def batch(
    client: Client,
    seed: int,
    trainer: int,
    step: int,
    *,
    reads: bool,
    suffix: str = "",
    adds: bool = False,
) -> None:
    """One batch; it pushes to each table once. reads: gradients depend on what is pulled.

    adds: they are whole numbers.
    """
    rng = np.random.default_rng([seed, trainer, step])
    words = rng.integers(-VOCABULARY, VOCABULARY, BATCH)
    ads = rng.integers(0, 2**62, 8) // 2**54
    rows, more = rng.normal(size=(BATCH, 8)), rng.normal(size=(8, 4))
    top = rng.normal(size=3000).astype(np.float32)
    if reads:
        rows = rows * 0.1 + client.pull("words" + suffix, words)
        more = more * 0.1 + client.pull("ads" + suffix, ads)
        top = top * np.float32(0.1) + client.pull_dense("top" + suffix)
    if adds:
        rows, more, top = np.rint(rows), np.rint(more), np.rint(top)
    client.push("words" + suffix, words, rows.astype(np.float32))
    client.push("ads" + suffix, ads, more.astype(np.float32), shows=np.ones(8), clicks=ads % 2)
    client.push_dense("top" + suffix, top)
    client.step()


def train(
    client: Client,
    seed: int,
    steps: int,
    *,
    before: Callable[[int], None] = lambda step: None,
    suffix: str = "",
    adds: bool = False,
) -> dict[str, str]:
    """Train from the step the job is at to `steps`; the digests of the tables.

    before: called with each step before it begins. suffix: after the tables' names; such tables
    are trained from the first step on. adds: the tables are sums, and the digests those of what
    all trainers did.
    """
    declare(client, suffix, adds=adds)
    name = client.strategy.name
    is_clocked = name in ("sync", "staleness")
    noted = None if is_clocked or suffix else client.resume_offset()
    first = client.group.step if is_clocked else 1 + (noted or {"step": 0})["step"]
    for step in range(first, steps + 1):
        before(step)
        reads = name in ("sync", "half_async") and not adds
        batch(client, seed, client.place.trainer, step, reads=reads, suffix=suffix, adds=adds)
        if not is_clocked:
            client.commit_offset({"step": step})
    if adds:
        client.barrier("trained")
    return client.digest()


def applied(client: Client, tables: Sequence[str] = ("words", "ads", "top")) -> dict[str, int]:
    """Pushes (batches) applied to each table; on every server the same number."""
    counts: dict[str, set[int]] = {name: set() for name in tables}
    for status in client.status():
        for table in status["tables"]:
            counts[table["name"]].add(table["step"])
    assert all(len(found) == 1 for found in counts.values()), counts
    return {name: found.pop() for name, found in counts.items()}
