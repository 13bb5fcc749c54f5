"""A batch of examples as columns: every parser makes one, every model takes one. No I/O here.

Parsers make the slots of one id an example as columns of one matrix: `matrix` gives it back to a
model without a copy; joining, ordering and sending move it at once.
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

    >>> batch = Batch(2, matrix_columns(["a", "b"], np.array([[1, 2], [3, 4]])))
    >>> batch[1:].ids["b"].tolist(), take(batch, np.array([1, 0])).ids["a"].tolist()
    ([4], [3, 1])
    """

    size: int
    ids: dict[str, Ids | Bag] = field(default_factory=dict)
    dense: dict[str, Floats] = field(default_factory=dict)
    label: Floats = field(default_factory=lambda: np.empty(0, np.float32))
    other: dict[str, Any] = field(default_factory=dict)

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, where: slice) -> Batch:
        start, end, _ = where.indices(self.size)
        rows = slice(start, end)
        ids = {s: _of_bag(c, rows) if isinstance(c, Bag) else c[rows] for s, c in self.ids.items()}
        return _of_rows(self, rows, end - start, ids)

    def __reduce__(self) -> tuple[Any, ...]:
        # Columns of one matrix are sent as the matrix, and are its columns again.
        single, rest = _parted(self)
        ids = matrix(self, single), rest
        return _unpickled, (self.size, single, *ids, self.dense, self.label, self.other)


def matrix_columns(slots: Sequence[str], matrix: Ids) -> dict[str, Ids | Bag]:
    """The columns of matrix, (examples, len(slots)) int64, by slot: what `matrix` joins again."""
    return {slot: matrix[:, i] for i, slot in enumerate(slots)}


def _unpickled(size: int, single: list[str], found: Ids, rest: Any, *others: Any) -> Batch:
    return Batch(size, {**matrix_columns(single, found), **rest}, *others)


def _parted(batch: Batch) -> tuple[list[str], dict[str, Ids | Bag]]:
    """The slots of one id an example, and the columns of the others."""
    rest = {s: c for s, c in batch.ids.items() if isinstance(c, Bag) or c.ndim > 1}
    return [slot for slot in batch.ids if slot not in rest], rest


def matrix(batch: Batch, slots: Sequence[str]) -> Ids:
    """(examples, len(slots)) int64: the slots side by side, without a copy where they are so.

    >>> batch = Batch(2, matrix_columns(["a", "b"], np.array([[1, 2], [3, 4]])))
    >>> matrix(batch, ["a", "b"]).tolist()
    [[1, 2], [3, 4]]
    """
    found = []
    for slot in slots:
        column = batch.ids.get(slot)
        if not isinstance(column, np.ndarray):
            reason = "is not in the data" if column is None else "has several ids in an example"
            raise UsageError(
                f"slot {slot!r} {reason}, and one id is needed", hint="see `paddock data check`"
            )
        found.append(column if column.ndim == 2 else column.reshape(-1, 1))
    return _side_by_side(found)


_ITEM = 8  # bytes of an id


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


def take(batch: Batch, order: NDArray[np.int64]) -> Batch:
    """The examples of those numbers, (n,) int64, in that order."""
    single, rest = _parted(batch)
    ids = matrix_columns(single, matrix(batch, single)[order]) if single else {}
    for slot, column in rest.items():
        ids[slot] = _of_bag(column, order) if isinstance(column, Bag) else column[order]
    return _of_rows(batch, order, len(order), ids)


def _of_rows(
    batch: Batch, where: slice | NDArray[np.int64], size: int, ids: dict[str, Ids | Bag]
) -> Batch:
    return Batch(
        size,
        ids,
        {slot: column[where] for slot, column in batch.dense.items()},
        batch.label[where] if len(batch.label) else batch.label,
        {name: _of_other(column, where) for name, column in batch.other.items()},
    )


def _of_bag(bag: Bag, where: slice | NDArray[np.int64]) -> Bag:
    lengths = bag.lengths[where]
    ends = np.cumsum(bag.lengths)
    if isinstance(where, slice):
        start = int(ends[where.start - 1]) if where.start else 0
        return Bag(bag.values[start : start + int(lengths.sum())], lengths)
    first = (ends - bag.lengths)[where]
    inner = np.arange(int(lengths.sum())) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    return Bag(bag.values[np.repeat(first, lengths) + inner], lengths)


def _of_other(column: Any, where: slice | NDArray[np.int64]) -> Any:
    if isinstance(column, np.ndarray) or isinstance(where, slice):
        return column[where]
    return [column[i] for i in where]


def join(parts: Sequence[Batch]) -> Batch:
    """The examples of all parts, in their order. Raises: UsageError where the slots differ."""
    parts = [part for part in parts if part.size] or list(parts[:1])
    if len(parts) == 1:
        return parts[0]
    # A slot that has one id everywhere in one block, and several in another, becomes a Bag.
    rests = [_parted(part)[1] for part in parts]
    by_slot = _by_name([part.ids for part in parts])
    single = [slot for slot in by_slot if not any(slot in rest for rest in rests)]
    ids = matrix_columns(single, np.concatenate([matrix(part, single) for part in parts]))
    ids.update((s, _join_slot(found)) for s, found in by_slot.items() if s not in ids)
    return Batch(
        sum(part.size for part in parts),
        ids,
        {s: np.concatenate(c) for s, c in _by_name([p.dense for p in parts]).items()},
        np.concatenate([part.label for part in parts]),
        {s: _join_other(c) for s, c in _by_name([p.other for p in parts]).items()},
    )


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
