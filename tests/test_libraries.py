"""The pages of docs/libraries say what the examples and the tested versions are."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pages import ROOT, blocks_of

FOLDER = ROOT / "docs" / "libraries"
PINS = dict(
    line.split("==") for line in (ROOT / "constraints.txt").read_text().splitlines() if "==" in line
)
TRAINED = sorted(p for p in FOLDER.glob("*.md") if "\n## The script\n" in p.read_text("utf-8"))
CHINESE = [page.with_name(page.name.replace(".md", ".zh.md")) for page in TRAINED]


def example_of(page: Path) -> str:
    """The script that a page starts."""
    (name, *_) = re.findall(r"examples/libraries/\w+\.py", page.read_text("utf-8"))
    return (ROOT / name).read_text("utf-8")


@pytest.mark.parametrize("page", [*TRAINED, *CHINESE], ids=lambda page: page.name)
def test_the_script_of_a_page_stands_in_its_example(page: Path) -> None:
    """A reader copies lines that a test has run."""
    (script,) = (b.body for b in blocks_of(page) if b.language == "python")
    lines = [line.strip() for line in example_of(page).splitlines()]
    assert [line for line in script.splitlines() if line.strip() not in lines] == []


@pytest.mark.parametrize("page", [*TRAINED, *CHINESE], ids=lambda page: page.name)
def test_a_page_names_the_versions_that_are_tested(page: Path) -> None:
    """They are those of constraints.txt, which `make .venv/.real` installs."""
    line = next(t for t in page.read_text("utf-8").splitlines() if t[:3] in ("Tes", "测试过"))
    found = re.findall(r"(\w+) (\d+\.\d+\.\d+)", line)
    assert found and all(PINS[name].strip() == version for name, version in found), line


@pytest.mark.parametrize("index", ["index.md", "index.zh.md"])
def test_the_index_lists_every_page(index: str) -> None:
    """A library without a row is not found."""
    ending = ".zh.md" if ".zh." in index else ".md"
    pages = {p.name for p in FOLDER.glob(f"*{ending}") if (".zh." in p.name) == (".zh." in ending)}
    linked = set(re.findall(r"\]\(([\w.-]+\.md)\)", (FOLDER / index).read_text("utf-8")))
    assert pages <= linked | {index}
