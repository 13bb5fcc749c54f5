"""Formats: each parses a block of bytes into a batch and a list of the bad lines.

A format is a value: it can be pickled for a process that parses, and `parse` remembers nothing.
The same bytes give the same batch in every process.
"""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar, runtime_checkable

from paddock.data.batch import Batch
from paddock.data.chunks import Chunk
from paddock.data.files import blocks

# Bad lines of one block that are kept with their reason; the others are only counted.
BAD_KEPT = 100


@dataclass(frozen=True)
class Bad:
    """A line that is no example. line: from 0; offset: its first byte; both in the block."""

    line: int
    offset: int
    reason: str


@dataclass(frozen=True)
class Parsed:
    """The parsed examples of a block.

    batch: the good lines in their order. bad: the first BAD_KEPT bad ones; bad_count: all of them.
    lines: of the block, empty ones too. seen: declared slot -> examples that have it, 0 where
    none has. unknown: slot that is not declared -> times it occurs.
    """

    batch: Batch
    lines: int = 0
    bad: tuple[Bad, ...] = ()
    bad_count: int = 0
    seen: Mapping[str, int] = field(default_factory=dict)
    unknown: Mapping[str, int] = field(default_factory=dict)


T = TypeVar("T")


def read_lines(block: bytes, read: Callable[[bytes], T | str | None]) -> tuple[list[T], Parsed]:
    """The examples that `read` makes of a block's lines, and what is Parsed but for their batch.

    read: returns an example, None for no example, or an error text.
    """
    lines = block.split(b"\n")
    if not lines[-1]:
        del lines[-1]
    good: list[T] = []
    bad: list[Bad] = []
    bad_count = offset = 0
    for number, line in enumerate(lines):
        found = read(line)
        if isinstance(found, str):
            bad_count += 1
            if len(bad) < BAD_KEPT:
                bad.append(Bad(number, offset, found))
        elif found is not None:
            good.append(found)
        offset += len(line) + 1
    return good, Parsed(Batch(0), len(lines), tuple(bad), bad_count)


def label_of(sparse_slots: Sequence[str], label: str | None) -> str:
    """The slot that is the label: the first sparse one where none is named; "" for none."""
    return label if label is not None else next(iter(sparse_slots), "")


class TextFormat(Protocol):
    """A format of lines."""

    def parse(self, block: bytes) -> Parsed:
        """The examples of whole lines; the last may lack its newline."""


@runtime_checkable
class RowFormat(Protocol):
    """A format that reads files by itself, as Parquet's row groups."""

    def read(self, chunk: Chunk) -> Iterator[Parsed]:
        """The examples of the chunk, in pieces."""


Format = TextFormat | RowFormat


def parse_chunk(form: Format, chunk: Chunk) -> Iterator[tuple[bytes | None, Parsed]]:
    """Each block of a chunk, None where there are none, and what is in it."""
    if isinstance(form, RowFormat):
        yield from ((None, parsed) for parsed in form.read(chunk))
    else:
        yield from ((block, form.parse(block)) for block in blocks(chunk))


@dataclass
class Coverage:
    """The coverage of slots: which of them the data really has, summed over blocks."""

    examples: int = 0
    seen: Counter[str] = field(default_factory=Counter)
    unknown: Counter[str] = field(default_factory=Counter)

    def add(self, parsed: Parsed) -> None:
        """Count one block."""
        self.examples += parsed.batch.size
        for slot, times in parsed.seen.items():
            self.seen[slot] += times
        for slot, times in parsed.unknown.items():
            self.unknown[slot] += times

    def warnings(self) -> list[str]:
        """A line for each slot that is declared and never seen, or seen and not declared; one for
        many that are like no other.

        >>> coverage = Coverage(8, Counter(dense_var=0, click=8), Counter(dense_feature=8))
        >>> for line in coverage.warnings(): print(line)
        slot 'dense_var' is declared and in none of 8 examples; the data has 'dense_feature'
        slot 'dense_feature' is in the data and not declared; declared is 'dense_var'
        """
        absent = [slot for slot, times in self.seen.items() if self.examples and not times]
        none = f"is declared and in none of {self.examples} examples"
        return [
            *_told(absent, self.unknown, f"{none}; the data has", none),
            *_told(
                self.unknown, absent, "is in the data and not declared; declared is",
                "is in the data and not declared",
            ),
        ]  # fmt: skip


def _told(slots: Iterable[str], others: Iterable[str], mistyped: str, alone: str) -> Iterator[str]:
    """
    >>> list(_told(["a", "b", "c"], [], "is not", "is absent"))
    ["slot 'a', like 2 more (b, c), is absent"]
    """
    odd = []
    for slot in slots:
        found = nearest(slot, others)
        if found:
            yield f"slot {slot!r} {mistyped} {found!r}"
        else:
            odd.append(slot)
    if len(odd) > 2:
        more = ", ".join(odd[1:6]) + ", ..." * (len(odd) > 6)
        yield f"slot {odd[0]!r}, like {len(odd) - 1} more ({more}), {alone}"
    else:
        yield from (f"slot {slot!r} {alone}" for slot in odd)


def nearest(name: str, names: Iterable[str]) -> str | None:
    """The most similar of the names, None where none is similar.

    >>> nearest("dense_var", ["click", "dense_feature"])
    'dense_feature'
    """
    found = difflib.get_close_matches(name, list(names), 1, 0.4)
    return found[0] if found else None
