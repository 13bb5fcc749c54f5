"""Times the parsers on files that the kernel has in memory, and the Python reader on the first."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.ps.ours.timing import say
from benchmarks.rec.parsing import parsed, slot_format
from benchmarks.rec.peer import reader
from paddock.data.formats.criteo import CriteoFormat

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PYTHON_LINES = 20_000


def python_tsv(line: str) -> Callable[[], Iterator[object]]:
    """A raw line in Python: 13 numbers scaled, 26 categories hashed; a generator of the sample."""
    mins = (0, -3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)
    diffs = (20, 603, 100, 50, 64000, 500, 100, 50, 500, 10, 10, 10, 50)

    def generate() -> Iterator[object]:
        words = line.rstrip("\n").split("\t")
        numbers = []
        for column in range(1, 14):
            if words[column] == "":
                numbers.append(0.0)
            else:
                numbers.append((float(words[column]) - mins[column - 1]) / diffs[column - 1])
        ids = [[hash(str(column) + words[column]) % 1000001] for column in range(14, 40)]
        names = ["dense_input", *(f"C{column}" for column in range(1, 27)), "label"]
        yield list(zip(names, [numbers, *ids, [int(words[0])]], strict=True))

    return generate


def main() -> None:
    """A line for each: compiled first, then the best of two passes."""
    words = argparse.ArgumentParser()
    words.add_argument("--data", type=Path)
    words.add_argument("--form", choices=("slots", "tsv"))
    args = words.parse_args()
    form = slot_format() if args.form == "slots" else CriteoFormat()
    took = []
    for _ in range(3):
        at, lines = time.perf_counter(), 0
        for block in parsed(form, args.data):
            lines += block.size
        took.append(time.perf_counter() - at)
    say("ours", rate=lines / min(took[1:]))
    sample = reader.samples if args.form == "slots" else python_tsv
    with next(args.data.glob("part-*")).open() as file:
        text = [line for _, line in zip(range(PYTHON_LINES), file, strict=False)]
    at, examples = time.perf_counter(), 0
    for line in text:
        for _ in sample(line)():
            examples += 1
    say("python", rate=examples / (time.perf_counter() - at))


if __name__ == "__main__":
    main()
