"""From key to row: open addressing with linear probing, one block of slots for each shard.

A slot is a pair (key, row) of int64 in one flat array: one cache line is fetched where two arrays
would take two. Row -1 marks an empty slot, so any int64 is a legal key. Blocks are
at most 0.7 full and are doubled one shard at a time; a removed key's followers move up, so there
are no tombstones. Rows are numbers that the index hands out: those given back first, then new.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

import numpy as np

from paddock.ps import jit
from paddock.ps.jit import I32, I64, kernel, part
from paddock.ps.table.memory import GrowableArray
from paddock.ps.table.sharding import mix, shard_of, shard_shift

_OFFSET, _MASK, _LIVE, _LIMIT = 0, 1, 2, 3  # columns of the table of shards
_TOP, _FREE, _FRESH = 0, 1, 2  # counters that the loops keep
_SLOTS_MIN = 16
SLOT_BYTES = 16
# A block is at least 0.25 full but for the smallest; the blocks that were outgrown make the array
# twice as long at worst.
_SLOTS_PER_KEY_MAX = 8
_ONE = np.uint64(1)
# A freed block of at least this many slots gives its memory back at once.
_RELEASE_FROM_SLOTS = 1 << 13


def make_index(shards: int, rows_max: int) -> FlatIndex | DictIndex:
    """The index for this process: compiled, or on dicts (about 6 times slower, 5 times larger)."""
    return FlatIndex(shards, rows_max) if jit.HAVE_NUMBA else DictIndex(shards)


# --------------------------------------------------------------------------------- the loops


@part
def _probe(key: int, slots: I64, table: I64, shift: np.uint64) -> tuple[int, int, int]:
    """(shard, slot of its block, row): where the key is; row -1: where it would be."""
    h = mix(np.uint64(key))
    shard = np.int64((h >> _ONE) >> shift)
    offset = table[shard, 0]
    mask = table[shard, 1]
    slot = np.int64(h) & mask
    row = slots[offset + slot, 1]
    while row >= 0 and slots[offset + slot, 0] != key:
        slot = (slot + 1) & mask
        row = slots[offset + slot, 1]
    return shard, slot, row


@kernel
def _find(keys: I64, rows: I64, slots: I64, table: I64, shift: int) -> None:
    s = np.uint64(shift)
    for i in range(keys.size):
        rows[i] = _probe(keys[i], slots, table, s)[2]


@kernel
def _make(
    begin: int,
    keys: I64,
    rows: I64,
    fresh: I64,
    slots: I64,
    table: I64,
    shift: int,
    free: I32,
    counters: I64,
) -> int:
    """Gives keys from `begin` on their rows, unknown ones new rows; stops where a shard is full."""
    s = np.uint64(shift)
    for i in range(begin, keys.size):
        shard, slot, row = _probe(keys[i], slots, table, s)
        if row < 0:
            if table[shard, 2] >= table[shard, 3]:
                return i
            if counters[1] > 0:
                counters[1] -= 1
                row = np.int64(free[counters[1]])
            else:
                row = counters[0]
                counters[0] += 1
            slots[table[shard, 0] + slot, 0] = keys[i]
            slots[table[shard, 0] + slot, 1] = row
            table[shard, 2] += 1
            fresh[counters[2]] = i
            counters[2] += 1
        rows[i] = row
    return keys.size


@kernel
def _move(slots: I64, old: int, old_count: int, new: int, new_count: int) -> None:
    mask = new_count - 1
    for i in range(new, new + new_count):
        slots[i, 1] = -1
    for i in range(old, old + old_count):
        if slots[i, 1] >= 0:
            slot = np.int64(mix(np.uint64(slots[i, 0]))) & mask
            while slots[new + slot, 1] >= 0:
                slot = (slot + 1) & mask
            slots[new + slot, 0] = slots[i, 0]
            slots[new + slot, 1] = slots[i, 1]


@kernel
def _remove(keys: I64, slots: I64, table: I64, shift: int, free: I32, counters: I64) -> None:
    """Knuth, TAOCP 3, 6.4, algorithm R: the keys behind the hole move into it where they may."""
    s = np.uint64(shift)
    for i in range(keys.size):
        shard, hole, row = _probe(keys[i], slots, table, s)
        if row < 0:
            continue
        offset = table[shard, 0]
        mask = table[shard, 1]
        free[counters[1]] = row
        counters[1] += 1
        table[shard, 2] -= 1
        at = (hole + 1) & mask
        while slots[offset + at, 1] >= 0:
            home = np.int64(mix(np.uint64(slots[offset + at, 0]))) & mask
            if ((at - home) & mask) >= ((at - hole) & mask):
                slots[offset + hole, 0] = slots[offset + at, 0]
                slots[offset + hole, 1] = slots[offset + at, 1]
                hole = at
            at = (at + 1) & mask
        slots[offset + hole, 1] = -1


@kernel
def _entries(block: I64, live: int) -> tuple[I64, I64]:
    keys, rows = np.empty(live, np.int64), np.empty(live, np.int64)
    n = 0
    for i in range(len(block)):
        if block[i, 1] >= 0:
            keys[n], rows[n] = block[i, 0], block[i, 1]
            n += 1
    return keys, rows


# ----------------------------------------------------------------------------------- compiled


class Blocks:
    """A buddy allocator of blocks in one array. Sizes are powers of two, offsets multiples.

    >>> blocks = Blocks()
    >>> [blocks.take(4), blocks.take(8), blocks.take(4)]
    [0, 8, 4]
    >>> blocks.give(0, 4); blocks.give(4, 4); blocks.take(8)
    0
    """

    def __init__(self) -> None:
        self.end = 0
        self.used = 0  # Entries of the blocks in use.
        self._free: dict[int, set[int]] = {}

    def take(self, size: int) -> int:
        """The offset of a block that is now in use; the lowest free one, or one at the end."""
        self.used += size
        fitting = [s for s, offsets in self._free.items() if s >= size and offsets]
        if not fitting:
            while self.end % size:
                gap = self.end & -self.end
                self._put(self.end, gap)
                self.end += gap
            self.end += size
            return self.end - size
        have = min(fitting)
        offset = min(self._free[have])
        self._free[have].remove(offset)
        while have > size:
            have //= 2
            self._put(offset + have, have)
        return offset

    def give(self, offset: int, size: int) -> None:
        """Frees a block, joined with its neighbour while that is free too."""
        self.used -= size
        while offset ^ size in self._free.get(size, ()):
            self._free[size].remove(offset ^ size)
            offset &= ~size
            size *= 2
        self._put(offset, size)

    def _put(self, offset: int, size: int) -> None:
        self._free.setdefault(size, set()).add(offset)


class FlatIndex:
    """The index in flat arrays. Needs numba; correct without it, but far too slow."""

    def __init__(self, shards: int, rows_max: int) -> None:
        """rows_max: rows to reserve addresses for; more grow by copy."""
        self._shards = shards
        self._shift = shard_shift(shards)
        slots = _SLOTS_PER_KEY_MAX * rows_max + 2 * shards * _SLOTS_MIN
        self._slots = GrowableArray(np.int64, (2,), reserve=slots)
        self._blocks = Blocks()
        self._table = np.zeros((shards, 4), np.int64)
        self._table[:, _MASK] = -1  # No shard has a block yet.
        self._counters = np.zeros(3, np.int64)
        self._free = np.empty(16, np.int32)
        for shard in range(shards):
            self._place(shard, _SLOTS_MIN)

    @property
    def top(self) -> int:
        """Rows ever handed out: every row is below."""
        return int(self._counters[_TOP])

    @property
    def live(self) -> int:
        """Rows in use."""
        return int(self._counters[_TOP] - self._counters[_FREE])

    @property
    def nbytes(self) -> int:
        """Bytes of the shards' blocks and of the list of free rows."""
        return self._blocks.used * SLOT_BYTES + int(self._counters[_FREE]) * 4

    def find(self, keys: I64) -> I64:
        """The row of each key, int64[n]; -1 where there is none."""
        rows = np.empty(keys.size, np.int64)
        _find(keys, rows, self._slots.array, self._table, self._shift)
        return rows

    def make(self, keys: I64) -> tuple[I64, I64]:
        """(row of each key, (n,) int64; positions of the keys that had none and have one now)."""
        rows, fresh = np.empty(keys.size, np.int64), np.empty(keys.size, np.int64)
        self._counters[_FRESH] = at = 0
        table, shift, free, counters = self._table, self._shift, self._free, self._counters
        while True:
            at = _make(at, keys, rows, fresh, self._slots.array, table, shift, free, counters)
            if at == keys.size:
                return rows, fresh[: counters[_FRESH]]
            shard = int(shard_of(keys[at : at + 1], self._shards)[0])
            self._place(shard, 2 * (int(table[shard, _MASK]) + 1))

    def remove(self, keys: I64) -> None:
        """Drops these keys, (n,) int64; their rows are free. Unknown keys are passed over."""
        need = int(self._counters[_FREE]) + keys.size
        if need > len(self._free):
            free = np.empty(max(need, 2 * len(self._free)), np.int32)
            free[: len(self._free)] = self._free
            self._free = free
        _remove(keys, self._slots.array, self._table, self._shift, self._free, self._counters)
        if self.live == 0:
            self._counters[:2] = 0

    @property
    def rows_sure(self) -> int:
        """Keys, however they spread, for which no array grows."""
        return (len(self._slots.array) - 2 * self._shards * _SLOTS_MIN) // _SLOTS_PER_KEY_MAX

    def reserve(self, keys: I64) -> None:
        """Makes blocks large enough for these unknown keys, (n,) int64. Raises MemoryError."""
        counts = np.bincount(shard_of(keys, self._shards), minlength=self._shards)
        for shard in np.flatnonzero(counts).tolist():
            slots = slots_for(shard, int(self._table[shard, _LIVE] + counts[shard]))
            if slots > int(self._table[shard, _MASK]) + 1:
                self._place(shard, slots)

    def entries(self, shard: int) -> tuple[I64, I64]:
        """(keys, rows) of a shard, (n,) int64 each, in no useful order; copies."""
        offset, mask, live, _ = self._table[shard].tolist()
        return _entries(self._slots.array[offset : offset + mask + 1], live)

    def live_in(self, shard: int) -> int:
        """Rows of one shard."""
        return int(self._table[shard, _LIVE])

    def clear(self, shard: int) -> None:
        """Drops all keys of a shard; its block becomes small again."""
        if self.live_in(shard):
            self.remove(np.sort(self.entries(shard)[0]))
            self._place(shard, _SLOTS_MIN)

    def _place(self, shard: int, slots: int) -> None:
        """Gives the shard a block of another size, and moves its keys there."""
        old, old_slots = int(self._table[shard, _OFFSET]), int(self._table[shard, _MASK]) + 1
        new = self._blocks.take(slots)
        try:
            self._slots.need(self._blocks.end)
        except MemoryError:
            self._blocks.give(new, slots)
            raise
        _move(self._slots.array, old, old_slots, new, slots)
        self._table[shard, _OFFSET] = new
        self._table[shard, _MASK] = slots - 1
        self._table[shard, _LIMIT] = _limit(shard, slots)
        if old_slots:
            self._blocks.give(old, old_slots)
        if old_slots >= _RELEASE_FROM_SLOTS:
            self._slots.release(old, old + old_slots)


