"""Sets of replica numbers as short text, "0-3,7", as Kubernetes' indexed Jobs write them. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

INDEX_MAX = 1_000_000


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

    >>> sorted(read_indexes("0-3,7,x,9-8"))
    [0, 1, 2, 3, 7]
    """
    found: set[int] = set()
    for part in text.split(","):
        first, _, last = part.partition("-")
        last = last or first
        if not (first.isascii() and first.isdigit() and last.isascii() and last.isdigit()):
            continue
        if len(last) <= 7 and int(last) <= INDEX_MAX:
            found.update(range(int(first), int(last) + 1))
    return frozenset(found)
