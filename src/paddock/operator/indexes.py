"""Sets of replica numbers as short text, "0-3,7", as Kubernetes' indexed Jobs write them. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

INDEXES_MAX = 10_000  # replicas of a role, at most (schema.py)
TEXT_MAX = 10 * INDEXES_MAX  # more than all of them need


def write_indexes(indexes: Iterable[int]) -> str:
    """Sorted, with ranges.

    >>> write_indexes([7, 0, 1, 2, 3]), write_indexes([])
    ('0-3,7', '')
    """
    parts: list[list[int]] = []
    for index in sorted(set(indexes)):
        if parts and parts[-1][1] == index - 1:
            parts[-1][1] = index
        else:
            parts.append([index, index])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in parts)


def read_indexes(text: str) -> frozenset[int]:
    """The numbers of such a text; what is not one is left out.

    Anybody with the right to write a status may have written it, to keep the operator busy.

    >>> sorted(read_indexes("0-3,7,x,9-8"))
    [0, 1, 2, 3, 7]
    """
    found: set[int] = set()
    room = INDEXES_MAX
    for part in text.split(",") if len(text) <= TEXT_MAX else ():
        first, _, last = part.partition("-")
        last = last or first
        if _is_index(first) and _is_index(last):
            numbers = range(int(first), int(last) + 1)[:room]
            room -= len(numbers)
            found.update(numbers)
    return frozenset(found)


def _is_index(text: str) -> bool:
    return len(text) < len(str(INDEXES_MAX)) and text.isascii() and text.isdigit()