def _limit(shard: int, slots: int) -> int:
    """Keys that a block of so many slots may hold: 0.7 of it for shard 0, down to 0.5 for others.

    Keys spread evenly, so with one limit all shards would be full, and move, in the same frame.
    """
    return int(slots * (0.7 - 0.2 * (shard * 0.6180339887 % 1.0)))


def slots_for(shard: int, keys: int) -> int:
    """The size of a shard's block once it has held so many keys.

    >>> slots_for(0, 22937), slots_for(0, 22938)
    (32768, 65536)
    """
    slots = _SLOTS_MIN
    while _limit(shard, slots) < keys:
        slots *= 2
    return slots


# ------------------------------------------------------------------------------ without numba


class DictIndex:
    """The index with one dict for each shard, for where numba is missing."""

    def __init__(self, shards: int) -> None:
        self._shards = shards
        self._dicts: list[dict[int, int]] = [{} for _ in range(shards)]
        self._free: list[int] = []
        self.top = 0

    @property
    def live(self) -> int:
        """Rows in use."""
        return self.top - len(self._free)

    @property
    def nbytes(self) -> int:
        """An estimate: a dict's entry, its key and its row are objects."""
        return self.live * 150

    def _places(self, keys: I64) -> Iterator[tuple[dict[int, int], int]]:
        """(the dict of its shard, the key) of each."""
        dicts = map(self._dicts.__getitem__, shard_of(keys, self._shards).tolist())
        return zip(dicts, keys.tolist(), strict=True)

    def find(self, keys: I64) -> I64:
        """The row of each key, int64[n]; -1 where there is none."""
        return np.array([rows.get(key, -1) for rows, key in self._places(keys)], np.int64)

    def make(self, keys: I64) -> tuple[I64, I64]:
        """(row of each key, (n,) int64; positions of the keys that had none and have one now)."""
        found, fresh = [], []
        for at, (rows, key) in enumerate(self._places(keys)):
            if key not in rows:
                if not self._free:
                    self._free.append(self.top)
                    self.top += 1
                rows[key] = self._free.pop()
                fresh.append(at)
            found.append(rows[key])
        return np.array(found, np.int64), np.array(fresh, np.int64)

    def remove(self, keys: I64) -> None:
        """Drops these keys, (n,) int64; their rows are free. Unknown keys are passed over."""
        for rows, key in self._places(keys):
            if key in rows:
                self._free.append(rows.pop(key))
        if self.live == 0:
            self.top = 0
            self._free.clear()

    @property
    def rows_sure(self) -> int:
        """A dict has no array of ours."""
        return sys.maxsize

    def reserve(self, keys: I64) -> None:
        """A dict grows by itself; keys: (n,) int64."""

    def entries(self, shard: int) -> tuple[I64, I64]:
        """(keys, rows) of a shard; copies."""
        entries = self._dicts[shard]
        return np.array(list(entries), np.int64), np.array(list(entries.values()), np.int64)

    def live_in(self, shard: int) -> int:
        """Rows of one shard."""
        return len(self._dicts[shard])

    def clear(self, shard: int) -> None:
        """Drops all keys of a shard."""
        self.remove(np.sort(self.entries(shard)[0]))
