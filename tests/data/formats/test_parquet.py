"""Parquet: columns by name, lists as bags, row groups as chunks."""

from __future__ import annotations

from pathlib import Path

import pytest

from paddock.data.batch import Bag
from paddock.data.chunks import Chunk
from paddock.data.formats.hashing import text_id
from paddock.data.formats.table import ParquetFormat, columns_from
from paddock.errors import UsageError

pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
FORM = ParquetFormat(columns_from(["click", "user", "city%1000", "seen"], ["age", "pixels"]), 9)


@pytest.fixture
def path(tmp_path: Path) -> str:
    """Four rows in two row groups."""
    from pyarrow import parquet

    table = pa.table(
        {
            "click": [1, 0, 1, 0],
            "user": [5, None, 7, 8],
            "city": ["Rome", "Bonn", None, "Rome"],
            "seen": [[1, 2], [], [3], [4]],
            "age": [1.5, None, 2.0, 3.0],
            "pixels": [[1.0, 2.0]] * 4,
            "rest": ["x"] * 4,
        }
    )
    found = str(tmp_path / "data.parquet")
    parquet.write_table(table, found, row_group_size=2)
    return found


def test_a_row_group_becomes_columns(path: str) -> None:
    """Missing ids are the padding, missing numbers 0."""
    (parsed,) = FORM.read(Chunk(path, 0, 1))
    batch, bag = parsed.batch, parsed.batch.ids["seen"]
    assert isinstance(bag, Bag)
    assert (batch.size, batch.label.tolist()) == (2, [1.0, 0.0])
    assert [int(i) for i in batch.ids["user"]] == [5, 9]
    assert int(batch.ids["city"][1]) == text_id("city", "Bonn", 1000)
    assert (bag.values.tolist(), bag.lengths.tolist()) == ([1, 2], [2, 0])
    assert batch.dense["age"].tolist() == [[1.5], [0.0]]
    assert batch.dense["pixels"].shape == (2, 2)
    assert parsed.seen["user"] == 1


def test_a_column_that_is_not_there_or_not_that_is_refused(path: str) -> None:
    """With those that the file has."""
    with pytest.raises(UsageError, match="has no column 'weight'; it has click"):
        list(ParquetFormat(columns_from(["click"], ["weight"])).read(Chunk(path, 0, 2)))
    with pytest.raises(UsageError, match=r"column 'city' \(string\) is no id"):
        list(ParquetFormat(columns_from(["click", "city"], [])).read(Chunk(path, 0, 2)))
