"""Replays every story in scenarios/. ``--record`` writes down what happens now.

Review a recorded change as text: each difference is a promise to users that changed. The stories
are read by tests/operator_replay.py; scenarios/index.md says which one shows what.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from operator_replay import RULE, replay
from operator_story import COMMANDS
from paddock.operator import ending, outcome, reconcile, silence, status
from paddock.operator.policies import gang, restart

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType

HERE = Path(__file__).parent / "scenarios"
ROOT = Path(__file__).resolve().parents[2]
FILES = sorted(HERE.glob("*.txt"))
INDEX = (HERE / "index.md").read_text("utf-8")
DEFECTS = 22


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_the_story_still_happens(path: Path, recording: bool) -> None:
    """What the operator does in this story has not changed."""
    wanted = path.read_text("utf-8")
    happened = replay(wanted)
    if recording and happened != wanted:
        path.write_text(happened, "utf-8")
        wanted = happened
    assert happened == wanted


def test_every_story_is_told_first() -> None:
    """A transcript nobody can read without the code is only a snapshot."""
    untold = [p.name for p in FILES if len(p.read_text("utf-8").split(RULE)[0].split("\n\n")) < 2]
    assert untold == []


def test_a_changed_story_is_noticed() -> None:
    """Replaying must not simply repeat what it reads."""
    happened = replay("A story.\n\njob demo\n  worker: 1\n----\nwrong\n")
    assert "wrong" not in happened
    assert "create Pod demo-worker-0" in happened


def test_every_command_is_used_by_a_story() -> None:
    """A command nobody uses is one that nobody has tried."""
    used = {
        line.split(" ")[0]
        for path in FILES
        for block in path.read_text("utf-8").split(f"\n{RULE}\n")
        for line in block.split("\n\n")[-1].split("\n")
    }
    assert set(COMMANDS) - used == set()


def test_every_defect_has_a_story_or_says_where_its_test_is() -> None:
    """The 22 defects of paddle-operator that the operator was written to be without."""
    defects = INDEX.partition("\n## reconcile.py")[0]
    for number in range(1, DEFECTS + 1):
        (row,) = re.findall(rf"^\| {number} \| .* \|$", defects, re.MULTILINE)
        assert f"d{number:02d}_" in row or "tests/" in row, row


def test_every_row_of_every_table_has_a_story() -> None:
    """The tables are what the operator promises; a row without a story is only a wish."""
    missing = [
        f"{module.__name__}: {row}"
        for module in (reconcile, status, restart, ending, gang, outcome, silence)
        for row in rows_of(module)
        if not re.search(rf"^\| {re.escape(row)} +\| `?\w", section_of(module), re.MULTILINE)
    ]
    assert missing == []


def test_the_index_names_what_is_there() -> None:
    """A story that was renamed must not be lost, and each one is found by what it shows."""
    named = set(re.findall(r"`(\w+)`", INDEX))
    assert named == {path.stem for path in FILES}
    elsewhere = re.findall(r"(tests/operator[\w/]*(?:\.py)?)", INDEX)
    assert [path for path in elsewhere if not (ROOT / path).exists()] == []


def rows_of(module: ModuleType) -> list[str]:
    """First cells of the tables in a module's docstring."""
    lines = [line for line in (module.__doc__ or "").split("\n") if line.startswith("|")]
    assert lines, module
    cells = [line.split("|")[1].strip() for line in lines]
    heads = {at - 1 for at, line in enumerate(lines) if line.startswith("|---")}
    return [
        cell
        for at, cell in enumerate(cells)
        if cell and not cell.startswith("---") and at not in heads
    ]


def section_of(module: ModuleType) -> str:
    """The part of the index about a module."""
    name = module.__name__.rpartition(".")[2]
    (found,) = re.findall(rf"^## {name}\.py\n(.*?)(?=^## |\Z)", INDEX, re.MULTILINE | re.DOTALL)
    return found
