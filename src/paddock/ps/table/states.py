"""What a shard's state is outside a table: checked before it is loaded, hashed for comparison."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from paddock.errors import PaddockError
from paddock.ps.spec import SparseSpec
from paddock.ps.table.sharding import shard_of
from paddock.ps.xxh3 import xxh3

Keys = NDArray[np.int64]
State = dict[str, NDArray[np.generic]]

# Parts of a state that tell when, not what: replicas that agree may differ in them.
_HISTORY = ("version", "touched", "rewritten")


class Cut:
    """What a table was at one lsn, where it is another now.

    kept: rows changed since, of shards that nobody took yet. rest: what of a shard is no row.
    taken: shards that changed as wholes.
    """

    def __init__(self, lsn: int, rest: dict[int, State]) -> None:
        self.lsn = lsn
        self.rest = rest
        self.kept: dict[int, list[State]] = {shard: [] for shard in rest}
        self.taken: dict[int, State] = {}


def check_rows(
    spec: SparseSpec, width: int, shard: int, keys: Keys, values: NDArray[np.generic]
) -> None:
    """Raises PaddockError when these are not rows of this shard, of this width."""
    wanted = (len(keys), width)
    if values.shape != wanted or values.dtype != np.float32:
        raise PaddockError(
            f"table {spec.name!r}: shard {shard} was saved as {values.dtype} {values.shape}, "
            f"this table needs float32 {wanted}",
            hint="was it saved with another dim or optimizer?",
        )
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
