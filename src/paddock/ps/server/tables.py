"""A table as a server holds it: its rows, what is held apart for a step, its two locks."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from paddock.ps.optimizers.schedules import Rates
from paddock.ps.shards.ownership import ShardOwnership
from paddock.ps.spec import DenseSpec, SparseSpec
from paddock.ps.table.contributions import DenseContributions, SparseContributions
from paddock.ps.table.dense import DenseTable
from paddock.ps.table.sparse import SparseTable

Spec = TypeVar("Spec")
Table = TypeVar("Table")
Contributions = TypeVar("Contributions")


class TableLock:
    """writes: held while a record is checked and logged. rows: while rows are read or changed.

    A push takes `rows` before it lets go of `writes`. So records are carried out in the order of
    the log, while the next one is checked and logged; and a pull, which takes `rows` alone, never
    waits for a disk. `with` takes both: what was logged is carried out then.
    """

    def __init__(self) -> None:
        self.writes = threading.Lock()
        self.rows = threading.Lock()

    def __enter__(self) -> None:
        self.writes.acquire()
        self.rows.acquire()

    def __exit__(self, *problem: object) -> None:
        self.rows.release()
        self.writes.release()


@dataclass(slots=True)
class _ServerTable(Generic[Spec, Table, Contributions]):
    """A table, or the shards of it that are this server's.

    step: batches that its optimizer has seen. base: those of them before this job's first, when
    it began with a checkpoint.
    """

    number: int
    spec: Spec
    table: Table
    contributions: Contributions
    owned: list[int]
    ownership: ShardOwnership
    lock: TableLock = field(default_factory=TableLock)
    step: int = 0
    base: int = 0
    rates: Rates = field(default_factory=Rates)


class ServerSparseTable(_ServerTable[SparseSpec, SparseTable, SparseContributions]):
    """A sparse table of this server."""

    @property
    def rows_pending(self) -> int:
        """Rows that are held apart for a step; it may add as many."""
        return self.contributions.nbytes // (8 + 4 * self.spec.dim)


class ServerDenseTable(_ServerTable[DenseSpec, DenseTable, DenseContributions]):
    """A dense table, or its shards here."""


ServerTable = ServerSparseTable | ServerDenseTable
