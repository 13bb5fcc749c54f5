"""Slot text, a line at a time in Python: the way of PaddleRec's readers.

As a program it is a dataset's pipe_command: lines on stdin, Paddle's MultiSlot form on stdout.
Standard library only, for Python 3.8 and later.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator

SPARSE = ["click", *(str(slot) for slot in range(1, 27))]
DENSE = ["dense_feature"]
WIDTHS = {"dense_feature": 13}
SLOTS = SPARSE + DENSE  # lists, and looked up as lists: so do the readers that this one stands for
PLACE = {name: place for place, name in enumerate(SLOTS)}


def samples(line: str) -> Callable[[], Iterator]:
    """A generator of the line's one sample: (slot, values) of each; zeros for an absent one."""

    def generate() -> Iterator:
        found = [(name, []) for name in SLOTS]  # type: list[tuple[str, list]]
        for word in line.strip().split(" "):
            parts = word.split(":")
            if parts[0] not in SLOTS:
                continue
            value = int(parts[1]) if parts[0] in SPARSE else float(parts[1])
            found[PLACE[parts[0]]][1].append(value)
        for name, values in found:
            if not values:
                values.extend([0] * WIDTHS.get(name, 1))
        yield found

    return generate


def main() -> None:
    """Translate standard input."""
    for line in sys.stdin:
        for sample in samples(line)():
            words = []
            for _, values in sample:
                words.append(str(len(values)))
                words.extend(map(str, values))
            sys.stdout.write(" ".join(words) + "\n")


if __name__ == "__main__":
    main()
