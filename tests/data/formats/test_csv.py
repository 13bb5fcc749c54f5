"""CSV: columns by name, types as declared."""

from __future__ import annotations

import pytest

from paddock.data.formats.hashing import text_id
from paddock.data.formats.table import CsvFormat, columns_from, header_of
from paddock.errors import UsageError

COLUMNS = columns_from(["click", "user", "city%1000"], ["age"])
FORM = CsvFormat(("city", "user", "age", "click", "rest"), COLUMNS, padding=9)


def test_columns_are_found_by_name_and_the_header_is_no_example() -> None:
    """Of every block: a file cut into chunks has its header in the first one only."""
    text = b'city,user,age,click,rest\n"Rome, Italy",7,1.5,1,x\r\nBonn,,,0,y'
    batch = FORM.parse(text).batch
    assert batch.label.tolist() == [1.0, 0.0]
    assert [int(i) for i in batch.ids["user"]] == [7, 9]
    assert int(batch.ids["city"][0]) == text_id("city", "Rome, Italy", 1000)
    assert batch.dense["age"].tolist() == [[1.5], [0.0]]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"a,b", "2 fields, 5 are needed"),
        (b"a,x,1,1,r", "column 'user': 'x' is no id; user%1000001 hashes words"),
        (b"a,1,old,1,r", "column 'age': 'old' is no number"),
        (b"a,1,1,,r", "column 'click': '' is no label"),
    ],
)
def test_a_bad_line_is_named(line: bytes, reason: str) -> None:
    """Which line, which column, which value."""
    parsed = FORM.parse(b"a,1,2,1,r\n" + line + b"\n")
    (bad,) = parsed.bad
    assert (bad.line, bad.offset, bad.reason, parsed.batch.size) == (1, 10, reason, 1)


def test_an_empty_block_has_no_examples() -> None:
    """And still all its columns."""
    batch = FORM.parse(b"").batch
    assert (batch.size, batch.dense["age"].shape) == (0, (0, 1))


def test_a_column_that_the_file_lacks_is_refused() -> None:
    """With those that it has."""
    with pytest.raises(UsageError, match="no column 'age'; it has click"):
        CsvFormat(header_of(b"click,user,city"), COLUMNS)


def test_all_that_is_wrong_with_the_columns_is_said_at_once() -> None:
    """Twice declared, or without a number of ids."""
    with pytest.raises(UsageError) as caught:
        columns_from(["click", "a", "a", "b%"], [])
    assert len(caught.value.problems) == 2
