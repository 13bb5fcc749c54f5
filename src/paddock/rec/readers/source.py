"""A Reading becomes the batches of an epoch for one worker, from its chunks: a Source.

Batches go over the borders of chunks. Where a batch's reader is behind it is exact: whoever opens
the same epoch from an item's position gets the batches that follow it. With shuffling, examples
are drawn from windows of `shuffle` of them, each ordered by seed, epoch and the window's begin.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import numpy as np

from paddock.data.assign import assign
from paddock.data.batch import Batch, join, take
from paddock.data.chunks import Chunk
from paddock.data.files import Chunks, blocks, find_files
from paddock.data.formats.criteo import IDS, CriteoFormat
from paddock.data.formats.format import Coverage, Format, label_of, nearest
from paddock.data.formats.samples import SampleSlots
from paddock.data.formats.slots import SlotFormat
from paddock.data.formats.table import CsvFormat, ParquetFormat, columns_from, header_of
from paddock.data.streams import CHUNK_BYTES, chunk_name
from paddock.errors import PaddockError, UsageError
from paddock.ps.jit import HAVE_NUMBA
from paddock.rec.learner import ChunkSet, SourceBatch, WorkerRank
from paddock.rec.readers.paddlerec import LegacyFormat
from paddock.rec.readers.pipe import PipeFormat
from paddock.rec.readers.read_ahead import (
    PIECES_AHEAD,
    ParsedUnit,
    ReadAhead,
    bad_place,
    cut_units,
    read_in_processes,
    read_in_threads,
    read_unit,
)
from paddock.rec.settings import Reading

# Threads that parse these do not wait for one another: their parsers are compiled.
PARALLEL: tuple[type[Format], ...] = (
    (ParquetFormat, SlotFormat, CriteoFormat) if HAVE_NUMBA else (ParquetFormat,)
)
# Examples behind which a declared slot that was never seen is worth a warning.
WARN_EXAMPLES = 1000


@dataclass(frozen=True)
class ChunkOffset:
    """done: examples behind, of chunk number `chunk`; drawn: of the window from there on."""

    chunk: int = 0
    done: int = 0
    drawn: int = 0

    @classmethod
    def read(cls, value: object) -> ChunkOffset:
        """From an Item's."""
        if value is None:
            return cls()
        if not isinstance(value, dict) or not {"chunk", "done"} <= value.keys():
            raise PaddockError(f"{value!r} is no position of a reader", hint="from a checkpoint?")
        return cls(*(int(value.get(name, 0)) for name in ("chunk", "done", "drawn")))


