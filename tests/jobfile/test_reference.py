"""The pages of docs/reference are those the code would write."""

from __future__ import annotations

from pathlib import Path

import pytest

from paddock.jobfile.flags import BY_NAME
from paddock.jobfile.reference import main, pages

DIRECTORY = Path(__file__).resolve().parents[2] / "docs" / "reference"


@pytest.mark.parametrize("name", sorted(pages()))
def test_the_reference_matches_the_code(name: str) -> None:
    """Run python -m paddock.jobfile.reference --write docs/reference after a change."""
    assert (DIRECTORY / name).read_text("utf-8") == pages()[name]


def test_every_spelling_of_a_flag_is_documented() -> None:
    """A flag nobody can find is not there."""
    text = pages()["flags.md"]
    assert [n for n in BY_NAME if f"`--{n}`" not in text] == []


def test_the_pages_can_be_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """To a directory, to standard output, and not with other words."""
    assert main(["--write", str(tmp_path)]) == 0
    assert (tmp_path / "flags.md").read_text("utf-8") == pages()["flags.md"]
    assert main([]) == 0
    assert "# Exit codes" in capsys.readouterr().out
    assert main(["x"]) == 2
