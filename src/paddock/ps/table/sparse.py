"""A table of rows by int64 key: pulled, pushed, shrunk, saved shard by shard.

Not thread-safe: the caller holds a lock. Deterministic: the same calls in the same order give the
same content, and where a row lies (its number) is no part of the content.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from paddock.ps import jit
from paddock.ps.jit import F32, I64, Flags
from paddock.ps.optimizers.schedules import Rate
from paddock.ps.optimizers.updater import Updater
from paddock.ps.spec import SparseSpec
from paddock.ps.table.accessor import (
    Candidates,
    admits_all,
    expired,
    score,
    seconds,
    statistics_columns,
)
from paddock.ps.table.index import make_index
from paddock.ps.table.initial import Initial, set_versions
from paddock.ps.table.memory import GrowableArray, machine_bytes
from paddock.ps.table.sharding import as_contiguous, shard_of
from paddock.ps.table.states import CowShards, State, check_rows, state_digest

_ROWS_MAX = (1 << 31) - 16
# What one eviction takes at least from a full shard, so that not every push has to evict.
_EVICT_SHARE = 16
# Rows are handed to the optimizer in pieces of this size: half of a small L2 cache.
_PIECE_BYTES = 256 << 10
# Bytes of index for a row, at a block's usual load.
_INDEX_ROW_BYTES = 32
# Of a frame of 4 MiB: its row numbers, its gradients as the optimizer has them, rows put aside.
_SPARE_BYTES = 64 << 20


class SparseTable:
    """Rows of one sparse table that are on this server.

    owned: how many of the table's shards are here; max_rows is dealt out in this proportion.
    spare_rows: so many more rows fit for certain, whatever their keys, within max_rows and in the
    arrays. The check of a frame relies on it, with the table's lock `writes` held:

        check of PUSH or SET       lowered by its rows; below 0: asked exactly, then counted anew
        push, set, add, COMMIT     stays: their rows were taken off when they were checked
        SHRINK, LOAD, MOVE, ADOPT  0: rows came or went that no check has seen
        reserve of a replica       0: its records are not checked
    """

    def __init__(self, spec: SparseSpec, updater: Updater) -> None:
        self.spec = spec
        self.updater = updater
        self.owned = spec.shards
        self.spare_rows = 0
        self._compiled = jit.HAVE_NUMBA
        self._initial = Initial(spec.initial, spec.dim)
        rows_max = min(_ROWS_MAX, max(1024, machine_bytes() // (4 * updater.width)))
        self._index = make_index(spec.shards, rows_max)
        self._values = GrowableArray(np.float32, (updater.width,), reserve=rows_max)
        # One number for each row, by name; the names are those of a shard's state.
        accessor, is_lru = spec.accessor, spec.eviction == "lru"
        self._columns = {
            "version": GrowableArray(np.int64, reserve=rows_max),
            **statistics_columns(accessor, is_lru or accessor.ttl_seconds > 0, rows_max),
        }
        # The bytes that one more row takes, index included.
        columns = sum(column.entry_bytes for column in self._columns.values())
        self.row_bytes = self._values.entry_bytes + columns + _INDEX_ROW_BYTES
        self._candidates: Candidates | None = None
        if not admits_all(accessor):
            self._candidates = Candidates(accessor, spec.shards, rows_max, spec.initial.seed)
        self._shard_rows_max = -(-spec.max_rows // spec.shards) if is_lru else 0
        # The last lsn at which rows of a shard were dropped or decayed: not told by versions.
        self._rewritten = np.zeros(spec.shards, np.int64)
        self._cuts: list[CowShards] = []

    # ------------------------------------------------------------------------------------ facts

    @property
    def rows(self) -> int:
        """Rows in use."""
        return self._index.live

    @property
    def nbytes(self) -> int:
        """Bytes of rows, columns, index and candidates, and of rows put aside for cuts."""
        own = self._values.nbytes + sum(column.nbytes for column in self._columns.values())
        own += sum(cut.nbytes for cut in self._cuts)
        return own + self._index.nbytes + (self._candidates.nbytes if self._candidates else 0)

    def unknown(self, keys: I64) -> int:
        """The number of these keys, (n,) int64, that have no row."""
        return int(np.count_nonzero(self._index.find(as_contiguous(keys, np.int64)) < 0))

    def has_room(self, keys: I64, *, bytes_left: int | None = None) -> bool:
        """A push of these keys, (n,) int64, stays within max_rows, and within bytes_left if given.

        With eviction "lru" max_rows makes its own room. Nothing is changed.
        """
        rows_left = self.rows_left
        if bytes_left is not None:
            rows_left = min(rows_left, bytes_left // self.row_bytes)
        return len(keys) <= rows_left or self.unknown(keys) <= max(rows_left, 0)

    @property
    def rows_left(self) -> int:
        """Rows that max_rows still allows."""
        is_limited = self.spec.max_rows and self.spec.eviction == "refuse"
        return (self.rows_max if is_limited else _ROWS_MAX) - self._index.live

    @property
    def rows_max(self) -> int:
        """This server's part of max_rows, by its shards."""
        return self.spec.max_rows * self.owned // self.spec.shards

    @property
    def arrays_left(self) -> int:
        """Rows, whatever their keys, that fit into the arrays as they are; below 0: unknown."""
        columns = (self._values, *self._columns.values())
        held = min(len(column.array) for column in columns)
        left = min(held, self._index.rows_sure) - self._index.top
        return left if self._candidates is None else min(left, self._candidates.arrays_left)

    def reserve(self, keys: I64, spare_bytes: int = 0) -> None:
        """Makes room for keys, (n,) int64, so that a push of them needs no large array any more.

        spare_bytes: what carrying it out takes for a moment. The content stays the same.
        Raises: MemoryError.
        """
        keys = as_contiguous(keys, np.int64)
        new = np.unique(keys[self._index.find(keys) < 0])
        if not len(new):
            return
        self._index.reserve(new)
        for column in (self._values, *self._columns.values()):
            column.hold(max(self._index.top, self._index.live + len(new)))
        if self._candidates is not None:
            self._candidates.reserve(new)
        np.empty(_SPARE_BYTES + spare_bytes, np.uint8)  # Given back at once.

    # ------------------------------------------------------------------------- pulls and pushes

    def pull(self, keys: I64, out: F32) -> None:
        """Writes the weights of each key to out, (n, dim) float32; changes nothing.

        An unknown key's are its first value.
        """
        keys = as_contiguous(keys, np.int64)
        assert out.shape == (len(keys), self.spec.dim)
        self._initial.gather(keys, self._index.find(keys), self._values.array, out)

    def push(
        self,
        keys: I64,
        grads: F32,
        *,
        lr: Rate,
        now: float,
        lsn: int,
        shows: F32 | None = None,
        clicks: F32 | None = None,
        draw_seed: int | None = None,
    ) -> int:
        """Updates the rows of distinct keys by grads (n, dim); returns how many rows are new.

        grads may be overwritten. shows and clicks, (n,) float32, are 1 and 0 when not given and
        only count with accessor.statistics. now: seconds; lsn: of this record, ever higher.
        draw_seed: what admission by chance is drawn from with the key, the lsn when not given.
        """
        keys, grads = as_contiguous(keys, np.int64), as_contiguous(grads, np.float32)
        accessor = self.spec.accessor
        if accessor.statistics or self._candidates:
            n = len(keys)
            shows = np.ones(n, np.float32) if shows is None else as_contiguous(shows, np.float32)
            clicks = (
                np.zeros(n, np.float32) if clicks is None else as_contiguous(clicks, np.float32)
            )
            if self._candidates:
                draw = lsn if draw_seed is None else draw_seed
                keep, shows, clicks = self._admit(keys, shows, clicks, now=now, lsn=draw)
                if not keep.all():
                    keys, grads = keys[keep], grads[keep]
                    shows, clicks = shows[keep], clicks[keep]
        rows, made = self._rows_for(keys, now=now, lsn=lsn)
        if accessor.statistics:
            assert shows is not None and clicks is not None
            self._columns["shows"].array[rows] += shows
            self._columns["clicks"].array[rows] += clicks
            if accessor.unlock_score > 0.0 and accessor.unlock_from < self.spec.dim:
                self._push_partly(rows, grads, lr, lsn)
                return made
        self._apply(rows, grads, lr, lsn)
        return made

    def set(self, keys: I64, values: F32, *, now: float, lsn: int) -> int:
        """Gives distinct keys these weights, (n, dim); admission is not asked. Returns new rows."""
        rows, made = self._rows_unasked(keys, now=now, lsn=lsn)
        self._values.array[rows, : self.spec.dim] = values
        return made

    def add(self, keys: I64, deltas: F32, *, now: float, lsn: int) -> int:
        """Adds deltas (n, dim) to the weights of distinct keys; as ``set`` otherwise."""
        rows, made = self._rows_unasked(keys, now=now, lsn=lsn)
        self._values.array[rows, : self.spec.dim] += deltas
        return made

    def _rows_unasked(self, keys: I64, *, now: float, lsn: int) -> tuple[I64, int]:
        """The rows of these keys, whatever admission says, to be changed; how many are new."""
        keys = as_contiguous(keys, np.int64)
        rows, made = self._rows_for(keys, now=now, lsn=lsn)
        self._columns["version"].array[rows] = lsn
        if self._candidates:
            self._candidates.forget(keys)
        return rows, made

    def _admit(
        self, keys: I64, shows: F32, clicks: F32, *, now: float, lsn: int
    ) -> tuple[Flags, F32, F32]:
        """(which keys have or get a row, shows and clicks to add to it). Managed collision."""
        assert self._candidates is not None
        known = self._index.find(keys) >= 0
        if known.all():
            return known, shows, clicks
        new = np.flatnonzero(~known)
        shows, clicks = shows.copy(), clicks.copy()
        known[new], shows[new], clicks[new] = self._candidates.admit(
            keys[new], shows[new], clicks[new], now=now, lsn=lsn
        )
        return known, shows, clicks

    def _rows_for(self, keys: I64, *, now: float, lsn: int) -> tuple[I64, int]:
        """The rows of these keys, new ones started, all touched now; and how many are new."""
        if self._shard_rows_max:
            self._evict_for(keys, lsn)
        rows, fresh = self._index.make(keys)
        if self._cuts:
            self._put_aside(keys, rows, fresh)
        if len(fresh):
            self._need()
            for column in self._columns.values():
                column.array[rows[fresh]] = 0
            self._initial.start(keys, rows, fresh, self.updater.initial_state, self._values.array)
        if "touched" in self._columns:
            self._columns["touched"].array[rows] = seconds(now)
        return rows, len(fresh)

    def _apply(self, rows: I64, grads: F32, lr: Rate, lsn: int) -> None:
        """Runs the optimizer over pieces of the batch that stay in the cache, and sets versions."""
        values, version = self._values.array, self._columns["version"].array
        step, distinct = max(256, _PIECE_BYTES // self._values.entry_bytes), True
        if not self._compiled:  # Faster at once; rows that repeat in pieces, for numba's bits.
            version[rows] = order = np.arange(len(rows))
            distinct = bool((version[rows] == order).all())
            version[rows] = lsn
            step = max(step, len(rows)) if distinct else step
        for at in range(0, len(rows), step):
            piece = rows[at : at + step]
            if self._compiled:
                set_versions(piece, version, lsn, values)
            self.updater.apply(values, piece, grads[at : at + step], lr, distinct=distinct)

    def _need(self) -> None:
        for column in (self._values, *self._columns.values()):
            column.need(self._index.top)

    def _push_partly(self, rows: I64, grads: F32, lr: Rate, lsn: int) -> None:
        """Applies grads, but rows of low score keep their columns from unlock_from on."""
        accessor, dim = self.spec.accessor, self.spec.dim
        reached = score(
            self._columns["shows"].array[rows], self._columns["clicks"].array[rows], accessor
        )
        locked = np.flatnonzero(reached < accessor.unlock_score)
        held = np.arange(accessor.unlock_from, dim)
        columns = [held]
        start = dim
        for slot in self.updater.slots:
            if not slot.per_row:
                columns.append(held + start)
            start += 1 if slot.per_row else dim
        where = np.ix_(rows[locked], np.concatenate(columns))
        before = self._values.array[where]
        grads[locked, accessor.unlock_from :] = 0.0
        self._apply(rows, grads, lr, lsn)
        self._values.array[where] = before

    # -------------------------------------------------------------------------- giving rows up

    def shrink(self, shard: int, *, now: float, lsn: int) -> int:
        """Decays one shard's statistics, drops its expired and low rows; how many were dropped."""
        accessor = self.spec.accessor
        self.spare_rows = 0
        self._put_shard_aside(shard)
        if self._candidates:
            self._candidates.shrink(shard, now=now)
        keys, rows = self._index.entries(shard)
        drop = np.zeros(len(keys), np.bool_)
        if accessor.statistics:
            shows, clicks = self._columns["shows"].array, self._columns["clicks"].array
            if accessor.decay != 1.0:
                shows[rows] *= np.float32(accessor.decay)
                clicks[rows] *= np.float32(accessor.decay)
                self._rewritten[shard] = lsn
            if accessor.delete_score > 0.0:
                drop |= score(shows[rows], clicks[rows], accessor) < accessor.delete_score
        if accessor.ttl_seconds:
            drop |= expired(self._columns["touched"].array[rows], accessor.ttl_seconds, now)
        return self._drop(shard, keys[drop], lsn)

    def _evict_for(self, keys: I64, lsn: int) -> None:
        """Makes room in every shard that these keys would fill beyond its part of max_rows."""
        limit = self._shard_rows_max
        shards = shard_of(keys, self.spec.shards)
        for shard, asked in enumerate(np.bincount(shards, minlength=self.spec.shards).tolist()):
            if asked == 0 or self._index.live_in(shard) + asked <= limit:
                continue
            mine = keys[shards == shard]
            new = self.unknown(mine)
            over = self._index.live_in(shard) + new - limit
            if new == 0 or over <= 0:
                continue
            here, rows = self._index.entries(shard)
            others = ~np.isin(here, mine)
            here, rows = here[others], rows[others]
            ages = (here, *(self._columns[name].array[rows] for name in ("version", "touched")))
            oldest = here[np.lexsort(ages)]
            self._drop(shard, oldest[: max(over, limit // _EVICT_SHARE)], lsn)

    def _drop(self, shard: int, keys: I64, lsn: int) -> int:
        if len(keys):
            self._rewritten[shard] = lsn
            keys = np.sort(keys)
            if self._cuts:
                self._put_aside(keys, self._index.find(keys))
            self._index.remove(keys)
            self._release_when_empty()
        return len(keys)

    def _release_when_empty(self) -> None:
        if self._index.live == 0:
            for column in (self._values, *self._columns.values()):
                column.clear()

    # ------------------------------------------------------------------------------ whole shards

    def changed_since(self, version: int) -> I64:
        """Keys whose row was pushed with a higher lsn, sorted, (n,) int64."""
        versions = self._columns["version"].array
        entries = map(self._index.entries, range(self.spec.shards))
        return np.sort(np.concatenate([keys[versions[rows] > version] for keys, rows in entries]))

    def shard_state(self, shard: int) -> State:
        """Copies of what a shard holds, sorted by key: equal content gives equal bytes.

        keys int64[n], values float32[n, width], version int64[n]; shows, clicks float32[n] and
        touched uint32[n] when the table keeps them; candidate_* and rewritten when there are any.
        """
        return self.shard_changes(shard, -1)[0]

    def shard_changes(self, shard: int, since: int) -> tuple[State, bool]:
        """(state of the rows pushed after lsn `since`, False), for load_shard(merge=True).

        (the whole state, True) when rows were dropped or decayed since: it replaces the shard.
        """
        keys, rows = self._index.entries(shard)
        is_all = bool(self._rewritten[shard] > since)
        new = np.flatnonzero(is_all | (self._columns["version"].array[rows] > since))
        new = new[np.argsort(keys[new])]
        return {**self._rows_state(keys[new], rows[new]), **self._rest_state(shard)}, is_all

    def _rows_state(self, keys: I64, rows: I64) -> State:
        values = np.empty((len(rows), self.updater.width), np.float32)
        self._initial.gather(keys, rows, self._values.array, values)
        columns = {name: column.array[rows] for name, column in self._columns.items()}
        return {"keys": keys, "values": values, **columns}

    def _rest_state(self, shard: int) -> State:
        state: State = self._candidates.shard_state(shard) if self._candidates else {}
        if self._rewritten[shard]:
            state["rewritten"] = self._rewritten[shard : shard + 1].copy()
        return state

    def begin_cut(self, lsn: int, shards: Iterable[int]) -> CowShards:
        """From now on cut_state gives these shards as they are now, at `lsn`, once each."""
        rest = {shard: self._rest_state(shard) for shard in shards}
        self._cuts.append(cut := CowShards(lsn, self.spec.shards, rest))
        return cut

    def end_cut(self, cut: CowShards | None = None) -> None:
        """The cut is over, and nothing more is put aside; without a name, every cut is."""
        self._cuts = [one for one in self._cuts if cut not in (one, None)]

    def cut_state(self, cut: CowShards, shard: int) -> State:
        """The shard_state at the cut: rows not changed since, and those put aside before they were.

        Raises KeyError when it is not kept any more.
        """
        if cut not in self._cuts:
            raise KeyError(shard)
        if shard in cut.taken:
            return cut.taken.pop(shard)
        keys, rows = self._index.entries(shard)
        old = self._columns["version"].array[rows] <= cut.lsn
        pieces = [self._rows_state(keys[old], rows[old]), *cut.take(shard)]
        whole = {name: np.concatenate([piece[name] for piece in pieces]) for name in pieces[0]}
        order = np.argsort(whole["keys"])
        return {name: array[order] for name, array in whole.items()} | cut.rest.pop(shard)

    def _put_aside(self, keys: I64, rows: I64, fresh: I64 | None = None) -> None:
        """Rows that have not changed since a cut are put aside before they change or go."""
        if fresh is not None:
            keys, rows = np.delete(keys, fresh), np.delete(rows, fresh)
        shards = shard_of(keys, self.spec.shards)
        versions = self._columns["version"].array[rows]
        for cut in self._cuts:
            mine = np.flatnonzero((versions <= cut.lsn) & cut.is_open[shards])
            mine = mine[np.argsort(shards[mine], kind="stable")]
            if len(mine):
                cut.keep(shards[mine], self._rows_state(keys[mine], rows[mine]))

    def _put_shard_aside(self, shard: int) -> None:
        """Before a whole shard changes, its state at every open cut is put aside."""
        for cut in self._cuts:
            if cut.is_open[shard]:
                cut.taken[shard] = self.cut_state(cut, shard)

    def check_state(self, shard: int, state: State) -> None:
        """Raises PaddockError when a state is not of this shard, or has rows of another width."""
        keys = np.asarray(state["keys"], np.int64)
        check_rows(self.spec, self.updater.width, shard, keys, state["values"])

    def load_shard(self, shard: int, state: State, *, merge: bool = False) -> None:
        """Makes a shard what a state says; merge=True keeps the rows that it does not name.

        Raises: as check_state; nothing was changed then.
        """
        keys, values = as_contiguous(np.asarray(state["keys"], np.int64), np.int64), state["values"]
        self.check_state(shard, state)
        self.spare_rows = 0
        self._put_shard_aside(shard)
        if not merge:
            self.drop_shard(shard)
        self._index.reserve(keys)
        rows, _ = self._index.make(keys)
        self._need()
        where: I64 | slice = rows
        if len(rows) and (np.diff(rows) == 1).all():
            # New rows lie side by side: copied as one piece.
            where = slice(int(rows[0]), int(rows[-1]) + 1)
        self._values.array[where] = values
        for name, column in self._columns.items():
            column.array[where] = state.get(name, np.zeros(1, column.dtype))
        if "rewritten" in state:
            self._rewritten[shard] = np.asarray(state["rewritten"], np.int64)[0]
        if self._candidates:
            self._candidates.load_shard(shard, state)

    def drop_shard(self, shard: int) -> None:
        """Forgets a shard: its rows, its candidates, its history."""
        self.spare_rows = 0
        self._put_shard_aside(shard)
        self._index.clear(shard)
        self._rewritten[shard] = 0
        if self._candidates:
            self._candidates.drop_shard(shard)
        self._release_when_empty()

    def digest(self, *, exact: bool = False) -> int:
        """64-bit hash of the content, whatever the order of insertion; 0 when empty.

        Sums (modulo 2 ** 64) over shards, so the servers' digests add up to the table's.
        exact: with versions and times as well.
        """
        shards = range(self.spec.shards)
        total = sum(state_digest(one, self.shard_state(one), exact=exact) for one in shards)
        return total & ((1 << 64) - 1)
