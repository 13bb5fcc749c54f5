"""How a run without servers goes on."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from paddock.errors import PaddockError, UsageError
from paddock.ps.storage.checkpoint import MANIFEST
from paddock.rec import checkpoints
from paddock.rec.resume import RunStart
from paddock.rec.settings import ModelKind, Saving, Task, TrainingRun
from paddock.rec.worker_group import PsWorkers, WorkerGroup
from ps.client.running import fleet
from rec.test_loop import Counter, Numbers

POSITION = {"epoch": 0, "step": 16, "at": 3}
# The first of a process compiles what it runs.
SLOW = {"strategy": "sync", "trainers": 1, "timeout": 30.0}


class Loaded(Counter):
    """A learner that remembers where it was told to load."""

    path = ""

    def load(self, directory: str) -> None:
        self.path = directory


def start_in(root: Path, told: list[str]) -> RunStart:
    run = TrainingRun("train", Task.TRAIN, ModelKind.BUNDLED, ".", "model.py")
    run = replace(run, saving=Saving(str(root)), resume=True)
    return RunStart(run, WorkerGroup(), say=told.append)


def test_a_bundled_model_goes_on_from_its_own_checkpoint(tmp_path: Path) -> None:
    """Its tables are in files of one server: resume was refused, as if servers had made it."""

    def fill(aside: str) -> None:
        inner = Path(aside, "step-000000000016")
        inner.mkdir()
        (inner / MANIFEST).write_text("{}")
        checkpoints.write_state(aside, {"positions": {"0": {**POSITION, "workers": 1}}})

    checkpoints.write(str(tmp_path), "step-000000000016", 3, fill)
    learner, told = Loaded(), list[str]()
    assert start_in(tmp_path, told).choose(learner, Numbers(1)) == POSITION
    assert learner.path == str(tmp_path / "step-000000000016")
    assert told == []


def test_who_has_nothing_to_resume_is_told_so(tmp_path: Path) -> None:
    """It may be another directory that was meant."""
    told: list[str] = []
    assert start_in(tmp_path, told).choose(Loaded(), Numbers(1)) is None
    assert told == [f"nothing to resume in {tmp_path}: starts afresh"]


@pytest.mark.parametrize("resume", [True, False])
def test_an_attempt_whose_servers_began_anew_says_what_it_lost(
    tmp_path: Path, resume: bool
) -> None:
    """It trained everything again from empty tables, and looked like a first one."""
    told: list[str] = []
    run = TrainingRun("train", Task.TRAIN, ModelKind.BUNDLED, ".", "model.py", resume=resume)
    run = replace(run, saving=Saving(str(tmp_path)))
    for attempts in ((0, 1), (2,)):  # The third has new servers.
        with fleet(1) as servers, servers.client(**SLOW) as client:
            for attempt in attempts:
                team = PsWorkers(client, run=0)
                team.prepare(RunStart(run, team, say=told.append, attempt=attempt).load)
    nothing = [f"nothing to resume in {tmp_path}: starts afresh"] if resume else []
    hint = "there was no checkpoint" if resume else "resume=true goes on at the newest checkpoint"
    lost = f"attempt 2 begins at batch 0: the servers' tables are new; {hint}"
    assert told == [*nothing, lost, *nothing]


def test_a_worker_without_the_checkpoint_goes_on_where_the_servers_have_it(tmp_path: Path) -> None:
    """Only worker 0 sees it; the others began at batch 0, on tables that had learnt their data."""
    run = TrainingRun("train", Task.TRAIN, ModelKind.BUNDLED, ".", "model.py", resume=True)
    sees, blind = (replace(run, saving=Saving(str(tmp_path / name))) for name in ("a", "b"))
    with fleet(1) as servers, servers.client(**SLOW) as client:
        team = PsWorkers(client, run=0)
        team.prepare(lambda: None)
        assert not team.has_resumed()
        team.start(lambda: None)
        team.before_step({"epoch": 1, "step": 9, "at": 4})
        client.step()
        team.save(str(tmp_path / "a"), 3)
    with fleet(1) as servers, servers.client(**SLOW) as client:
        team = PsWorkers(client, run=0)
        team.prepare(RunStart(sees, team).load)
        assert team.has_resumed()
        start = RunStart(blind, team)
        wanted = {"epoch": 1, "step": 9, "at": 4}
        assert start.choose(Loaded(), Numbers(1)) == wanted
        team.workers = 2
        with pytest.raises(UsageError, match=r"worker 0 does not see .* of 1 workers"):
            start.choose(Loaded(), Numbers(1))


def test_a_checkpoint_of_servers_is_not_gone_on_from_without_them(tmp_path: Path) -> None:
    """It has positions of several workers."""
    (tmp_path / "step-000000000016").mkdir()
    (tmp_path / "step-000000000016" / MANIFEST).write_text("{}")
    (tmp_path / "LATEST").write_text("step-000000000016\n")
    with pytest.raises(UsageError, match="was made by servers, and this run has none"):
        start_in(tmp_path, []).choose(Loaded(), Numbers(1))


def saved(root: Path, *steps: int, keep: int = 2) -> None:
    for step in steps:
        checkpoints.write(str(root), f"step-{step:012d}", keep, lambda aside: None)


def test_keep_removes_checkpoints_and_nothing_else(tmp_path: Path) -> None:
    """All directories but the newest `keep` went: the user's own, and exported epochs."""
    for name in ("mine", "0", "step-by-step"):
        (tmp_path / name).mkdir()
    saved(tmp_path, 1, 2, 3)
    found = {path.name for path in tmp_path.iterdir() if path.is_dir()}
    assert found == {"mine", "0", "step-by-step", "step-000000000002", "step-000000000003"}


def test_a_first_run_begins_where_directories_of_others_are(tmp_path: Path) -> None:
    """resume=true took any directory for a checkpoint, and loaded what is none."""
    (tmp_path / "mine").mkdir()
    learner = Loaded()
    assert start_in(tmp_path, []).choose(learner, Numbers(1)) is None
    assert not learner.path


def test_what_a_killed_save_left_goes_with_the_next_one(tmp_path: Path) -> None:
    """Each would stay for good, as large as the model."""
    (tmp_path / ".paddock-step-000000000001-1.tmp").mkdir()
    saved(tmp_path, 2)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["LATEST", "step-000000000002"]


def test_a_step_saved_again_is_never_without_a_checkpoint(tmp_path: Path) -> None:
    """Killed between two renames, LATEST named what was not there any more."""
    saved(tmp_path, 1)
    (tmp_path / "step-000000000001").rename(tmp_path / ".step-000000000001.old")
    assert checkpoints.latest(str(tmp_path)) == str(tmp_path / ".step-000000000001.old")
    saved(tmp_path, 1, 1)
    assert checkpoints.latest(str(tmp_path)) == str(tmp_path / "step-000000000001")


def test_a_directory_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    """It was a traceback."""
    (tmp_path / "out").write_text("")
    with pytest.raises(PaddockError, match=r"a checkpoint in .*out: "):
        saved(tmp_path / "out", 1)
