"""A flat vector of float32, cut into shards; each shard is one row of its optimizer.

Not thread-safe: the caller holds `lock`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from itertools import count

import numpy as np

from paddock.errors import PaddockError
from paddock.ps.jit import F32
from paddock.ps.optimizers.schedules import Rate
from paddock.ps.optimizers.updater import Updater
from paddock.ps.spec import DenseSpec
from paddock.ps.table.initial import Initial
from paddock.ps.table.sharding import as_contiguous
from paddock.ps.table.states import State, check_shape
from paddock.ps.xxh3 import xxh3

_ROW = np.zeros(1, np.int64)
# Of all tables of a process: one that is made anew has no number of the one before.
_CHANGES = count(1)


class DenseTable:
    """The shards of one dense table that are on this server.

    >>> table = DenseTable(DenseSpec("w", 4, shards=2), range(2))
    >>> table.push(0, np.ones(4, np.float32), lr=Rate(0.5))
    >>> out = np.empty(3, np.float32)
    >>> table.pull(1, out)
    >>> out.tolist()
    [-0.5, -0.5, -0.5]
    """

    def __init__(self, spec: DenseSpec, shards: Iterable[int]) -> None:
        self.spec = spec
        self._updaters: dict[int, Updater] = {}  # By the length of a shard.
        self._rows: dict[int, F32] = {}
        self.version = next(_CHANGES)  # another number after each change
        for shard in shards:
            self.add_shard(shard)

    @property
    def shards(self) -> list[int]:
        """Shards that are here, in order."""
        return sorted(self._rows)

    @property
    def nbytes(self) -> int:
        """Bytes of weights and state."""
        return sum(row.nbytes for row in self._rows.values())

    def add_shard(self, shard: int) -> None:
        """Takes a shard in, at its first value."""
        start, stop = self.spec.range(shard)
        length, updater = stop - start, self._updater(stop - start)
        row = np.empty((1, updater.width), np.float32)
        # Element e is column e of key 0, so it starts the same however the vector is cut.
        initial = Initial(self.spec.initial, self.spec.size)
        initial.fill(np.zeros(1, np.int64), row[:, :length], start)
        row[:, length:] = updater.initial_state
        self._rows[shard] = row
        self.version = next(_CHANGES)

    def holds(self, start: int, stop: int) -> bool:
        """All elements [start, stop) are here."""
        is_within = 0 <= start <= stop <= self.spec.size
        return is_within and all(one in self._rows for one, _, _ in self._parts(start, stop))

    def holds_whole(self, start: int, stop: int) -> bool:
        """All elements are here and no shard is cut, as a push needs."""
        return self.holds(start, stop) and all(
            self.spec.range(shard) == (first, end) for shard, first, end in self._parts(start, stop)
        )

    def pull(self, start: int, out: F32) -> None:
        """Writes the elements from `start` on to out, (n,) float32."""
        for part, weights in self._weights(start, start + len(out)):
            out[part] = weights

    def push(self, start: int, grads: F32, *, lr: Rate) -> None:
        """Updates whole shards by grads, (n,) float32, which may be overwritten.

        Raises PaddockError, and changes nothing, when a shard is not here or is covered in part.
        """
        if not self.holds_whole(start, start + len(grads)):
            raise self._refused(start, start + len(grads))
        grads = as_contiguous(grads, np.float32)
        for shard, first, end in self._parts(start, start + len(grads)):
            part = grads[first - start : end - start].reshape(1, -1)
            self._updaters[end - first].apply(self._rows[shard], _ROW, part, lr)
        self.version = next(_CHANGES)

    def set(self, start: int, values: F32) -> None:
        """Sets the elements from `start` on to values, (n,) float32; state stays."""
        for part, weights in self._weights(start, start + len(values)):
            weights[:] = values[part]
        self.version = next(_CHANGES)

    def add(self, start: int, deltas: F32) -> None:
        """Adds deltas, (n,) float32, to the elements from `start` on; state stays."""
        for part, weights in self._weights(start, start + len(deltas)):
            weights += deltas[part]
        self.version = next(_CHANGES)

    def shard_state(self, shard: int) -> State:
        """A copy of a shard: values float32[1, width], weights and state."""
        return {"values": self._rows[shard].copy()}

    def shard_changes(self, shard: int, since: int) -> tuple[State, bool]:
        """(shard_state, True): every push changes all of it."""
        return self.shard_state(shard), True

    def begin_cut(self, lsn: int, shards: Iterable[int]) -> dict[int, State]:
        """From now on cut_state gives these shards as they are now, once each."""
        return {shard: self.shard_state(shard) for shard in shards}

    def end_cut(self, cut: dict[int, State] | None = None) -> None:
        """The cut is over; without a name, every cut is: but a copy is kept."""
        if cut is not None:
            cut.clear()

    def cut_state(self, cut: dict[int, State], shard: int) -> State:
        """The shard_state at the cut. Raises KeyError when it is not kept any more."""
        return cut.pop(shard)

    def check_state(self, shard: int, state: State) -> None:
        """Raises PaddockError when it is not a state of this shard, which need not be here."""
        start, stop = self.spec.range(shard)
        check_shape(self.spec, shard, state["values"], (1, self._updater(stop - start).width))

    def load_shard(self, shard: int, state: State) -> None:
        """Makes a shard that is here what a state says. Raises: PaddockError if it cannot be."""
        self.check_state(shard, state)
        self._rows[shard][:] = state["values"]
        self.version = next(_CHANGES)

    def drop_shard(self, shard: int) -> None:
        """Forgets a shard."""
        del self._rows[shard]
        self.version = next(_CHANGES)

    def digest(self) -> int:
        """64-bit hash of the content; sums modulo 2 ** 64 over shards and servers."""
        total = sum(xxh3(row.tobytes(), seed=shard) for shard, row in self._rows.items())
        return total & ((1 << 64) - 1)

    def _updater(self, length: int) -> Updater:
        if length not in self._updaters:
            self._updaters[length] = Updater(self.spec.optimizer, length)
        return self._updaters[length]

    def _parts(self, start: int, stop: int) -> Iterator[tuple[int, int, int]]:
        """(shard, first, end): the elements of [start, stop) that each shard has."""
        starts = self.spec.starts
        shard = bisect_right(starts, start) - 1
        while start < stop:
            end = min(starts[shard + 1], stop)
            if end > start:
                yield shard, start, end
                start = end
            shard += 1

    def _weights(self, start: int, stop: int) -> Iterator[tuple[slice, F32]]:
        """(slice of [0, stop - start), the weights there as a view) for each shard."""
        if not self.holds(start, stop):
            raise self._refused(start, stop)
        for shard, first, end in self._parts(start, stop):
            begin, _ = self.spec.range(shard)
            weights = self._rows[shard][0, first - begin : end - begin]
            yield slice(first - start, end - start), weights

    def _refused(self, start: int, stop: int) -> PaddockError:
        return PaddockError(
            f"table {self.spec.name!r}: elements {start} to {stop} are not whole shards of this "
            f"server (size {self.spec.size} in {self.spec.shards} shards)",
            hint="cut frames at shards",
        )
