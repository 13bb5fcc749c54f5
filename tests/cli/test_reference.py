"""docs/reference/commands.md is what the tables of the commands say."""

from __future__ import annotations

from pathlib import Path

from paddock.cli.reference import page

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "commands.md"


def test_the_page_of_commands_matches_their_tables() -> None:
    """Run python -m paddock.cli.reference > docs/reference/commands.md after a change."""
    text = page()
    assert PAGE.read_text("utf-8") == text
    assert "### `paddock ps save`" in text
    assert "### `paddock operator install`" in text
