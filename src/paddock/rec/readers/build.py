"""A Reading becomes a source of batches: which format, in how many processes.

`reader` is a format's name or a user's .py; `pipe_command` stands before either.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence

from paddock.data.assign import assign
from paddock.data.chunks import Chunk
from paddock.data.files import Chunks, blocks, cut_files, find_files
from paddock.data.formats.criteo import IDS, CriteoFormat
from paddock.data.formats.format import Format, nearest
from paddock.data.formats.samples import dense_and_label
from paddock.data.formats.slots import SlotFormat
from paddock.data.formats.table import CsvFormat, ParquetFormat, columns_from, header_of
from paddock.data.streams import CHUNK_BYTES
from paddock.errors import UsageError
from paddock.rec.learner import WorkerRank
from paddock.rec.readers.paddlerec import LegacyFormat
from paddock.rec.readers.pipe import PipeFormat
from paddock.rec.readers.source import BatchOptions, ChunkSource
from paddock.rec.settings import Reading

FORMATS = ("slots", "criteo", "csv", "parquet")
IDS_KEY = "hyper_parameters.sparse_feature_number"


def make_format(reading: Reading, config: Mapping[str, object]) -> Format:
    """The format of a reading. config: all keys, dotted; users' readers are given them.

    Raises: UsageError for a reader that is not known, and slots that do not fit.
    """
    dense = dict(reading.dense_slots)
    names = (*reading.sparse_slots, *dense)
    slots = dense_and_label(reading.sparse_slots, dense, reading.label)
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
    reading: Reading, chunks: Sequence[Chunk], config: Mapping[str, object], *, seed: int,
    warn: Callable[[str], None],
) -> ChunkSource:  # fmt: skip
    """The batches of these chunks, as the reading says.

    chunks: of this worker.
    """
    form, processes = make_format(reading, config), reading.loader_processes
    if isinstance(form, LegacyFormat) and form.uses_hash and _is_random():
        warn(
            f"'{form.path}' makes ids with hash(), which differs from process to process; it runs "
            "with PYTHONHASHSEED=0: set PYTHONHASHSEED yourself for other ids"
        )
        processes = max(1, processes)
    options = BatchOptions(
        reading.batch_size, processes, reading.shuffle, seed, reading.drop_last, reading.bad_max
    )
    return ChunkSource(form, chunks, options, warn=warn)


def chunks_of(reading: Reading, place: WorkerRank) -> Sequence[Chunk]:
    """Chunks of the files that are a worker's; all files, where chunks are leased one by one."""
    files = find_files(reading.paths)
    if reading.assignment == "dynamic":
        return Chunks(files, CHUNK_BYTES)
    return cut_files(assign(files, place.workers, reading.assignment).parts[place.worker])


def _is_random() -> bool:
    """True if hash() of a text is another one in each process."""
    return os.environ.get("PYTHONHASHSEED", "random") in ("", "random")
