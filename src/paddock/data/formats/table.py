"""CSV and Parquet: which column is what, and rows become batches.

A column of ids holds integers; `name%1000001` is a column whose texts are hashed to so many ids.
A missing id is the padding, a missing number 0.

CSV is a line for each example, with or without a header. Fields may be quoted; a field with a
newline in it is not read. Parquet is read a row group at a time and needs pyarrow: lists of
integers are bags, lists of numbers have one width.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

import numpy as np

from paddock.data.batch import Bag, Batch, Floats, Ids, matrix_columns
from paddock.data.chunks import Chunk
from paddock.data.files import open_parquet
from paddock.data.formats.format import Parsed, label_of, read_lines
from paddock.data.formats.hashing import text_id
from paddock.data.formats.numbers import plain_integer, plain_number
from paddock.errors import Problem, UsageError


class Kind(Enum):
    """The kind of a column in the batch."""

    LABEL = "label"
    ID = "id"
    HASH = "hash"
    NUMBER = "number"


@dataclass(frozen=True)
class Column:
    """A column of the file. ids: how many a HASH has."""

    name: str
    kind: Kind
    ids: int = 0


def columns_from(
    sparse_slots: Sequence[str], dense_slots: Sequence[str], label: str | None = None
) -> tuple[Column, ...]:
    """The columns of a declaration; the first sparse slot is the label where none is named.

    >>> columns = columns_from(["click", "user", "city%100"], ["age"])
    >>> [(c.name, c.kind.value, c.ids) for c in columns]
    [('click', 'label', 0), ('user', 'id', 0), ('city', 'hash', 100), ('age', 'number', 0)]
    """
    named = label_of(sparse_slots, label)
    columns, problems = [], []
    for slot in sparse_slots:
        name, sign, size = slot.partition("%")
        if slot == named:
            columns.append(Column(slot, Kind.LABEL))
        elif not sign:
            columns.append(Column(name, Kind.ID))
        elif size.isdecimal() and int(size):
            columns.append(Column(name, Kind.HASH, int(size)))
        else:
            hint = f"{name}%1000001: so many ids"
            problems.append(Problem(f"column {slot!r} has no number of ids", hint))
    columns += [Column(s, Kind.LABEL if s == named else Kind.NUMBER) for s in dense_slots]
    if named and named not in (*sparse_slots, *dense_slots):
        columns.append(Column(named, Kind.LABEL))
    names = [column.name for column in columns]
    problems += [
        Problem(f"column {name!r} is declared twice", "each column once")
        for name in dict.fromkeys(names)
        if names.count(name) > 1
    ]
    if problems:
        raise UsageError.of(problems)
    return tuple(columns)


def batch_of(size: int, columns: Sequence[Column], values: Mapping[str, Any]) -> Batch:
    """The rows as a batch. values: of each column, an array or a list, or a Bag."""
    label = np.empty(0, np.float32)
    dense: dict[str, Floats] = {}
    bags: dict[str, Ids | Bag] = {}
    single: dict[str, Any] = {}
    for column in columns:
        found = values[column.name]
        if column.kind is Kind.LABEL:
            label = np.asarray(found, np.float32).reshape(-1)
        elif column.kind is Kind.NUMBER:
            numbers = np.asarray(found, np.float32)
            dense[column.name] = numbers.reshape(size, -1) if size else numbers.reshape(0, 1)
        else:
            (bags if isinstance(found, Bag) else single)[column.name] = found
    matrix = np.empty((size, len(single)), np.int64)
    for i, one in enumerate(single.values()):
        matrix[:, i] = one
    return Batch(size, {**matrix_columns(tuple(single), matrix), **bags}, dense, label)


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

        lines, parsed = read_lines(block, row)
        names, size = [column.name for column in self.columns], len(lines)
        values = dict(zip(names, zip(*lines, strict=True), strict=True)) if size else {}
        batch = batch_of(size, self.columns, values or dict.fromkeys(names, ()))
        return replace(parsed, batch=batch, seen=dict.fromkeys(names, size))

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


ROWS_AT_ONCE = 16384


@dataclass(frozen=True)
class ParquetFormat:
    """The columns of a Parquet file that are read."""

    columns: tuple[Column, ...]
    padding: int = 0

    def read(self, chunk: Chunk) -> Iterator[Parsed]:
        """The rows of the chunk's row groups. Raises: UsageError for a column that is not there."""
        with open_parquet(chunk.path) as table:
            missing = [c.name for c in self.columns if c.name not in table.schema_arrow.names]
            if missing:
                absent = ", ".join(repr(name) for name in missing)
                known = ", ".join(table.schema_arrow.names[:20])
                raise UsageError(
                    f"'{chunk.path}' has no column {absent}; it has {known}",
                    hint="sparse_slots, dense_slots",
                )
            end = chunk.end if chunk.end >= 0 else table.num_row_groups
            names = [column.name for column in self.columns]
            groups = list(range(chunk.start, end))
            for rows in table.iter_batches(ROWS_AT_ONCE, row_groups=groups, columns=names):
                yield self._parsed(rows, chunk.path)

    def _parsed(self, rows: Any, path: str) -> Parsed:
        found, seen = {}, {}
        for column in self.columns:
            values = rows.column(rows.schema.get_field_index(column.name))
            seen[column.name] = rows.num_rows - values.null_count
            try:
                found[column.name] = self._column(column, values)
            except (ValueError, TypeError, NotImplementedError) as error:
                raise UsageError(
                    f"'{path}': column {column.name!r} ({values.type}) is no {column.kind.value}:"
                    f" {error}",
                    hint="a column of texts is declared as name%1000001",
                ) from error
        return Parsed(batch_of(rows.num_rows, self.columns, found), rows.num_rows, seen=seen)

    def _column(self, column: Column, values: Any) -> Any:
        import pyarrow as pa

        if pa.types.is_dictionary(values.type):
            values = values.dictionary_decode()
        is_list = pa.types.is_list(values.type) or pa.types.is_large_list(values.type)
        is_list = is_list or pa.types.is_fixed_size_list(values.type)
        lengths = values.value_lengths().fill_null(0).to_numpy(False) if is_list else None
        flat = values.flatten() if is_list else values
        if column.kind is Kind.HASH:
            known: dict[Any, int] = {}
            texts = flat.to_pylist()
            for text in texts:
                if text not in known:
                    value = text if isinstance(text, (str, bytes)) else str(text)
                    known[text] = text_id(column.name, "" if text is None else value, column.ids)
            array: Any = np.array([known[text] for text in texts], np.int64)
        elif column.kind is Kind.ID:
            array = flat.cast(pa.int64()).fill_null(self.padding).to_numpy(False)
        else:
            array = flat.cast(pa.float32()).fill_null(0).to_numpy(False)
        if lengths is None:
            return array
        if column.kind in (Kind.ID, Kind.HASH):
            return Bag(np.asarray(array, np.int64), lengths.astype(np.int64))
        if len(set(lengths.tolist())) > 1:
            raise ValueError("its lists have several lengths")
        return array
