"""A model reads columns of ids and numbers out of a batch, and its hyper-parameters.

Pure. What does not fit is an error that names the slot or the key.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from paddock.data.batch import Bag, Batch, matrix
from paddock.errors import UsageError
from paddock.rec.config.document import flatten

Value = TypeVar("Value", int, float, str, bool, list[int], list[float])


@dataclass(frozen=True)
class Fields:
    """The ids of several slots, example after example.

    values: (examples, fields) where each slot has one id; else flat, with lengths
    (examples, fields) that add up to its length.
    """

    values: NDArray[np.int64]
    lengths: NDArray[np.int64] | None
    shape: tuple[int, int]

    @property
    def starts(self) -> NDArray[np.int64]:
        """The begin of each slot's ids, of fields with lengths: (examples * fields,) int64."""
        assert self.lengths is not None
        flat = self.lengths.reshape(-1)
        return np.cumsum(flat) - flat


def fields_of(batch: Batch, count: int) -> Fields:
    """All id slots of the batch, in order, as `count` fields.

    A sole slot with `count` ids for each example is `count` fields: what the Criteo reader gives.
    Raises UsageError when there are more or fewer.
    """
    columns = list(batch.ids.values())
    if len(columns) == 1 and getattr(columns[0], "shape", None) == (batch.size, count):
        values = as_bag(columns[0]).values.reshape(batch.size, count)
        return Fields(values, None, (batch.size, count))
    if len(columns) != count:
        raise UsageError(
            f"the data has {len(columns)} slots of ids ({', '.join(batch.ids)}), "
            f"the model takes {count}",
            hint="hyper_parameters.sparse_inputs_slots is their number and one for the label",
        )
    if all(isinstance(one, np.ndarray) and one.size == batch.size for one in columns):
        return Fields(matrix(batch, list(batch.ids)), None, (batch.size, count))
    return _interleaved([as_bag(one) for one in columns], batch.size)


def as_bag(column: NDArray[np.int64] | Bag) -> Bag:
    """A column, (examples, width) int64 or a bag already, as a bag."""
    if isinstance(column, Bag):
        return column
    width = column.size // max(len(column), 1)
    return Bag(column.reshape(-1), np.full(len(column), width, np.int64))


def _interleaved(bags: Sequence[Bag], examples: int) -> Fields:
    lengths = np.stack([bag.lengths for bag in bags], axis=1)
    flat = lengths.reshape(-1)
    starts = (np.cumsum(flat) - flat).reshape(lengths.shape)
    values = np.empty(int(flat.sum()), np.int64)
    for field, bag in enumerate(bags):
        first = np.cumsum(bag.lengths) - bag.lengths
        within = np.arange(len(bag.values)) - np.repeat(first, bag.lengths)
        values[np.repeat(starts[:, field], bag.lengths) + within] = bag.values
    return Fields(values, lengths, (examples, len(bags)))


def sequence_of(batch: Batch, slot: str, longest: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """The last `longest` ids of a slot, padded with 0: (examples, width) int64, and which are
    there as float32."""
    bag = as_bag(slot_of(batch, slot))
    width = int(min(longest, max(int(bag.lengths.max(initial=1)), 1)))
    ids = np.zeros((batch.size, width), np.int64)
    kept = np.minimum(bag.lengths, width)
    is_there = np.arange(width) < kept[:, None]
    ends = np.cumsum(bag.lengths)
    within = np.arange(int(kept.sum())) - np.repeat(np.cumsum(kept) - kept, kept)
    ids[is_there] = bag.values[np.repeat(ends - kept, kept) + within]
    return ids, is_there.astype(np.float32)


def slot_of(batch: Batch, slot: str) -> NDArray[np.int64] | Bag:
    """The ids of a slot: (examples, width) int64 or a bag. Raises UsageError naming the slots."""
    if slot not in batch.ids:
        names = ", ".join(batch.ids) or "none"
        raise UsageError(f"the data has no slot {slot!r}", hint=f"slots of ids: {names}")
    return batch.ids[slot]


def dense_of(batch: Batch, width: int) -> NDArray[np.float32]:
    """All numbers of the batch side by side, (examples, width) float32. Raises UsageError."""
    columns = [one.reshape(batch.size, -1) for one in batch.dense.values()]
    found = columns[0] if len(columns) == 1 else np.concatenate(columns, 1) if columns else None
    if found is None or found.shape[1] != width:
        there = 0 if found is None else found.shape[1]
        raise UsageError(
            f"the data has {there} numbers for each example, the model takes {width}",
            hint="hyper_parameters.dense_input_dim; dense_slots of the reader",
        )
    return np.ascontiguousarray(found, np.float32)


class Hyper:
    """Hyper-parameters by name, nested or dotted; `unread` are those nothing has asked for.

    >>> hyper = Hyper({"optimizer": {"class": "Adam"}, "fc_sizes": [8, 4], "act": "relu"})
    >>> hyper("optimizer.class", "SGD"), hyper("fc_sizes", [1]), hyper("rate", 0.5), hyper.unread
    ('Adam', [8, 4], 0.5, ['act'])
    """

    def __init__(self, given: Mapping[str, object]) -> None:
        self._given = flatten(given)
        self._read: set[str] = set()

    def __call__(self, name: str, default: Value) -> Value:
        """The value, of the default's type. Raises UsageError for one of another."""
        self._read.add(name)
        value: Any = self._given.get(name, default)
        kind = type(default).__name__
        if kind == "float" and type(value) in (int, str):
            value = _number(value)
        is_right = type(value) is type(default)
        if kind == "list":
            element: Any = default[0]  # type: ignore[index]  # Lists have one that says the type.
            each = type(element)
            kind = "list of " + ("whole numbers" if each is int else "numbers")
            if is_right and each is float:
                value = [_number(one) if type(one) in (int, str) else one for one in value]
            is_right = is_right and all(type(one) is each for one in value)
        if not is_right:
            raise UsageError(
                f"hyper_parameters.{name} is {value!r}, not a {kind}", hint=f"as in {default!r}"
            )
        found: Value = value
        return found

    @property
    def unread(self) -> list[str]:
        """Names that nothing has asked for, in order."""
        return sorted(set(self._given) - self._read)


def _number(value: int | str) -> float | int | str:
    try:  # YAML 1.1 reads 1e-3 as a text.
        return float(value)
    except ValueError:
        return value
