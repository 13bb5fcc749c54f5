"""Chunks become pieces: the examples of a few mebibytes, packed, in the order of the data.

A chunk of lines is cut into units that are read apart, so that several processes share one file.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from paddock.data.chunks import Chunk
from paddock.data.files import blocks, is_compressed, is_parquet
from paddock.data.formats.columns import Packed, pack
from paddock.data.formats.format import Bad, Format, RowFormat, parse_chunk

UNIT_BYTES = 4 << 20


@dataclass(frozen=True)
class Unit:
    """What is read at a time. chunk: the number of the chunk that it is of."""

    chunk: int
    part: Chunk


@dataclass(frozen=True)
class ParsedUnit:
    """Examples of a unit. first_line: of the unit, from 0, before these."""

    unit: Unit
    examples: Packed
    seen: dict[str, int]
    unknown: dict[str, int]
    bad: tuple[Bad, ...]
    bad_count: int
    first_line: int


def cut_units(form: Format, chunks: Iterable[Chunk], first: int = 0) -> Iterator[Unit]:
    """The units of the chunks, in order. first: the number of the first chunk.

    >>> from paddock.data.formats.criteo import CriteoFormat
    >>> [unit.part.end for unit in cut_units(CriteoFormat(), [Chunk("a", 0, 10 << 20)])]
    [4194304, 8388608, 10485760]
    """
    for number, chunk in enumerate(chunks, first):
        is_whole = chunk.end < 0 or is_compressed(chunk.path) or is_parquet(chunk.path)
        if isinstance(form, RowFormat) or is_whole:
            yield Unit(number, chunk)
            continue
        for start in range(chunk.start, chunk.end, UNIT_BYTES):
            end = min(start + UNIT_BYTES, chunk.end)
            yield Unit(number, Chunk(chunk.path, start, end))


def read_unit(form: Format, unit: Unit) -> Iterator[ParsedUnit]:
    """The pieces of a unit, in order."""
    line = 0
    for _, parsed in parse_chunk(form, unit.part):
        yield ParsedUnit(
            unit, pack(parsed.batch), dict(parsed.seen), dict(parsed.unknown), parsed.bad,
            parsed.bad_count, line,
        )  # fmt: skip
        line += parsed.lines


def bad_place(piece: ParsedUnit, bad: Bad) -> str:
    """`train.txt:812`; the file is read up to there for it."""
    part, line = piece.unit.part, piece.first_line + bad.line + 1
    if part.start > 0 and not is_parquet(part.path):
        line += sum(block.count(b"\n") for block in blocks(Chunk(part.path, 0, part.start)))
    return f"{part.path}:{line}"
