"""A table as a server holds it: its rows, what is held apart for a step, its lock."""

from __future__ import annotations

from dataclasses import dataclass, field

from paddock.ps.consistency.contributions import DenseContributions, SparseContributions
from paddock.ps.optimizers.schedules import Rates
from paddock.ps.server.locks import TableLock
from paddock.ps.server.moves import Moves
from paddock.ps.spec import DenseSpec, SparseSpec
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
    rates: Rates = field(default_factory=Rates)


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
    rates: Rates = field(default_factory=Rates)


Held = HeldSparse | HeldDense
