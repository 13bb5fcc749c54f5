"""For tests with real processes on this machine: a world that is cleaned up."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from local.jobs import World

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """A folder with its jobs; all of them are killed after the test."""
    made = World(tmp_path)
    yield made
    made.close()
