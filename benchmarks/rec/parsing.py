"""Slot text read with Paddock's parsers, without the rest of `paddock rec`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from paddock.data.batch import Batch, join, matrix
from paddock.data.files import Chunks, blocks, find_files
from paddock.data.formats.slots import SlotFormat

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

    from paddock.data.formats.format import TextFormat

SLOTS = ("click", *(str(slot) for slot in range(1, 27)))
DENSE = ("dense_feature", 13)


def slot_format() -> SlotFormat:
    """Of the generated clicks."""
    return SlotFormat(SLOTS, (DENSE,))


def parsed(form: TextFormat, folder: Path) -> Iterator[Batch]:
    """Block after block of all files."""
    for chunk in Chunks(find_files([folder])):
        for block in blocks(chunk):
            yield form.parse(block).batch


def batches(
    folder: Path, size: int
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.float32], NDArray[np.float32]]]:
    """ids (size, 26), numbers (size, 13), labels (size,); the last batch has what is left."""
    left: Batch | None = None
    for block in parsed(slot_format(), folder):
        found = block if left is None else join([left, block])
        whole = found.size // size * size
        for at in range(0, whole, size):
            yield _columns(found[at : at + size])
        left = found[whole:]
    if left is not None and left.size:
        yield _columns(left)


def _columns(
    batch: Batch,
) -> tuple[NDArray[np.int64], NDArray[np.float32], NDArray[np.float32]]:
    return matrix(batch, SLOTS[1:]), batch.dense[DENSE[0]], batch.label
