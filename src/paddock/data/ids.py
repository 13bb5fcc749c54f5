"""How the ids of a slot are distributed, in little memory. Pure."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from paddock.data.generate.ceiling import mixed

EXACT_MAX = 1 << 17  # different ids that are counted one by one
KEPT = 1 << 15  # of them, the most frequent, when there are more
REGISTER_BITS = 12

Ids = NDArray[np.int64]


class IdCounts:
    """Counts of ids: exact to EXACT_MAX different ones; then only the frequent are exact enough.

    The number of different ids comes from HyperLogLog then (Flajolet et al. 2007), to about 2 %.
    """

    def __init__(self) -> None:
        self.total = 0
        self.low = self.high = 0
        self.is_exact = True
        self._ids: Ids = np.empty(0, np.int64)
        self._counts: Ids = np.empty(0, np.int64)
        self._registers = np.zeros(1 << REGISTER_BITS, np.uint8)

    def add(self, values: Ids) -> None:
        """Count ids, (n,) int64."""
        if not len(values):
            return
        ids, counts = np.unique(values, return_counts=True)
        low, high = int(ids[0]), int(ids[-1])
        self.low, self.high = (
            (min(self.low, low), max(self.high, high)) if self.total else (low, high)
        )
        self.total += len(values)
        self._note(ids)
        both = np.concatenate([self._ids, ids])
        self._ids, places = np.unique(both, return_inverse=True)
        weights = np.concatenate([self._counts, counts])
        self._counts = np.bincount(places, weights).astype(np.int64)
        if len(self._ids) > EXACT_MAX:
            self.is_exact = False
            kept = np.sort(np.argpartition(self._counts, -KEPT)[-KEPT:])
            self._ids, self._counts = self._ids[kept], self._counts[kept]

    def _note(self, ids: Ids) -> None:
        hashes = mixed(ids.view(np.uint64))
        places = (hashes >> np.uint64(64 - REGISTER_BITS)).astype(np.int64)
        rest = hashes & np.uint64((1 << (64 - REGISTER_BITS)) - 1)
        # Zeros before the first one of the rest's 52 bits, and 1: exact in a float64.
        length = np.frexp(rest.astype(np.float64))[1]
        rank = (64 - REGISTER_BITS + 1 - length).astype(np.uint8)
        np.maximum.at(self._registers, places, rank)

    def distinct(self) -> int:
        """How many different ids there are, or about how many."""
        if self.is_exact:
            return len(self._ids)
        size = len(self._registers)
        scale = 0.7213 / (1 + 1.079 / size)
        return int(scale * size * size / np.sum(2.0 ** -self._registers.astype(np.float64)))

    def top(self, count: int) -> list[tuple[int, float]]:
        """The most frequent ids and their shares of all."""
        order = np.argsort(-self._counts, kind="stable")[:count]
        return [(int(self._ids[i]), float(self._counts[i]) / self.total) for i in order]
