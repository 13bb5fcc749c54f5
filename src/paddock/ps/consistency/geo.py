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

Keys = NDArray[np.int64]
Rows = NDArray[np.int64]
Floats = NDArray[np.float32]
_FIRST_CAPACITY = 1024


class Pace:
    """When to exchange: after so many batches, or so many seconds, whichever is first.

    >>> pace = Pace(batches=2)
    >>> [pace.batch(now=float(t)) for t in range(4)]
    [False, True, False, True]
    """

    def __init__(self, *, batches: int = 0, seconds: float = 0.0) -> None:
        assert batches > 0 or seconds > 0
        self._batches, self._seconds = batches, seconds
        self._count, self._since = 0, float("nan")

    def batch(self, *, now: float) -> bool:
        """Count a batch that ended at `now`; whether to exchange. The first sets the clock."""
        if self._since != self._since:
            self._since = now
        self._count += 1
        late = self._seconds > 0 and now - self._since >= self._seconds
        if not late and not 0 < self._batches <= self._count:
            return False
        self._count, self._since = 0, now
        return True


class KeyIndex:
    """key -> row, rows numbered from 0 in the order they come. Sorted arrays, two of them.

    New keys go to the small one, which is merged into the large one when it has a quarter of its
    size: so adding keys costs a few copies of the whole in all.
    """

    def __init__(self) -> None:
        self._keys = [np.empty(0, np.int64), np.empty(0, np.int64)]
        self._rows = [np.empty(0, np.int64), np.empty(0, np.int64)]

    def __len__(self) -> int:
        return len(self._keys[0]) + len(self._keys[1])

    def find(self, keys: Keys) -> Rows:
        """int64[n]: the row of each key, -1 where it is unknown."""
        found = np.full(len(keys), -1, np.int64)
        for known, rows in zip(self._keys, self._rows, strict=True):
            if len(known):
                at = np.searchsorted(known, keys)
                at[at == len(known)] = 0
                found = np.where(known[at] == keys, rows[at], found)
        return found

    def add(self, keys: Keys) -> Rows:
        """The rows of keys that are distinct and unknown."""
        rows = np.arange(len(self), len(self) + len(keys), dtype=np.int64)
        order = np.argsort(keys)
        self._merge(1, keys[order], rows[order])
        if 4 * len(self._keys[1]) > len(self._keys[0]) + _FIRST_CAPACITY:
            self._merge(0, self._keys[1], self._rows[1])
            self._keys[1] = self._rows[1] = np.empty(0, np.int64)
        return rows

    def _merge(self, level: int, keys: Keys, rows: Rows) -> None:
        at = np.searchsorted(self._keys[level], keys)
        self._keys[level] = np.insert(self._keys[level], at, keys)
        self._rows[level] = np.insert(self._rows[level], at, rows)


class GeoRows:
    """A sparse table's local copy.

    values: float32[capacity, width]; the first dim columns are `latest`, the others the local
    optimizer's. An Updater works on them in place, with the rows `find` gave; then `touch`.
    """

    def __init__(self, dim: int, initial_state: Floats) -> None:
        self.dim = dim
        self._initial_state = np.array(initial_state, np.float32)
        width = dim + len(self._initial_state)
        self.values = np.zeros((_FIRST_CAPACITY, width), np.float32)
        self._old = np.zeros((_FIRST_CAPACITY, dim), np.float32)
        self._keys = np.zeros(_FIRST_CAPACITY, np.int64)
        self._is_touched = np.zeros(_FIRST_CAPACITY, np.bool_)
        self._index = KeyIndex()

    def __len__(self) -> int:
        return len(self._index)

    @property
    def nbytes(self) -> int:
        """Bytes of the copy: 4 * (width + dim) + 9 a row, and the index."""
        arrays = (self.values, self._old, self._keys, self._is_touched)
        return sum(a.nbytes for a in arrays) + 16 * len(self)

    def find(self, keys: Keys) -> Rows:
        """int64[n]: where each key's row is in `values`, -1 for a key that is not cached."""
        return self._index.find(keys)

    def missing(self, keys: Keys) -> Keys:
        """Those of the distinct keys that have to be pulled and inserted."""
        return keys[self.find(keys) < 0]

    def insert(self, keys: Keys, server: Floats) -> Rows:
        """Cache rows just pulled. keys: distinct, not cached. server: float32[n, dim]."""
        rows = self._index.add(keys)
        if len(self) > len(self.values):
            self._grow(max(len(self), 2 * len(self.values)))
        self.values[rows, : self.dim] = server
        self.values[rows, self.dim :] = self._initial_state
        self._old[rows] = server
        self._keys[rows] = keys
        return rows

    def _grow(self, capacity: int) -> None:
        def grown(array: np.ndarray) -> np.ndarray:
            larger = np.zeros((capacity, *array.shape[1:]), array.dtype)
            larger[: len(array)] = array
            return larger

        self.values, self._old = grown(self.values), grown(self._old)
        self._keys, self._is_touched = grown(self._keys), grown(self._is_touched)

    def touch(self, rows: Rows) -> None:
        """The optimizer has changed these rows."""
        self._is_touched[rows] = True

    def take_rest(self) -> tuple[Keys, Floats]:
        """As take_delta(1), of all rows that have a difference, also from exchanges before."""
        self._is_touched |= (self.values[:, : self.dim] != self._old).any(1)
        return self.take_delta(1)

    def take_delta(self, trainers: int) -> tuple[Keys, Floats]:
        """(keys int64[n] ascending, delta float32[n, dim]) to be pushed; none is touched after."""
        rows = np.flatnonzero(self._is_touched)
        rows = rows[np.argsort(self._keys[rows])]
        self._is_touched[rows] = False
        delta = (self.values[rows, : self.dim] - self._old[rows]) / np.float32(trainers)
        self._old[rows] += delta
        return self._keys[rows], delta

    def receive(self, keys: Keys, server: Floats) -> int:
        """Take over what others changed, keeping what is not sent yet; how many were cached.

        keys: distinct; those not cached are passed over. server: float32[n, dim].
        """
        rows = self.find(keys)
        here = rows >= 0
        rows, server = rows[here], server[here]
        self.values[rows, : self.dim] += server - self._old[rows]
        self._old[rows] = server
        return len(rows)


class GeoVector:
    """A dense table's local copy: the same rule on all elements. latest: changed in place."""

    def __init__(self, server: Floats) -> None:
        self.latest = np.array(server, np.float32)
        self._old = self.latest.copy()

    def take_delta(self, trainers: int) -> Floats:
        """float32[size] to be pushed."""
        delta: Floats = (self.latest - self._old) / np.float32(trainers)
        self._old += delta
        return delta

    def receive(self, server: Floats) -> None:
        """Take over what the servers have, keeping what is not sent yet."""
        self.latest += server - self._old
        self._old[:] = server
