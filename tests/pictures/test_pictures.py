"""The pictures of the docs are what the code says today."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING
from xml.etree import ElementTree

import pytest

from conformance.hosts import SSH
from pictures import cast
from pictures.made import FOLDER, MADE, said_by
from pictures.scenes import SCENES
from pictures.terminal import Piece, lines_of
from real.hosts import need_hosts

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.mark.parametrize("name", MADE)
def test_a_picture_is_what_the_tables_say(
    name: str, same_as_golden: Callable[[Path, str], None]
) -> None:
    """A state or an event that is added to a table changes its picture: `make pictures`."""
    text = MADE[name]().text()
    assert ElementTree.fromstring(text).tag.endswith("svg")
    same_as_golden(FOLDER / f"{name}.svg", text)


@pytest.mark.parametrize("name", [*MADE, *SCENES])
def test_a_picture_is_whole_at_the_first_look(name: str) -> None:
    """An animation begins as an empty box, and some viewers never play it."""
    assert "animation" not in (FOLDER / f"{name}.svg").read_text("utf-8")


def expect_same_text(name: str) -> None:
    """Play a scene again; its lines must be those of the picture."""
    wanted = cast.compared(said_by(FOLDER / f"{name}.svg"))
    assert cast.compared(cast.transcript(SCENES[name]())) == wanted, f"make pictures ARGS={name}"


@pytest.mark.parametrize("name", ["failure", "elastic"])
def test_a_cast_shows_what_the_program_says_today(name: str) -> None:
    """A message that is reworded is filmed anew: `make pictures`."""
    expect_same_text(name)


@pytest.mark.real
def test_the_cast_of_the_demo_shows_what_it_says_today() -> None:
    """With PaddlePaddle."""
    if find_spec("paddle") is None:
        pytest.skip("paddle is not installed: make .venv/.real")
    expect_same_text("demo")


@pytest.mark.real
def test_the_cast_of_submit_shows_what_it_says_today() -> None:
    """On three hosts with sshd."""
    need_hosts(SSH)
    expect_same_text("submit")


def test_a_line_is_kept_as_it_was_when_it_was_left() -> None:
    """A count that is written over itself is no line of its own; colours go with their letters."""
    shown = "1 of 2\r2 of 2\x1b[K \x1b[1;31mbad\x1b[0m end\r\n\r\nlast"
    lines = lines_of(0.5, shown)
    assert [line.text for line in lines] == ["2 of 2 bad end", "", "last"]
    assert lines[0].pieces[1] == Piece("bad", "bad", is_bold=True)
