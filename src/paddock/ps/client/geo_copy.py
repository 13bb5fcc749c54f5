"""geo, the trainer's half: a local copy that learns by itself, and what is exchanged. No I/O here.

    latest   what this trainer computes with; its own optimizer changes it
    old      what the servers had, as far as this trainer knows
    send     delta = (latest - old) / trainers, of the touched rows;  old += delta
             (merge="sum": not divided; what is left at the end: neither, and of all rows)
    receive  latest += server - old;  old = server

The servers add deltas. Sparse rows are cached when first needed; no vocabulary is given. A sent
delta is a push like any other: it is kept and sent again until it is acknowledged.
Source: the geo-SGD rule of Paddle 2.6 (GeoCommunicator), on touched rows only.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paddock.ps.jit import F32, I64
from paddock.ps.optimizers.schedules import Rate, Rates
from paddock.ps.optimizers.updater import Updater
from paddock.ps.spec import DenseSpec, OptimizerSpec, SparseSpec
from paddock.ps.table.dense import DenseTable
from paddock.ps.table.index import make_index
from paddock.ps.table.memory import GrowableArray
from paddock.ps.table.sharding import as_contiguous

Columns = list[NDArray[Any]]
# More rows than these are copied when they grow.
_RESERVED = 1 << 24


class _Copy:
    """A table's local copy."""

    def __init__(self, optimizer: OptimizerSpec) -> None:
        self.rates = Rates()
        self._optimizer = optimizer
        self._step = 0

    def _next_rate(self) -> Rate:
        self._step += 1
        return self.rates.at(self._optimizer, self._step - 1)


class GeoRows(_Copy):
    """GeoRows is a trainer's copy of rows of a sparse table.

    values: float32[capacity, width]; the first dim columns are `latest`, the others the local
    optimizer's.
    """

    def __init__(self, spec: SparseSpec) -> None:
        super().__init__(spec.optimizer)
        self.dim = spec.dim
        self._updater = Updater(spec.optimizer, spec.dim)
        self._index = make_index(1, _RESERVED)
        self._values = GrowableArray(np.float32, (self._updater.width,), reserve=_RESERVED)
        self._old = GrowableArray(np.float32, (spec.dim,), reserve=_RESERVED)
        self._is_touched = GrowableArray(np.bool_, reserve=_RESERVED)

    def __len__(self) -> int:
        return self._index.live

    @property
    def values(self) -> F32:
        """Weights and optimizer state, (rows, width) float32; another array after some inserts."""
        return self._values.array

    def find(self, keys: I64) -> I64:
        """int64[n]: where each key's row is in `values`, -1 for a key that is not cached."""
        return self._index.find(as_contiguous(keys, np.int64))

    def missing(self, keys: I64) -> I64:
        """The distinct keys that have to be pulled and inserted. keys: (n,) int64."""
        return keys[self.find(keys) < 0]

    def insert(self, keys: I64, server: F32) -> None:
        """Cache rows just pulled. keys: distinct, not cached. server: float32[n, dim]."""
        rows, _ = self._index.make(as_contiguous(keys, np.int64))
        for column in (self._values, self._old, self._is_touched):
            column.need(self._index.top)
        self.values[rows, : self.dim] = server
        self.values[rows, self.dim :] = self._updater.initial_state
        self._old.array[rows] = server
        self._is_touched.array[rows] = False

    def forget(self, columns: Columns | None = None) -> None:
        """Have these rows, and drop what is not sent of them. None: have all pulled anew."""
        if columns is None:
            self._index.clear(0)
            return
        rows = self.find(columns[0])
        here = rows >= 0
        rows = rows[here]
        self._is_touched.array[rows] = False
        self.values[rows, : self.dim] = self._old.array[rows] = columns[1][here]

    def read(self, keys: I64) -> F32:
        """float32[n, dim]: what is pulled of the copy. keys: cached."""
        found: F32 = self.values[self.find(keys), : self.dim].copy()
        return found

    def learn(self, columns: Columns, _: object = None) -> None:
        """A push of distinct cached keys and their gradients."""
        keys, grads = columns
        rows = self.find(keys)
        self._updater.apply(self.values, rows, grads, self._next_rate())
        self._is_touched.array[rows] = True

    def take_delta(self, trainers: int, *, is_rest: bool = False) -> Columns:
        """[keys int64[n] ascending, delta float32[n, dim]] to be pushed; none is touched after.

        is_rest: of all rows that have a difference, also from exchanges before.
        """
        keys, rows = self._index.entries(0)
        latest, old = self.values[:, : self.dim], self._old.array
        chosen = (latest[rows] != old[rows]).any(1) if is_rest else self._is_touched.array[rows]
        keys, rows = keys[chosen], rows[chosen]
        order = np.argsort(keys)
        keys, rows = keys[order], rows[order]
        self._is_touched.array[rows] = False
        delta = (latest[rows] - old[rows]) / np.float32(trainers)
        old[rows] += delta
        return [keys, delta]

    def receive(self, keys: I64, server: F32) -> int:
        """Take over what others changed, keeping what is not sent yet; how many were cached.

        keys: distinct; those not cached are passed over. server: float32[n, dim].
        """
        rows = self.find(keys)
        here = rows >= 0
        rows, server = rows[here], server[here]
        self.values[rows, : self.dim] += server - self._old.array[rows]
        self._old.array[rows] = server
        return len(rows)


class GeoVector(_Copy):
    """GeoVector copies a dense table: the same rule on all elements. table: changed in place."""

    def __init__(self, spec: DenseSpec) -> None:
        super().__init__(spec.optimizer)
        self.size = spec.size
        self.table = DenseTable(spec, range(spec.shards))
        self._old = np.zeros(spec.size, np.float32)
        self._is_cached = False
        self.table.set(0, self._old)

    def missing(self, _: object) -> F32:
        """An array for what has to be pulled: (size,) float32, or empty."""
        return np.empty(0 if self._is_cached else len(self._old), np.float32)

    def insert(self, _: object, server: F32) -> None:
        """Cache what was just pulled, (size,) float32."""
        self.receive(server)
        self._is_cached = True

    def forget(self, _: object = None) -> None:
        """Pull it anew, and drop what is not sent yet; the optimizer's state stays."""
        self._old[:] = 0  # To which what is pulled adds up without rounding.
        self.table.set(0, self._old)
        self._is_cached = False

    def read(self, out: F32) -> F32:
        """The copy's values are written into `out`: (elements,) float32."""
        self.table.pull(0, out)
        return out

    def learn(self, columns: Columns, runs: Sequence[tuple[int, int]] | None = None) -> None:
        """A push of the vector's runs."""
        lr = self._next_rate()
        for start, stop in [(0, len(self._old))] if runs is None else runs:
            self.table.push(start, columns[0][start:stop], lr=lr)

    def take_delta(self, trainers: int, *, is_rest: bool = False) -> Columns:
        """[float32[size]] to be pushed; [float32[0]] where nothing is."""
        delta: F32 = (self.read(np.empty_like(self._old)) - self._old) / np.float32(trainers)
        if not delta.any():
            return [delta[:0]]
        self._old += delta
        return [delta]

    def receive(self, server: F32) -> None:
        """Take over what the servers have, (size,) float32, keeping what is not sent yet."""
        self.table.add(0, server - self._old)
        self._old[:] = server
