"""The pictures of the docs are what the code says today."""

from __future__ import annotations

from typing import TYPE_CHECKING
from xml.etree import ElementTree

import pytest

from pictures.made import FOLDER, MADE

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
