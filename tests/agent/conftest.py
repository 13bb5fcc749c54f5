"""For tests of agents: a loop with a door and members."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from agent.rooms import Room

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def room() -> Iterator[Room]:
    """A loop, emptied after the test."""
    made = Room()
    yield made
    made.close()
