"""A table as a server holds it: its rows, what is held apart for a step, its lock."""

from __future__ import annotations

from dataclasses import dataclass, field

from paddock.ps.consistency.contributions import DenseContributions, SparseContributions
from paddock.ps.optimizers.updater import Updater
from paddock.ps.server.locks import TableLock
from paddock.ps.server.moves import Moves
from paddock.ps.spec import DenseSpec, SparseSpec, shard_range
from paddock.ps.table.dense import DenseTable
from paddock.ps.table.sparse import SparseTable


@dataclass(slots=True)
class HeldSparse:
    """A sparse table of this server.

    step: batches that its optimizer has seen. base: those of them before this job's first, when
    it began with a checkpoint.
    """

    number: int
    spec: SparseSpec
    table: SparseTable
    contributions: SparseContributions
    owned: list[int]
    moves: Moves
    lock: TableLock = field(default_factory=TableLock)
    step: int = 0
    base: int = 0


@dataclass(slots=True)
class HeldDense:
    """A dense table, or the shards of it that are this server's."""

    number: int
    spec: DenseSpec
    table: DenseTable
    contributions: DenseContributions
    owned: list[int]
    moves: Moves
    lock: TableLock = field(default_factory=TableLock)
    step: int = 0
    base: int = 0


Held = HeldSparse | HeldDense


def updaters_of(spec: DenseSpec, owned: list[int]) -> dict[int, Updater]:
    """The optimizer of each shard that is here; of equal shards it is the same one."""
    made: dict[int, Updater] = {}
    found = {}
    for shard in owned:
        start, end = shard_range(spec.size, spec.shards, shard)
        if end - start not in made:
            made[end - start] = Updater(spec.optimizer, end - start)
        found[shard] = made[end - start]
    return found
