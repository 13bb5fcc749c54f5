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

import numpy as np
from numpy.typing import NDArray

from paddock.ps.table.dense import DenseTable
from paddock.ps.table.index import Keys, Rows, make_index
from paddock.ps.table.memory import Growing
from paddock.ps.table.sharding import behaved

Floats = NDArray[np.float32]
# More rows than these are copied when they grow.
_RESERVED = 1 << 24


class GeoRows:
    """A sparse table's local copy.

    values: float32[capacity, width]; the first dim columns are `latest`, the others the local
    optimizer's. An Updater works on them in place, with the rows `find` gave; then `touch`.
    """

    def __init__(self, dim: int, initial_state: Floats) -> None:
        self.dim = dim
        self._initial_state = np.array(initial_state, np.float32)
        self._index = make_index(1, _RESERVED)
        self._values = Growing(np.float32, (dim + len(initial_state),), reserve=_RESERVED)
        self._old = Growing(np.float32, (dim,), reserve=_RESERVED)
        self._is_touched = Growing(np.bool_, reserve=_RESERVED)

    def __len__(self) -> int:
        return self._index.live

    @property
    def values(self) -> Floats:
        """Weights and optimizer state; perhaps another array once rows are inserted."""
        return self._values.array

    def find(self, keys: Keys) -> Rows:
        """int64[n]: where each key's row is in `values`, -1 for a key that is not cached."""
        return self._index.find(behaved(keys))

    def missing(self, keys: Keys) -> Keys:
        """Those of the distinct keys that have to be pulled and inserted."""
        return keys[self.find(keys) < 0]

    def insert(self, keys: Keys, server: Floats) -> None:
        """Cache rows just pulled. keys: distinct, not cached. server: float32[n, dim]."""
        rows, _ = self._index.make(behaved(keys))
        for column in (self._values, self._old, self._is_touched):
            column.need(self._index.top)
        self.values[rows, : self.dim] = server
        self.values[rows, self.dim :] = self._initial_state
        self._old.array[rows] = server

    def touch(self, rows: Rows) -> None:
        """The optimizer has changed these rows."""
        self._is_touched.array[rows] = True

    def take_delta(self, trainers: int, *, is_rest: bool = False) -> tuple[Keys, Floats]:
        """(keys int64[n] ascending, delta float32[n, dim]) to be pushed; none is touched after.

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
        return keys, delta

    def receive(self, keys: Keys, server: Floats) -> int:
        """Take over what others changed, keeping what is not sent yet; how many were cached.

        keys: distinct; those not cached are passed over. server: float32[n, dim].
        """
        rows = self.find(keys)
        here = rows >= 0
        rows, server = rows[here], server[here]
        self.values[rows, : self.dim] += server - self._old.array[rows]
        self._old.array[rows] = server
        return len(rows)


class GeoVector:
    """A dense table's local copy: the same rule on all elements. table: changed in place."""

    def __init__(self, table: DenseTable) -> None:
        self.table = table
        self._old = np.zeros(table.spec.size, np.float32)
        table.set(0, self._old)

    def _latest(self) -> Floats:
        latest: Floats = np.empty_like(self._old)
        self.table.pull(0, latest)
        return latest

    def take_delta(self, trainers: int) -> Floats:
        """float32[size] to be pushed."""
        delta: Floats = (self._latest() - self._old) / np.float32(trainers)
        self._old += delta
        return delta

    def receive(self, server: Floats) -> None:
        """Take over what the servers have, keeping what is not sent yet."""
        self.table.set(0, self._latest() + (server - self._old))
        self._old[:] = server
