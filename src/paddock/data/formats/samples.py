"""Examples that a user's program made, slot by slot, become columns. No I/O here.

A slot is of numbers where it is declared so, or where any of its values is a float; else of ids.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from paddock.data.batch import Bag, Batch, Floats, Ids
from paddock.errors import UsageError

Sample = Sequence[tuple[str, Sequence[Any]]]


@dataclass(frozen=True)
class SampleSlots:
    """The declared slots of samples. dense: names; label: "" for none."""

    dense: frozenset[str] = frozenset()
    label: str = ""


def columns_of(samples: Sequence[Sample], slots: SampleSlots) -> Batch:
    """The batch of the samples, the slots in the order of the first one.

    Raises: UsageError where a sample has other slots, or a slot that is no id and no number.

    >>> samples = [[("y", [1]), ("a", [3, 4])], [("y", [0]), ("a", [5])]]
    >>> batch = columns_of(samples, SampleSlots(label="y"))
    >>> batch.label.tolist(), batch.ids["a"].lengths.tolist()
    ([1.0, 0.0], [2, 1])
    """
    if not samples:
        return Batch(0)
    names = [name for name, _ in samples[0]]
    found: dict[str, list[Sequence[Any]]] = {name: [] for name in names}
    for sample in samples:
        if [name for name, _ in sample] != names:
            odd = ", ".join(name for name, _ in sample)
            raise UsageError(
                f"a sample has the slots {odd}; the first one has {', '.join(names)}",
                hint="every sample has all slots, in the same order",
            )
        for name, given in sample:
            values: Any = given
            if isinstance(values, np.ndarray):
                values = values.reshape(-1).tolist()
            found[name].append(values if isinstance(values, (list, tuple)) else [values])
    ids: dict[str, Ids | Bag] = {}
    dense: dict[str, Floats] = {}
    label = np.empty(0, np.float32)
    for name, rows in found.items():
        if name == slots.label:
            label = _numbers(name, rows).reshape(-1)
        elif name in slots.dense or any(isinstance(v, float) for row in rows for v in row):
            dense[name] = _numbers(name, rows)
        else:
            ids[name] = _ids(name, rows)
    return Batch(len(samples), ids, dense, label)


def _numbers(name: str, rows: Sequence[Sequence[Any]]) -> Floats:
    widths = {len(row) for row in rows}
    if len(widths) > 1:
        few, many = min(widths), max(widths)
        raise UsageError(
            f"slot {name!r} has {few} numbers in one sample and {many} in another",
            hint="numbers have one width; pad them in the reader",
        )
    found: Floats = _array(name, rows, np.float32)
    return found


def _ids(name: str, rows: Sequence[Sequence[Any]]) -> Ids | Bag:
    lengths = np.array([len(row) for row in rows], np.int64)
    flat: Ids = _array(name, [_signed(v) for row in rows for v in row], np.int64)
    return flat if (lengths == 1).all() else Bag(flat, lengths)


def _signed(value: Any) -> Any:
    """Paddle's feature signs are unsigned 64 bits; beyond 2**63 they wrap."""
    return value - (1 << 64) if isinstance(value, int) and value >= 1 << 63 else value


def _array(name: str, values: Iterable[Any], dtype: Any) -> Any:
    try:
        return np.array(values, dtype)
    except (TypeError, ValueError, OverflowError) as error:
        raise UsageError(
            f"slot {name!r} has a value that is no {np.dtype(dtype).name}: {error}",
            hint="a reader gives [(slot, [values]), ...], the values all int or all float",
        ) from None
