"""How a run without servers goes on."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from paddock.errors import UsageError
from paddock.ps.durable.checkpoint import MANIFEST
from paddock.rec import saver
from paddock.rec.settings import Contract, Run, Saving, Task
from paddock.rec.start import Start
from paddock.rec.team import Alone
from rec.test_loop import Counter, Numbers

POSITION = {"epoch": 0, "step": 16, "at": 3}


class Loaded(Counter):
    """A learner that remembers where it was told to load."""

    path = ""

    def load(self, directory: str) -> None:
        self.path = directory


def start_in(root: Path, told: list[str]) -> Start:
    run = Run("train", Task.TRAIN, Contract.BUNDLED, ".", "model.py")
    run = replace(run, saving=Saving(str(root)), resume=True)
    return Start(run, None, Alone(), say=told.append)


def test_a_bundled_model_goes_on_from_its_own_checkpoint(tmp_path: Path) -> None:
    """Its tables are in files of one server: resume was refused, as if servers had made it."""

    def fill(aside: str) -> None:
        inner = Path(aside, "step-000000000016")
        inner.mkdir()
        (inner / MANIFEST).write_text("{}")
        saver.write_state(aside, {"position": POSITION})

    saver.write(str(tmp_path), "step-000000000016", 3, fill)
    learner, told = Loaded(), list[str]()
    assert start_in(tmp_path, told).choose(learner, Numbers(1), can_deal=False) == POSITION
    assert learner.path == str(tmp_path / "step-000000000016")
    assert told == []


def test_who_has_nothing_to_resume_is_told_so(tmp_path: Path) -> None:
    """It may be another directory that was meant."""
    told: list[str] = []
    assert start_in(tmp_path, told).choose(Loaded(), Numbers(1), can_deal=False) is None
    assert told == [f"nothing to resume in {tmp_path}: starts afresh"]


def test_a_checkpoint_of_servers_is_not_gone_on_from_without_them(tmp_path: Path) -> None:
    """It has positions of several workers."""
    (tmp_path / "step-000000000016").mkdir()
    (tmp_path / "step-000000000016" / MANIFEST).write_text("{}")
    (tmp_path / "LATEST").write_text("step-000000000016\n")
    with pytest.raises(UsageError, match="was made by servers, and this run has none"):
        start_in(tmp_path, []).choose(Loaded(), Numbers(1), can_deal=False)
