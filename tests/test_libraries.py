"""The pages of docs/libraries say what the examples and the tested versions are."""

from __future__ import annotations

import re
from fnmatch import fnmatch
from pathlib import Path

import pytest

from contracts.test_environment import env_of
from contracts.worlds import job, two_by_two
from paddock.contracts import CONTRACTS
from paddock.contracts.environment import inherited
from paddock.core.value import replace
from pages import ROOT, blocks_of

FOLDER = ROOT / "docs" / "libraries"
PINS = dict(
    line.split("==") for line in (ROOT / "constraints.txt").read_text().splitlines() if "==" in line
)
PINS["deepspeed"] = "0.19.8"  # not in CI: docs/decisions/0031-libraries-tested.md
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


def families(page: str) -> list[tuple[list[str], set[str]]]:
    """The first table: patterns of variables, and the values of --framework that set them."""
    rows = [
        line.split("|")[1:3]
        for line in (FOLDER / page).read_text("utf-8").splitlines()
        if "`auto`" in line and line.startswith("| `")
    ]
    return [(re.findall(r"`([^`]+)`", a), set(re.findall(r"`(\w+)`", b))) for a, b in rows]


@pytest.mark.parametrize("page", ["environment.md", "environment.zh.md"])
def test_the_table_of_variables_is_what_the_contracts_set(page: str) -> None:
    """Each variable of a rank belongs to a row, and a row to the frameworks that set any of it."""
    table = families(page)
    found: dict[str, set[str]] = {patterns[0]: set() for patterns, _ in table}
    unused = {pattern for patterns, _ in table for pattern in patterns}
    for framework in CONTRACTS:
        work = replace(job(nnodes=2), framework=framework, devices=("cpu",))
        for kind in ("cpu", "gpu"):
            for name in env_of({}, work, two_by_two(kind)).env:
                fits = [(p, row[0]) for row, _ in table for p in row if fnmatch(name, p)]
                assert fits, f"{name} belongs to no row"
                found[fits[0][1]].add(framework)
                unused.discard(fits[0][0])
    assert found == {patterns[0]: named for patterns, named in table}
    assert unused == set()


@pytest.mark.parametrize("page", ["environment.md", "environment.zh.md"])
def test_the_variables_that_are_removed_are_removed(page: str) -> None:
    """What an outer launcher set for its own task; the allocation stays."""
    text = (FOLDER / page).read_text("utf-8")
    lines = [t for t in text.splitlines() if re.match(r"\| `(SLURM|PMIX|MV2)", t)]
    names = [name for line in lines for name in re.findall(r"`([A-Z0-9_]+)`", line.split("|")[1])]
    kept = ["SLURM_JOB_ID", "SLURM_NTASKS"]
    assert len(names) > 8 and all(name in text for name in kept)
    assert list(inherited(dict.fromkeys([*names, *kept], "1"))) == kept
