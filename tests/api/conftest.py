"""Each test has a registry and a working directory of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(autouse=True)
def own_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory where the test works; runs are recorded below it."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    place = tmp_path / "work"
    place.mkdir()
    monkeypatch.chdir(place)
    return place
