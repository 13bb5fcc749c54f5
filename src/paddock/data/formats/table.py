"""Columns of a table, as CSV and Parquet have them: which one is what. No I/O here.

A column of ids holds integers; `name%1000001` is a column whose texts are hashed to so many ids.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np

from paddock.data.batch import Bag, Batch, Floats, Ids
from paddock.data.formats.columns import Packed, unpack
from paddock.errors import Problem, UsageError


class Kind(Enum):
    """The kind of a column in the batch."""

    LABEL = "label"
    ID = "id"
    HASH = "hash"
    NUMBER = "number"


@dataclass(frozen=True)
class Column:
    """A column of the file. ids: how many a HASH has."""

    name: str
    kind: Kind
    ids: int = 0


def columns_from(
    sparse_slots: Sequence[str], dense_slots: Sequence[str], label: str | None = None
) -> tuple[Column, ...]:
    """The columns of a declaration; the first sparse slot is the label where none is named.

    >>> columns = columns_from(["click", "user", "city%100"], ["age"])
    >>> [(c.name, c.kind.value, c.ids) for c in columns]
    [('click', 'label', 0), ('user', 'id', 0), ('city', 'hash', 100), ('age', 'number', 0)]
    """
    named = label if label is not None else (sparse_slots[0] if sparse_slots else "")
    columns, problems = [], []
    for slot in sparse_slots:
        name, sign, size = slot.partition("%")
        if slot == named:
            columns.append(Column(slot, Kind.LABEL))
        elif not sign:
            columns.append(Column(name, Kind.ID))
        elif size.isdecimal() and int(size):
            columns.append(Column(name, Kind.HASH, int(size)))
        else:
            hint = f"{name}%1000001: so many ids"
            problems.append(Problem(f"column {slot!r} has no number of ids", hint))
    columns += [Column(s, Kind.LABEL if s == named else Kind.NUMBER) for s in dense_slots]
    if named and named not in (*sparse_slots, *dense_slots):
        columns.append(Column(named, Kind.LABEL))
    names = [column.name for column in columns]
    problems += [
        Problem(f"column {name!r} is declared twice", "each column once")
        for name in dict.fromkeys(names)
        if names.count(name) > 1
    ]
    if problems:
        raise UsageError.of(problems)
    return tuple(columns)


def batch_of(size: int, columns: Sequence[Column], values: Mapping[str, Any]) -> Batch:
    """The rows as a batch. values: of each column, an array or a list, or a Bag."""
    label = np.empty(0, np.float32)
    dense: dict[str, Floats] = {}
    bags: dict[str, Ids | Bag] = {}
    single: dict[str, Any] = {}
    for column in columns:
        found = values[column.name]
        if column.kind is Kind.LABEL:
            label = np.asarray(found, np.float32).reshape(-1)
        elif column.kind is Kind.NUMBER:
            numbers = np.asarray(found, np.float32)
            dense[column.name] = numbers.reshape(size, -1) if size else numbers.reshape(0, 1)
        else:
            (bags if isinstance(found, Bag) else single)[column.name] = found
    matrix = np.empty((size, len(single)), np.int64)
    for i, one in enumerate(single.values()):
        matrix[:, i] = one
    return unpack(Packed(size, tuple(single), matrix, bags, dense, label))
