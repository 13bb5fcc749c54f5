"""Times readers on files that the kernel has in memory: from lines to batches of 512.

Ours: blocks through the parser, cut into batches. Python: a line at a time through a generator, an
array for each slot, stacked to a batch, as PaddleRec's readers and Paddle's DataLoader do.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.ps.ours.timing import say
from benchmarks.rec.bench import BATCH
from benchmarks.rec.parsing import parsed, slot_format
from benchmarks.rec.peer import reader
from paddock.data.formats.criteo import CriteoFormat

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from paddock.data.batch import Batch
    from paddock.data.formats.format import TextFormat

    Sample = Callable[[str], Callable[[], Iterator[list[tuple[str, list[float]]]]]]

PYTHON_LINES = 10_240


def python_tsv(line: str) -> Callable[[], Iterator[list[tuple[str, list[float]]]]]:
    """A raw line in Python: 13 numbers scaled, 26 categories hashed; a generator of the sample."""
    mins = (0, -3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)
    diffs = (20, 603, 100, 50, 64000, 500, 100, 50, 500, 10, 10, 10, 50)

    def generate() -> Iterator[list[tuple[str, list[float]]]]:
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


def python_batches(sample: Sample, lines: list[str]) -> Iterator[list[NDArray[np.float64]]]:
    """Columns of 512 samples; what is left at the end is dropped."""
    held = []
    for line in lines:
        for found in sample(line)():
            held.append([np.array(values) for _, values in found])
        if len(held) == BATCH:
            yield [np.stack(column) for column in zip(*held, strict=True)]
            held = []


def our_batches(form: TextFormat, folder: Path) -> Iterator[Batch]:
    """The same of a folder."""
    for block in parsed(form, folder):
        for at in range(0, block.size, BATCH):
            yield block[at : at + BATCH]


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
        for batch in our_batches(form, args.data):
            lines += batch.size
        took.append(time.perf_counter() - at)
    say("ours", rate=lines / min(took[1:]))
    sample = reader.samples if args.form == "slots" else python_tsv
    with next(args.data.glob("part-*")).open() as file:
        text = [line for _, line in zip(range(PYTHON_LINES), file, strict=False)]
    at = time.perf_counter()
    count = sum(1 for _ in python_batches(sample, text))
    say("python", rate=count * BATCH / (time.perf_counter() - at))


if __name__ == "__main__":
    main()
