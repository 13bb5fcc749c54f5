"""The schema of paddock.toml for editors says what the program's own reader says."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft7Validator
from reference_pages.paddock_toml import schema

from paddock.backends.sites.keys import KEYS, key_problems
from paddock.backends.sites.profile import read_profile
from paddock.backends.table import EVERY
from paddock.errors import UsageError

tomllib = pytest.importorskip("tomllib", reason="Python 3.10 reads no TOML")
DOCS = Path(__file__).parents[3] / "docs"
SCHEMA = Draft7Validator(json.loads(schema()))
VALUES: list[object] = [
    "a", 3, 2.5, True, ["a", "b"], [1], [["a", "b"]], [["a"]], [[]], [], {"a": 1}, {"a": True},
    {"a": {"b": 1}}, [{"a": 1}], {},
]  # fmt: skip


def accepts(document: object) -> bool:
    """Whether an editor shows no mistake."""
    return not list(SCHEMA.iter_errors(document))


@pytest.mark.parametrize("backend", EVERY)
def test_the_schema_and_the_reader_agree_about_each_key_and_value(backend: str) -> None:
    """Every key of the table, of this backend or not, with a value of every kind."""
    for key in KEYS:
        if key.name == "backend":
            continue
        for value in VALUES:
            table = {"backend": backend, key.name: value}
            is_right = not list(key_problems(backend, table, "x"))
            assert accepts({"site": {"a": table}}) == is_right, (backend, key.name, value)


@pytest.mark.parametrize(
    "text",
    [
        '[site.a]\nbackend = "ssh"\nhots = ["h"]',
        '[site.a]\nbackend = "sssh"',
        '[sites.a]\nbackend = "ssh"',
        '[defaults]\nsites = "a"',
        '[site."a b"]\nbackend = "ssh"',
        '[site.a]\nbackend = "ssh"\nhosts = ["h"]\nhostfile = "f"',
        "site = 3",
    ],
)
def test_what_is_no_key_is_an_error_in_both(text: str, tmp_path: Path) -> None:
    (tmp_path / "paddock.toml").write_text(text)
    with pytest.raises(UsageError):
        _read(tmp_path)
    assert not accepts(tomllib.loads(text))


def _read(folder: Path) -> None:
    """Read paddock.toml, and check its keys as find_site does."""
    profile = read_profile({"HOME": str(folder)}, str(folder))
    problems = [
        problem
        for table in profile.sites.values()
        for problem in key_problems(str(table["backend"]), table, "x")
    ]
    if problems:
        raise UsageError.of(problems)


def documented() -> dict[str, dict[str, Any]]:
    """The TOML blocks of the pages that have a site."""
    found = {}
    for page in sorted(DOCS.rglob("*.md")):
        for number, text in enumerate(re.findall(r"```toml\n(.*?)```", page.read_text(), re.S)):
            if "[site." in text:
                found[f"{page.relative_to(DOCS)}:{number}"] = tomllib.loads(text)
    return found


DOCUMENTED = documented()


def test_the_pages_have_examples() -> None:
    assert len(DOCUMENTED) > 5


@pytest.mark.parametrize("name", DOCUMENTED)
def test_each_example_of_the_pages_is_right(name: str) -> None:
    assert list(SCHEMA.iter_errors(DOCUMENTED[name])) == []
