"""The page of all keys is what the code reads."""

from __future__ import annotations

from pathlib import Path

from paddock.rec.config.build import FORMATS
from paddock.rec.config.keys import KINDS, READ
from paddock.rec.config.reference import SECTIONS, markdown

PAGE = Path(__file__).resolve().parents[3] / "docs/guide/migrating-from-paddlerec.md"
BEGIN, END = "<!-- keys: written by pytest --record -->\n", "<!-- end of keys -->\n"


def test_the_page_has_the_tables_that_the_code_reads_by(recording: bool) -> None:
    """Nothing is documented that is not read, and nothing read that is not documented."""
    text = PAGE.read_text("utf-8")
    before, _, rest = text.partition(BEGIN)
    inner, _, after = rest.partition(END)
    if recording:
        PAGE.write_text(before + BEGIN + markdown() + END + after, "utf-8")
        inner = markdown()
    assert inner == markdown(), "pytest --record tests/rec/config/test_reference.py"


def test_each_key_stands_once_and_its_type_exists() -> None:
    """A second line for a key would never be reached."""
    for title, _, table in SECTIONS:
        names = [key.name for key in table]
        assert len(names) == len(set(names)), title
        for key in table:
            assert key.kind in KINDS, key
            assert key.what, key
            assert (key.state == READ) or not key.field, key
    assert FORMATS[0] == "slots"
