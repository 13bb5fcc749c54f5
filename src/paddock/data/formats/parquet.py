"""Parquet: columns by name, a row group at a time; needs pyarrow.

Lists of integers are bags; lists of numbers have one width. A missing id is the padding, a
missing number 0.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from paddock.data.batch import Bag
from paddock.data.chunks import Chunk
from paddock.data.files import open_parquet
from paddock.data.formats.format import Parsed
from paddock.data.formats.hashing import text_id
from paddock.data.formats.table import Column, Kind, batch_of
from paddock.errors import UsageError

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
