"""The table of all pictures that are made from the code alone."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

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
