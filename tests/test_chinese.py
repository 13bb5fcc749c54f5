"""The Chinese of generated pages is what docs/chinese.py makes of docs/chinese.txt."""

from __future__ import annotations

import re

import chinese
import pytest

WORDS = chinese.catalogue()
MADE = {
    name: chinese.translated(name, (chinese.DOCS / name).read_text("utf-8"), WORDS)
    for name in chinese.PAGES
}
# What is said in code, of flags and in figures is the same in both languages.
SAME = re.compile(r"`[^`]+`|(?<![\w-])--?[a-z][\w-]*|\d+(?:[.,]\d+)*|\b[A-Z]+_[A-Z_]+\b")


@pytest.mark.parametrize("name", chinese.PAGES)
def test_a_generated_page_is_in_chinese_too(name: str) -> None:
    """Add what is missing to docs/chinese.txt, and run python docs/chinese.py."""
    made = MADE[name]
    assert made.missing == []
    assert (chinese.DOCS / chinese.chinese_name(name)).read_text("utf-8") == made.text


def test_nothing_is_translated_that_no_page_says() -> None:
    """Whoever changes a sentence changes its Chinese, and leaves no other."""
    used = set().union(*(made.used for made in MADE.values()))
    assert [english for english in WORDS if english not in used] == []


def test_a_translation_has_the_code_and_figures_of_the_english() -> None:
    """A line that slipped, or an old default, is seen by who reads no Chinese."""
    unlike = [e for e, c in WORDS.items() if set(SAME.findall(e)) != set(SAME.findall(c))]
    assert unlike == []


def test_english_without_chinese_is_shown_and_named() -> None:
    """Figures need no entry of their own; code needs none."""
    words = {"a flag": "参数", "# rows": "# 行"}
    page = "# A flag.\n\n| `x` | 3 rows |\n|---|---|\n| a flag | new |\n"
    made = chinese.translated("reference/flags.md", page, words)
    assert made.missing == ["new"]
    assert (
        made.text.split("\n\n", 1)[1] == "# 参数。\n\n| `x` | 3 行 |\n|---|---|\n| 参数 | new |\n"
    )
