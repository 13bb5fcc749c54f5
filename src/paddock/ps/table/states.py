"""A shard's state outside a table: checked before it is loaded, hashed for comparison."""

from __future__ import annotations

from itertools import chain

import numpy as np
from numpy.typing import NDArray

from paddock.errors import PaddockError
from paddock.ps.jit import I32, I64
from paddock.ps.spec import SparseSpec, TableSpec
from paddock.ps.table.sharding import shard_of
from paddock.ps.xxh3 import xxh3

State = dict[str, NDArray[np.generic]]

# Parts of a state that tell when, not what: replicas that agree may differ in them.
_HISTORY = ("version", "touched", "rewritten")


class CowShards:
    """Copy-on-write shards: a table as it was at one lsn, while pushes go on.

    rest: what of a shard is no row. taken: shards that changed as wholes. is_open: (shards,) of
    which ones nobody took yet.
    """

    def __init__(self, lsn: int, shards: int, rest: dict[int, State]) -> None:
        self.lsn = lsn
        self.rest = rest
        self.taken: dict[int, State] = {}
        self.is_open = np.zeros(shards, np.bool_)
        self.is_open[list(rest)] = True
        self._kept: dict[int, list[State]] = {shard: [] for shard in rest}

    @property
    def nbytes(self) -> int:
        """Bytes of what was put aside. From any thread, as `ps stat` is answered."""
        states = [*self.taken.values(), *chain(*list(self._kept.values()))]
        return sum(array.nbytes for state in states for array in state.values())

    def keep(self, shards: I32, rows: State) -> None:
        """Put rows aside before they change, in the order of their open shards, (n,) int32."""
        found, starts = np.unique(shards, return_index=True)
        ends = [*starts[1:].tolist(), len(shards)]
        for shard, start, end in zip(found.tolist(), starts.tolist(), ends, strict=True):
            self._kept[shard].append({name: array[start:end] for name, array in rows.items()})

    def take(self, shard: int) -> list[State]:
        """The rows put aside, in pieces; once. Raises KeyError."""
        self.is_open[shard] = False
        return self._kept.pop(shard)


def check_shape(
    spec: TableSpec, shard: int, values: NDArray[np.generic], wanted: tuple[int, int]
) -> None:
    """Raises PaddockError when a shard's rows are not float32 of the wanted shape."""
    if values.shape != wanted or values.dtype != np.float32:
        raise PaddockError(
            f"table {spec.name!r}: shard {shard} was saved as {values.dtype} {values.shape}, "
            f"this table needs float32 {wanted}",
            hint="was it saved with another size, dim or optimizer?",
        )


def check_rows(
    spec: SparseSpec, width: int, shard: int, keys: I64, values: NDArray[np.generic]
) -> None:
    """Raises PaddockError when values are not this shard's rows: (n, width) of keys (n,)."""
    check_shape(spec, shard, values, (len(keys), width))
    strangers = int(np.count_nonzero(shard_of(keys, spec.shards) != shard))
    # A saved shard is sorted; one made elsewhere need not be.
    ordered = keys if (np.diff(keys) > 0).all() else np.sort(keys)
    twice = int(np.count_nonzero(ordered[1:] == ordered[:-1]))
    if strangers or twice:
        raise PaddockError(
            f"table {spec.name!r}: what was saved as shard {shard} has {strangers} keys of other "
            f"shards, {twice} keys twice",
            hint="was it saved with another number of shards?",
        )


def state_digest(shard: int, state: State, *, exact: bool = False) -> int:
    """The part of one shard in ``digest``; of a table in memory or read from a file."""
    if len(state["keys"]) == 0 and "candidate_keys" not in state:
        return 0
    pieces = []
    for name in sorted(state):
        if exact or name.removeprefix("candidate_") not in _HISTORY:
            pieces += [name.encode(), np.ascontiguousarray(state[name]).tobytes()]
    return xxh3(*pieces, seed=shard)
