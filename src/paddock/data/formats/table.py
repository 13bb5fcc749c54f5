"""Columns of a table, as CSV and Parquet have them: which one is what. No I/O here.

A column of ids holds integers; `name%1000001` is a column whose texts are hashed to so many ids.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from paddock.errors import Problem, UsageError


class Kind(Enum):
    """What a column becomes."""

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
