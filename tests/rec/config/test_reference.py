"""The page of all keys is what the code reads."""

from __future__ import annotations

from pathlib import Path

import pytest
from reference_pages.rec_keys import CHINESE, ENGLISH, SECTIONS, markdown

from paddock.rec.config.keys import FORMATS, IGNORED, KINDS, MAPPED, REFUSED

GUIDE = Path(__file__).resolve().parents[3] / "docs/guide"
PAGES = {"migrating-from-paddlerec.md": ENGLISH, "migrating-from-paddlerec.zh.md": CHINESE}
BEGIN, END = "<!-- keys: written by pytest --record -->\n", "<!-- end of keys -->\n"


@pytest.mark.parametrize("name", PAGES)
def test_the_page_has_the_tables_that_the_code_reads_by(name: str, recording: bool) -> None:
    """Nothing is documented that is not read, and nothing read that is not documented."""
    page, wanted = GUIDE / name, markdown(PAGES[name])
    text = page.read_text("utf-8")
    before, _, rest = text.partition(BEGIN)
    inner, _, after = rest.partition(END)
    if recording:
        page.write_text(before + BEGIN + wanted + END + after, "utf-8")
        inner = wanted
    assert inner == wanted, "pytest --record tests/rec/config/test_reference.py"


def test_each_key_stands_once_and_its_type_exists() -> None:
    """A second line for a key would never be reached."""
    for title, _, table in SECTIONS:
        names = [key.name for key in table]
        assert len(names) == len(set(names)), title
        for key in table:
            is_read = key.kind not in (MAPPED, IGNORED, REFUSED)
            assert key.kind in KINDS or not is_read, key
            assert key.what, key
            assert is_read or not key.field, key
    assert FORMATS[0] == "slots"
