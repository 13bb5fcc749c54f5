"""docs/reference is what the tables of the code say, and so are its schemas."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import yaml
from jsonschema import Draft202012Validator
from reference_pages import pages

from paddlejobs import DOCUMENTED, FULL
from schemas import SCHEMAS, mistakes

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "docs" / "reference"
PAGES = pages()


@pytest.mark.parametrize("name", PAGES)
def test_the_reference_matches_the_code(name: str) -> None:
    """Run make reference after a change."""
    assert (FOLDER / name).read_text("utf-8") == PAGES[name]


def test_the_page_of_commands_has_their_orders() -> None:
    """Of paddock ps, and of the operator."""
    assert "### `paddock ps save`" in PAGES["commands.md"]
    assert "### `paddock operator install`" in PAGES["commands.md"]


def test_no_schema_is_left_behind_or_wrong() -> None:
    """A file that nobody makes any more; a word that JSON Schema does not know."""
    assert {path.name for path in (FOLDER / "schemas").iterdir()} == {*SCHEMAS}
    for schema in SCHEMAS.values():
        Draft202012Validator.check_schema(schema)


def test_documented_jobs_fit_the_schema_and_misspelled_ones_do_not() -> None:
    """An editor that reads it marks what `paddock launch -f` refuses."""
    example = yaml.safe_load((ROOT / "examples" / "paddlejob.yaml").read_text("utf-8"))
    for job in (example, FULL, *DOCUMENTED.values()):
        assert mistakes("paddlejob.json", job) == []
    for path, name in (([], "spce"), (["spec"], "wroker"), (["spec", "worker"], "replica")):
        wrong = copy.deepcopy(example)
        inner = wrong
        for part in path:
            inner = inner[part]
        inner[name] = 1
        assert len(mistakes("paddlejob.json", wrong)) == 1
