"""CSV: a line for each example, a field for each column, with or without a header.

Fields may be quoted; a field with a newline in it is not read. An empty number is 0, an empty id
the padding. No I/O here.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass

from paddock.data.formats.format import Parsed, read_lines
from paddock.data.formats.hashing import text_id
from paddock.data.formats.numbers import plain_integer, plain_number
from paddock.data.formats.table import Column, Kind, batch_of
from paddock.errors import UsageError


@dataclass(frozen=True)
class CsvFormat:
    """CSV whose fields are `header`; those in `columns` are read.

    >>> from paddock.data.formats.table import columns_from
    >>> form = CsvFormat(("age", "click", "city"), columns_from(["click", "city%9"], ["age"]))
    >>> batch = form.parse(b'age,click,city\\n31,1,"Rome"\\n').batch
    >>> batch.label.tolist(), batch.dense["age"].tolist(), batch.ids["city"].tolist()
    ([1.0], [[31.0]], [6])
    """

    header: tuple[str, ...]
    columns: tuple[Column, ...]
    padding: int = 0

    def __post_init__(self) -> None:
        missing = [c.name for c in self.columns if c.name not in self.header]
        if missing:
            names = ", ".join(repr(name) for name in missing)
            raise UsageError(
                f"the file has no column {names}; it has {', '.join(self.header[:20])}",
                hint="sparse_slots, dense_slots; or declare the columns of a file without header",
            )

    def parse(self, block: bytes) -> Parsed:
        """The examples of the block; a line that is the header is none."""
        places = [self.header.index(column.name) for column in self.columns]

        def row(line: bytes) -> list[float] | str | None:
            fields = self._fields(line.decode("utf-8", "replace").removesuffix("\r"))
            is_example = line.strip() and tuple(fields) != self.header
            return self._row(fields, places) if is_example else None

        lines = read_lines(block, row)
        names, size = [column.name for column in self.columns], len(lines.found)
        values = dict(zip(names, zip(*lines.found, strict=True), strict=True)) if size else {}
        batch = batch_of(size, self.columns, values or dict.fromkeys(names, ()))
        seen = dict.fromkeys(names, size)
        return Parsed(batch, lines.count, lines.bad, lines.bad_count, seen)

    def _fields(self, text: str) -> list[str]:
        if '"' not in text:
            return text.split(",")
        try:
            return next(csv.reader([text]))
        except csv.Error:
            return []

    def _row(self, fields: Sequence[str], places: Sequence[int]) -> list[float] | str:
        """The values of the columns, or what is wrong with the line."""
        if len(fields) != len(self.header):
            return f"{len(fields)} fields, {len(self.header)} are needed"
        row = []
        for column, place in zip(self.columns, places, strict=True):
            text = fields[place].strip()
            value: float | None
            if column.kind is Kind.HASH:
                value = text_id(column.name, text, column.ids)
            elif column.kind is Kind.ID:
                value = plain_integer(text.encode()) if text else self.padding
            else:
                value = (
                    0.0 if not text and column.kind is Kind.NUMBER else plain_number(text.encode())
                )
            if value is None:
                hashed = f"; {column.name}%1000001 hashes words" * (column.kind is Kind.ID)
                return f"column {column.name!r}: {text[:40]!r} is no {column.kind.value}{hashed}"
            row.append(value)
        return row


def header_of(line: bytes) -> tuple[str, ...]:
    """The names in a file's first line.

    >>> header_of(b'age,"city"\\r\\n')
    ('age', 'city')
    """
    text = line.decode("utf-8-sig", "replace").strip("\r\n")
    return tuple(field.strip() for field in next(csv.reader([text]), []))