class ChunkSource:
    """The examples of this worker's chunks.

    seed: of the order, where the reading shuffles. warn: gets each warning about slots, once.
    make: of a batch, what the learner trains.
    """

    def __init__(
        self, form: Format, chunks: Sequence[Chunk], reading: Reading, *, seed: int = 0,
        warn: Callable[[str], None] = lambda text: None,
        make: Callable[[Batch], Any] = lambda batch: batch,
    ) -> None:  # fmt: skip
        if reading.batch_size < 1:
            raise UsageError(f"batch_size is {reading.batch_size}, at least 1 is needed")
        self._form, self._chunks, self._reading, self._seed = form, chunks, reading, seed
        self._warn, self._make = warn, make
        self._has_warned = False
        self.coverage = Coverage()
        self.bad_count = 0

    def open(self, epoch: int, position: object | None) -> Iterator[SourceBatch]:
        """Batches from `position` on (None: all)."""
        start, size = ChunkOffset.read(position), self._reading.batch_size
        drawn, chunks = start.drawn, islice(self._chunks, start.chunk, None)
        with closing(self._windows(chunks, start, epoch)) as windows:
            for begin, examples, end in windows:
                for at in range(drawn, examples.size, size):
                    batch = examples[at : at + size]
                    if batch.size < size and self._reading.drop_last:
                        return
                    here = ChunkOffset(begin.chunk, begin.done, at + batch.size)
                    behind = end if at + batch.size == examples.size else here
                    at_end = {"chunk": behind.chunk, "done": behind.done}
                    at_end |= {"drawn": behind.drawn} if behind.drawn else {}
                    yield SourceBatch(self._make(batch), batch.size, at_end)
                drawn = 0

    def chunk_set(self) -> ChunkSet:
        """All chunks, for any worker; records are examples, and a window is of one chunk."""
        chunks, reading = self._chunks, self._reading
        assert isinstance(chunks, Chunks)
        return ChunkSet(
            f"{chunks.digest()}.{reading.shuffle}", len(chunks), reading.batch_size,
            lambda number: chunk_name(chunks[number]), self._examples,
            lambda parts: (self._make(join(parts)), sum(map(len, parts))),
        )  # fmt: skip

    def _examples(self, epoch: int, number: int, skip: int) -> Iterator[Batch]:
        """Examples of a chunk behind the first `skip`, in the order in which they are drawn."""
        chunks = [self._chunks[number]]
        with closing(self._windows(chunks, ChunkOffset(number), epoch)) as windows:
            for _, examples, _ in windows:
                if skip < examples.size:
                    yield examples[skip:]
                skip = max(0, skip - examples.size)

    def _windows(
        self, chunks: Iterable[Chunk], start: ChunkOffset, epoch: int
    ) -> Generator[tuple[ChunkOffset, Batch, ChunkOffset], None, None]:
        """Examples in the order in which they are drawn, and where each window begins and ends.

        chunks: from that of `start` on.
        """
        size, window = self._reading.batch_size, max(self._reading.shuffle, 0)
        # A window has whole batches, so that only the last batch of an epoch is a small one.
        span = -(-window // size) * size if window else size
        here, skip = ChunkOffset(start.chunk, start.done), start.done
        read: list[tuple[int, Batch]] = []  # and not drawn: number of the chunk, its examples
        with closing(self._pieces(chunks, start.chunk)) as pieces:
            while True:
                held = sum(part.size for _, part in read)
                while held < span and (piece := next(pieces, None)) is not None:
                    examples = piece.examples
                    if skip and piece.unit.chunk == here.chunk:
                        skipped = min(skip, examples.size)
                        skip -= skipped
                        examples = examples[skipped:]
                    if examples.size:
                        read.append((piece.unit.chunk, examples))
                        held += examples.size
                begin, drawn, wanted = here, list[Batch](), span
                while read and wanted:
                    number, part = read[0]
                    some, rest = part[:wanted], part[wanted:]
                    read[0:1] = [(number, rest)] if rest.size else []
                    done = here.done if number == here.chunk else 0
                    here = ChunkOffset(number, done + some.size)
                    drawn.append(some)
                    wanted -= some.size
                if not drawn:
                    return
                examples = join(drawn)
                if window:
                    seed = [self._seed, epoch, begin.chunk, begin.done]
                    order = np.random.default_rng(seed).permutation(examples.size)
                    examples = take(examples, order)
                yield begin, examples, here

    def _pieces(self, chunks: Iterable[Chunk], first: int) -> Generator[ParsedUnit, None, None]:
        """The pieces of chunks, read ahead. first: the number of the first chunk.

        Raises UsageError for more bad lines than the reading allows.
        """
        form, processes = self._form, self._reading.loader_processes
        units = cut_units(form, chunks, first)
        if processes and isinstance(form, PARALLEL):
            pieces = read_in_threads(form, units, processes)
        elif processes:
            pieces = read_in_processes(form, units, processes)
        else:
            pieces = (piece for unit in units for piece in read_unit(form, unit))
        self.bad_count = 0
        with closing(ReadAhead(pieces, PIECES_AHEAD)) as ahead:
            for piece in ahead:
                self.bad_count += piece.counts.bad_count
                if self.bad_count > self._reading.bad_max:
                    bad = piece.counts.bad[0]
                    raise UsageError(
                        f"{bad_place(piece, bad)}: {bad.reason}",
                        hint="`paddock data check` lists all such lines",
                    )
                if not self._has_warned:
                    self.coverage.add(piece.counts)
                    if self.coverage.examples >= WARN_EXAMPLES:
                        self._tell()
                yield piece
        self._tell()

    def _tell(self) -> None:
        if not self._has_warned:
            self._has_warned = True
            for line in self.coverage.warnings():
                self._warn(line)


FORMATS = ("slots", "criteo", "csv", "parquet")
IDS_KEY = "hyper_parameters.sparse_feature_number"


def make_format(reading: Reading, config: Mapping[str, object]) -> Format:
    """The format of a reading. config: all keys, dotted; users' readers are given them.

    Raises: UsageError for a reader that is not known, and slots that do not fit.
    """
    dense = dict(reading.dense_slots)
    names = (*reading.sparse_slots, *dense)
    slots = SampleSlots(frozenset(dense), label_of(reading.sparse_slots, reading.label))
    if reading.pipe_command:
        return PipeFormat(reading.pipe_command, names, slots)
    if reading.reader.endswith(".py"):
        path = str(config.get("config_path", ""))
        given = tuple(config.items())
        return LegacyFormat(reading.reader, reading.reader_class, slots, names, given, path)
    if reading.reader == "slots":
        widths = tuple(dense.items())
        return SlotFormat(reading.sparse_slots, widths, reading.padding, reading.label)
    if reading.reader == "criteo":
        ids = config.get(IDS_KEY, IDS)
        return CriteoFormat(ids if isinstance(ids, int) else IDS)
    if reading.reader in ("csv", "parquet"):
        columns = columns_from(reading.sparse_slots, tuple(dense), reading.label)
        if reading.reader == "parquet":
            return ParquetFormat(columns, reading.padding)
        return CsvFormat(_header(reading), columns, padding=reading.padding)
    found = nearest(reading.reader, FORMATS)
    raise UsageError(
        f"there is no reader '{reading.reader}'",
        hint=f"did you mean '{found}'?" if found else f"{', '.join(FORMATS)}, or a .py file",
    )


def _header(reading: Reading) -> tuple[str, ...]:
    """The first line of the first file; the declared columns where that is not a header."""
    first = find_files(reading.paths)[0].path
    block = next(blocks(Chunk(first), 1 << 16), b"")
    header = header_of(block.partition(b"\n")[0])
    declared = tuple(s.partition("%")[0] for s in (*reading.sparse_slots, *reading.dense_slots))
    return header if set(declared) & set(header) else declared


def make_source(
    form: Format, reading: Reading, place: WorkerRank, *, seed: int, warn: Callable[[str], None],
    make: Callable[[Batch], Any] = lambda batch: batch,
) -> ChunkSource:  # fmt: skip
    """The batches of a worker's chunks; of all files, where chunks are leased one by one."""
    is_random = os.environ.get("PYTHONHASHSEED", "random") in ("", "random")
    if isinstance(form, LegacyFormat) and is_random and form.uses_hash:
        warn(
            f"'{form.path}' makes ids with hash(), which differs from process to process; it runs "
            "with PYTHONHASHSEED=0: set PYTHONHASHSEED yourself for other ids"
        )
        reading = replace(reading, loader_processes=max(1, reading.loader_processes))
    files = find_files(reading.paths)
    if reading.assignment == "dynamic":
        chunks = Chunks(files, CHUNK_BYTES)
    else:
        chunks = Chunks(assign(files, place.workers, reading.assignment).parts[place.worker])
    return ChunkSource(form, chunks, reading, seed=seed, warn=warn, make=make)
