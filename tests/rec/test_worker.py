"""The runs of one job, one after the other, on the same servers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from paddock.errors import UsageError
from paddock.rec import checkpoints
from paddock.rec.settings import ModelKind, Saving, StrategySpec, Task, TrainingRun
from paddock.rec.worker import kept, of_one_strategy
from paddock.rec.worker_group import PsWorkers
from ps.client.running import fleet


def run(name: str, task: Task, strategy: str) -> TrainingRun:
    """A run that does nothing."""
    return TrainingRun(name, task, ModelKind.BUNDLED, ".", "x", strategy=StrategySpec(strategy))


def test_a_run_that_judges_takes_the_strategy_of_the_one_that_trains() -> None:
    """The servers keep to one for all of their job."""
    train = run("t", Task.TRAIN, "sync")
    found = of_one_strategy([train, run("e", Task.EVALUATE, "async")])
    assert [one.strategy.name for one in found] == ["sync", "sync"]
    alone = of_one_strategy([run("e", Task.EVALUATE, "geo")])
    assert [one.strategy.name for one in alone] == ["geo"]


def test_two_strategies_in_one_job_are_refused() -> None:
    """With the names of the runs."""
    with pytest.raises(UsageError, match="'b' is async, 'a' is sync"):
        of_one_strategy([run("a", Task.TRAIN, "sync"), run("b", Task.TRAIN, "async")])


def test_who_stops_training_is_told_where_it_can_go_on(tmp_path: Path) -> None:
    """Ctrl-C was a traceback through the framework."""
    trains = replace(run("t", Task.TRAIN, "sync"), saving=Saving(str(tmp_path)))
    runs = [trains, run("e", Task.EVALUATE, "sync")]
    assert kept(runs) == kept([]) == "there is no checkpoint"
    (tmp_path / "step-000000000008").mkdir()
    (tmp_path / checkpoints.LATEST).write_text("step-000000000008\n")
    assert kept(runs).startswith(f"{tmp_path}/step-000000000008 is the newest checkpoint")


@pytest.mark.parametrize("strategy", ["sync", "async", "geo"])
def test_each_run_of_a_job_begins_at_its_own_beginning(strategy: str) -> None:
    """A worker that comes again passes over those that it has finished."""
    here = {"epoch": 4, "step": 9, "at": 7}
    with fleet(1) as servers:
        for number in range(2):
            with servers.client(strategy=strategy, trainers=1) as client:
                team = PsWorkers(client, run=number)
                assert team.prepare(lambda: 0)
                assert (team.start(lambda: None) or {"epoch": 0})["epoch"] == 0
                team.before_step(here)
                client.step()
                team.after_step(here)
                team.finish()
        with servers.client(strategy=strategy, trainers=1) as client:
            begun = [PsWorkers(client, run=number).prepare(lambda: 0) for number in range(3)]
            assert begun == [False, False, True]
