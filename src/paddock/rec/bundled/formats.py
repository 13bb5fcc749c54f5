"""Formats of data that bundled models have: slots, Criteo's, words, images."""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from paddock.data.batch import Bag, Batch
from paddock.data.chunks import Chunk
from paddock.data.files import open_file
from paddock.data.formats.format import Format, Parsed, read_lines
from paddock.errors import UsageError
from paddock.rec.models.inputs import Hyper
from paddock.rec.readers.source import IDS_KEY, make_format
from paddock.rec.settings import Reading, TrainingRun

FORMATS = ("slots", "criteo", "words", "images")


def format_of(reading: Reading, run: TrainingRun) -> Format:
    """How the files are read. Raises UsageError for a reader that bundled models do not have."""
    if reading.pipe_command is not None:
        raise UsageError(
            f"pipe_command is {reading.pipe_command!r}, and bundled models read files themselves",
            hint="leave it out, and write what it prints to files: paddock data check shows them",
        )
    if reading.reader in ("slots", "criteo"):
        return make_format(reading, {IDS_KEY: Hyper(run.hyper)("sparse_feature_number", 1000001)})
    if reading.reader == "words":
        return WordFormat()
    if reading.reader == "images":
        return ImageFormat()
    raise UsageError(
        f"runner.reader is {reading.reader!r}", hint="bundled models have " + ", ".join(FORMATS)
    )


# Between the numbers; what is neither a digit nor one of these makes a line a bad one.
_BETWEEN = bytes.maketrans(b"w,\t\r", b"    ")
_FIT = b"0123456789 "
_MAX_DIGITS = 18


@dataclass(frozen=True)
class WordFormat:
    """Lines of words that are numbers.

    >>> batch = WordFormat().parse(b"w3 w14\\n15,9,2\\n").batch
    >>> batch.ids["words"].values.tolist(), batch.ids["words"].lengths.tolist()
    ([3, 14, 15, 9, 2], [2, 3])
    """

    slot: str = "words"

    def parse(self, block: bytes) -> Parsed:
        """The examples of whole lines."""
        good, parsed = read_lines(block.translate(_BETWEEN), _words_of)
        flat = [word for words in good for word in words]
        lengths = np.fromiter((len(words) for words in good), np.int64, len(good))
        bag = Bag(np.array(flat, "S").astype(np.int64) if flat else np.empty(0, np.int64), lengths)
        batch = Batch(len(good), {self.slot: bag})
        return replace(parsed, batch=batch, seen={self.slot: len(good)})


def _words_of(line: bytes) -> list[bytes] | str | None:
    words = line.split()
    if line.translate(None, _FIT) or any(len(word) > _MAX_DIGITS for word in words):
        return "words are whole numbers, as in w17 or 17"
    return words or None


@dataclass(frozen=True)
class ImageFormat:
    """npz files of images."""

    images: int = 1 << 12  # at a time

    def read(self, chunk: Chunk) -> Iterator[Parsed]:
        """The examples of the file. Raises UsageError for one that is no such file."""
        with open_file(chunk.path) as file:
            content = file.read()
        try:
            with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
                image, label = arrays["image"], arrays["label"]
        except (ValueError, KeyError, OSError, EOFError) as error:
            raise UsageError(
                f"{chunk.path} is no npz file with image and label: {error}",
                hint="paddock data generate shapes makes some",
            ) from error
        for at in range(0, len(label), self.images):
            some = slice(at, at + self.images)
            other, wanted = {"image": image[some]}, label[some].astype(np.float32)
            yield Parsed(Batch(len(wanted), label=wanted, other=other), len(wanted))
