"""The table of all pictures that are made from the code alone."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree import ElementTree

from pictures import flow, machines, shard

if TYPE_CHECKING:
    from collections.abc import Callable

    from pictures.svg import Picture

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "pictures"
MADE: dict[str, Callable[[], Picture]] = {
    "flow": partial(flow.draw, "en"),
    "flow.zh": partial(flow.draw, "zh"),
    "shard": shard.draw,
    **{name: partial(machines.drawn, name) for name in machines.MACHINES},
}


def said_by(path: Path) -> str:
    """The description in a picture; of a cast, its lines."""
    return ElementTree.parse(path).findtext("{http://www.w3.org/2000/svg}desc") or ""
