"""A batch of examples as columns: every parser makes one, every model takes one. No I/O here.

Slots that have one id in each example stand side by side in one matrix, of which the slots of a
Batch are columns: `matrix` gives it back to a model without a copy, and joining, cutting and
sending do it once for all slots (`pack`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

from paddock.errors import UsageError

Ids = NDArray[np.int64]
Floats = NDArray[np.float32]


@dataclass(frozen=True)
class Bag:
    """The ids of one slot: none, one or several for each example.

    values: (n,) int64, those of example 0 first. lengths: (examples,) int64; they add up to n.
    """

    values: Ids
    lengths: NDArray[np.int64]


@dataclass(frozen=True)
class Batch:
    """Examples as columns; all columns have as many examples as `size`.

    ids: slot -> (examples,) int64 where each example has one, (examples, width) where each has
    `width`, else a Bag. dense: slot -> (examples, width) float32. label: (examples,) float32,
    empty where the data has none. other: what a format has besides (text, images).
    """

    size: int
    ids: dict[str, Ids | Bag] = field(default_factory=dict)
    dense: dict[str, Floats] = field(default_factory=dict)
    label: Floats = field(default_factory=lambda: np.empty(0, np.float32))
    other: dict[str, Any] = field(default_factory=dict)


_ITEM = 8  # bytes of an id


@dataclass(frozen=True)
class Packed:
    """A batch whose slots of one id are a matrix (examples, len(single)), in rows."""

    size: int
    single: tuple[str, ...]
    matrix: Ids
    ids: dict[str, Ids | Bag] = field(default_factory=dict)
    dense: dict[str, Floats] = field(default_factory=dict)
    label: Floats = field(default_factory=lambda: np.empty(0, np.float32))
    other: dict[str, Any] = field(default_factory=dict)

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, where: slice) -> Packed:
        return cut(self, *where.indices(self.size)[:2])


def matrix(batch: Batch, slots: Sequence[str]) -> Ids:
    """(examples, len(slots)) int64: the slots side by side, without a copy where they are so.

    >>> batch = unpack(Packed(2, ("a", "b"), np.array([[1, 2], [3, 4]])))
    >>> matrix(batch, ["a", "b"]).tolist()
    [[1, 2], [3, 4]]
    """
    columns = []
    for slot in slots:
        column = batch.ids.get(slot)
        if not isinstance(column, np.ndarray):
            reason = "is not in the data" if column is None else "has several ids in an example"
            raise UsageError(
                f"slot {slot!r} {reason}, and one id is needed", hint="see `paddock data check`"
            )
        columns.append(column if column.ndim == 2 else column.reshape(-1, 1))
    return _side_by_side(columns)


def _side_by_side(columns: Sequence[Ids]) -> Ids:
    if len(columns) == 1:
        return columns[0]
    if not columns:
        return np.empty((0, 0), np.int64)
    first = columns[0]
    begin, step = first.__array_interface__["data"][0], first.strides[0]
    at, width = begin, 0
    for column in columns:
        is_next = column.__array_interface__["data"][0] == at and column.strides[0] == step
        if not is_next or column.base is None or column.base is not first.base:
            return np.concatenate(columns, axis=1)
        width += column.shape[1]
        at = begin + width * _ITEM
    if step < width * _ITEM:
        return np.concatenate(columns, axis=1)
    found: Ids = as_strided(first, (len(first), width), (step, _ITEM))
    return found


def pack(batch: Batch) -> Packed:
    """The same batch; the arrays are shared."""
    single = tuple(s for s, c in batch.ids.items() if isinstance(c, np.ndarray) and c.ndim == 1)
    rest = {slot: column for slot, column in batch.ids.items() if slot not in single}
    found = matrix(batch, single) if single else np.empty((batch.size, 0), np.int64)
    return Packed(batch.size, single, found, rest, batch.dense, batch.label, batch.other)


def unpack(packed: Packed) -> Batch:
    """The same batch; the arrays are shared."""
    ids: dict[str, Ids | Bag] = {s: packed.matrix[:, i] for i, s in enumerate(packed.single)}
    ids.update(packed.ids)
    return Batch(packed.size, ids, packed.dense, packed.label, packed.other)


def cut(packed: Packed, start: int, end: int) -> Packed:
    """Examples start to end; nothing is copied but the begin of Bags."""
    return _each(packed, slice(start, end), min(end, packed.size) - start)


def take(packed: Packed, order: NDArray[np.int64]) -> Packed:
    """The examples of those numbers, (n,) int64, in that order."""
    return _each(packed, order, len(order))


def _each(packed: Packed, where: slice | NDArray[np.int64], size: int) -> Packed:
    return Packed(
        size,
        packed.single,
        packed.matrix[where],
        {s: _of_slot(c, where) for s, c in packed.ids.items()},
        {s: c[where] for s, c in packed.dense.items()},
        packed.label[where] if len(packed.label) else packed.label,
        {s: _of_other(c, where) for s, c in packed.other.items()},
    )


def _of_slot(column: Ids | Bag, where: slice | NDArray[np.int64]) -> Ids | Bag:
    if isinstance(column, np.ndarray):
        return column[where]
    lengths = column.lengths[where]
    ends = np.cumsum(column.lengths)
    if isinstance(where, slice):
        start = int(ends[where.start - 1]) if where.start else 0
        return Bag(column.values[start : start + int(lengths.sum())], lengths)
    first = (ends - column.lengths)[where]
    inner = np.arange(int(lengths.sum())) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    return Bag(column.values[np.repeat(first, lengths) + inner], lengths)


def _of_other(column: Any, where: slice | NDArray[np.int64]) -> Any:
    if isinstance(column, np.ndarray) or isinstance(where, slice):
        return column[where]
    return [column[i] for i in where]


def join(parts: Sequence[Packed]) -> Packed:
    """The examples of all parts, in their order. Raises: UsageError where the slots differ."""
    parts = [part for part in parts if part.size] or list(parts[:1])
    if len(parts) == 1:
        return parts[0]
    single = parts[0].single
    if any(part.single != single for part in parts):
        # A slot that has one id everywhere in one block, and several in another, is a Bag.
        names = dict.fromkeys(s for part in parts for s in (*part.single, *part.ids))
        common = tuple(s for s in names if all(s in part.single for part in parts))
        parts, single = [_only(part, common) for part in parts], common
    return Packed(
        sum(part.size for part in parts),
        single,
        np.concatenate([part.matrix for part in parts]),
        {s: _join_slot(columns) for s, columns in _by_name([p.ids for p in parts]).items()},
        {s: np.concatenate(c) for s, c in _by_name([p.dense for p in parts]).items()},
        np.concatenate([part.label for part in parts]),
        {s: _join_other(c) for s, c in _by_name([p.other for p in parts]).items()},
    )


def _only(packed: Packed, single: tuple[str, ...]) -> Packed:
    """The same batch with no more than `single` in the matrix."""
    keep = [i for i, slot in enumerate(packed.single) if slot in single]
    ids: dict[str, Ids | Bag] = {
        slot: Bag(packed.matrix[:, i], np.ones(packed.size, np.int64))
        for i, slot in enumerate(packed.single)
        if slot not in single
    }
    return Packed(
        packed.size, single, packed.matrix[:, keep], {**ids, **packed.ids}, packed.dense,
        packed.label, packed.other,
    )  # fmt: skip


def _by_name(parts: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    for part in parts:
        if part.keys() != parts[0].keys():
            odd = ", ".join(repr(slot) for slot in sorted(part.keys() ^ parts[0].keys()))
            raise UsageError(
                f"slots {odd} are in some blocks of the data and not in others",
                hint="declare the slots, or check the files with `paddock data check`",
            )
    return {slot: [part[slot] for part in parts] for slot in parts[0]}


def _join_slot(columns: Sequence[Ids | Bag]) -> Ids | Bag:
    arrays = [c for c in columns if isinstance(c, np.ndarray)]
    if len(arrays) == len(columns) and len({c.shape[1:] for c in arrays}) == 1:
        return np.concatenate(arrays)
    bags = [_bag(column) for column in columns]
    values = np.concatenate([bag.values for bag in bags])
    return Bag(values, np.concatenate([bag.lengths for bag in bags]))


def _bag(column: Ids | Bag) -> Bag:
    if isinstance(column, Bag):
        return column
    width = column.shape[1] if column.ndim == 2 else 1
    return Bag(column.reshape(-1), np.full(len(column), width, np.int64))


def _join_other(columns: Sequence[Any]) -> Any:
    if all(isinstance(column, np.ndarray) for column in columns):
        return np.concatenate(columns)
    return [value for column in columns for value in column]
