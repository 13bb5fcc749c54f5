"""The page of flags lacks none."""

from __future__ import annotations

from reference_pages.launching import pages

from paddock.command_line import spelled
from paddock.jobfile.flags import BY_NAME


def test_every_spelling_of_a_flag_is_documented() -> None:
    """A flag nobody can find is not there."""
    text = pages()["flags.md"]
    assert [n for n in BY_NAME if f"`{spelled(n)}`" not in text] == []
