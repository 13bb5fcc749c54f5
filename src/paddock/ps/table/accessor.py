"""Keys are admitted to rows, and rows are given up: by counts, scores, chance and age.

Time comes with the call (seconds of the record being applied) and chance from a hash of (seed,
key, lsn), so a replay decides the same.
"""

from __future__ import annotations

import numpy as np

from paddock.ps.jit import F32, I64, U32, Flags
from paddock.ps.spec import AccessorSpec
from paddock.ps.table.index import make_index
from paddock.ps.table.memory import GrowableArray
from paddock.ps.table.sharding import admission_draw
from paddock.ps.table.states import State


def score(shows: F32, clicks: F32, spec: AccessorSpec) -> F32:
    """(show - click) * nonclick_coeff + click * click_coeff of each row, float32[n].

    Source: Paddle 2.6, CtrCommonAccessor::ShowClickScore.

    >>> score(np.float32([10]), np.float32([2]), AccessorSpec(nonclick_coeff=0.5)).tolist()
    [6.0]
    """
    nonclick, click = np.float32(spec.nonclick_coeff), np.float32(spec.click_coeff)
    out: F32 = (shows - clicks) * nonclick + clicks * click
    return out


def seconds(now: float) -> np.uint32:
    """The time in whole seconds since 1970, in 4 bytes, until 2106."""
    out: np.uint32 = np.uint32(min(max(int(now), 0), 0xFFFFFFFF))
    return out


def expired(touched: U32, ttl_seconds: int, now: float) -> Flags:
    """True, (n,) bool, for rows last pushed more than ttl_seconds ago; touched: (n,) uint32."""
    out: Flags = np.int64(seconds(now)) - touched.astype(np.int64) > ttl_seconds
    return out


def admits_all(spec: AccessorSpec) -> bool:
    """Every key gets a row at its first push."""
    return spec.admit_count <= 1 and spec.admit_probability >= 1.0 and spec.admit_score <= 0.0


def statistics_columns(
    spec: AccessorSpec, is_aged: bool, rows_max: int
) -> dict[str, GrowableArray]:
    """The arrays of shows and clicks that a table keeps, and of the time of the last push."""
    names = ["shows", "clicks"] * spec.statistics + ["touched"] * is_aged
    kinds = {"touched": np.uint32}
    return {n: GrowableArray(kinds.get(n, np.float32), reserve=rows_max) for n in names}


class Candidates:
    """Keys that were pushed and have no row yet: how often, and their shows and clicks.

    A key is admitted by a push that fulfils all of the spec's conditions. Each push draws
    its own chance. Without ttl_seconds a candidate is kept until it is admitted.
    """

    def __init__(self, spec: AccessorSpec, shards: int, rows_max: int, seed: int) -> None:
        self._spec = spec
        self._seed = seed

        self._index = make_index(shards, rows_max)
        # With chance alone there is nothing to remember.
        self._counts = spec.admit_count > 1 or spec.admit_score > 0.0
        counts = {"counts": GrowableArray(np.uint32, reserve=rows_max)}
        self._columns = counts | statistics_columns(spec, bool(spec.ttl_seconds), rows_max)

    @property
    def nbytes(self) -> int:
        """Bytes of the index and the columns."""
        return self._index.nbytes + sum(column.nbytes for column in self._columns.values())

    @property
    def arrays_left(self) -> int:
        """Candidates that fit into the arrays as they are."""
        held = min(len(column.array) for column in self._columns.values())
        return min(held, self._index.rows_sure) - self._index.top

    def reserve(self, keys: I64) -> None:
        """Makes room for these distinct keys, (n,) int64. Raises MemoryError."""
        new = keys[self._index.find(keys) < 0]
        self._index.reserve(new)
        for column in self._columns.values():
            column.hold(max(self._index.top, self._index.live + len(new)))

    def admit(
        self, keys: I64, shows: F32, clicks: F32, *, now: float, lsn: int
    ) -> tuple[Flags, F32, F32]:
        """Counts a push of keys that have no row: (admitted, shows, clicks so far), each (n,).

        The admitted are forgotten here: they get a row.
        """
        spec = self._spec
        lucky = np.ones(len(keys), np.bool_)
        if spec.admit_probability < 1.0:
            lucky = admission_draw(keys, self._seed, lsn) < spec.admit_probability
        if not self._counts:
            return lucky, shows, clicks
        rows, fresh = self._index.make(keys)
        for name, column in self._columns.items():
            column.need(self._index.top)
            column.array[rows[fresh]] = 0
            if name == "touched":
                column.array[rows] = seconds(now)
        counts = self._columns["counts"].array
        counts[rows] += np.uint32(1)
        admitted = lucky & (counts[rows] >= spec.admit_count)
        if spec.statistics:
            kept_shows, kept_clicks = self._columns["shows"].array, self._columns["clicks"].array
            kept_shows[rows] += shows
            kept_clicks[rows] += clicks
            shows, clicks = kept_shows[rows], kept_clicks[rows]
            if spec.admit_score > 0.0:
                admitted &= score(shows, clicks, spec) >= spec.admit_score
        self._index.remove(keys[admitted])
        return admitted, shows, clicks

    def forget(self, keys: I64) -> None:
        """Drops these keys, (n,) int64, because they have a row now."""
        self._index.remove(keys)

    def shrink(self, shard: int, *, now: float) -> None:
        """Decays shows and clicks, drops the expired."""
        keys, rows = self._index.entries(shard)
        if self._spec.statistics:
            self._columns["shows"].array[rows] *= np.float32(self._spec.decay)
            self._columns["clicks"].array[rows] *= np.float32(self._spec.decay)
        if self._spec.ttl_seconds:
            touched = self._columns["touched"].array[rows]
            self._index.remove(np.sort(keys[expired(touched, self._spec.ttl_seconds, now)]))

    def shard_state(self, shard: int) -> State:
        """Copies of a shard's columns, sorted by key, under names that begin with candidate_."""
        keys, rows = self._index.entries(shard)
        if len(keys) == 0:
            return {}
        order = np.argsort(keys)
        columns = {f"candidate_{n}": one.array[rows[order]] for n, one in self._columns.items()}
        return {"candidate_keys": keys[order], **columns}

    def load_shard(self, shard: int, state: State) -> None:
        """Replaces a shard's candidates by those of a state; it may have none."""
        self.drop_shard(shard)
        if "candidate_keys" not in state:
            return
        keys = np.array(state["candidate_keys"], np.int64)
        self._index.reserve(keys)
        rows, _ = self._index.make(keys)
        for name, column in self._columns.items():
            column.need(self._index.top)
            column.array[rows] = state.get(f"candidate_{name}", np.zeros(1, column.dtype))

    def drop_shard(self, shard: int) -> None:
        """Forgets a shard's candidates."""
        self._index.clear(shard)
