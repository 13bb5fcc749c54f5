"""What is said before anything starts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from paddock.errors import UsageError
from paddock.ps.strategies import updates_behind
from paddock.rec.preflight import gone_with_pods, preflight
from paddock.rec.settings import (
    Cluster,
    EngineKind,
    ModelKind,
    Reading,
    Recipe,
    Saving,
    StrategySpec,
    Task,
    TrainingRun,
)


@pytest.fixture
def run(tmp_path: Path) -> TrainingRun:
    """Trains on two files."""
    for name in ("part-0", "part-1"):
        (tmp_path / name).write_text("click:1 1:2\n")
    reading = Reading((str(tmp_path / "part-*"),), 8)
    return TrainingRun("r", Task.TRAIN, ModelKind.BUNDLED, ".", "model.py", reading=reading)


def recipe(
    *runs: TrainingRun, engine: EngineKind = EngineKind.LOCAL_CLUSTER, workers: int = 2
) -> Recipe:
    """Of those runs."""
    return Recipe(engine, runs, Cluster(workers=workers))


def test_all_that_is_missing_is_said_at_once(
    run: TrainingRun, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Too few files, no checkpoint to begin with, no writer of curves, no data to judge by."""
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    test = Reading((str(tmp_path / "none"),), 8)
    wrong = replace(run, test=test, warm_start="nowhere", event_directory="curves")
    with pytest.raises(UsageError) as raised:
        preflight(recipe(wrong, workers=3))
    said = "\n".join(problem.message for problem in raised.value.problems)
    for part in ("2 files for 3 workers", "none", "warm_start: no checkpoint in 'nowhere'",
                 "curves are wanted in 'curves'"):  # fmt: skip
        assert part in said


def test_a_data_set_of_ones_own_may_want_directories(run: TrainingRun, tmp_path: Path) -> None:
    """Images, a directory for each class. A reader of ours has nothing to read there."""
    (tmp_path / "images" / "class-0").mkdir(parents=True)
    of_images = replace(run, reading=Reading((str(tmp_path / "images"),), 8))
    preflight(recipe(replace(of_images, contract=ModelKind.DYGRAPH)))
    with pytest.raises(UsageError, match="has no file of data"):
        preflight(recipe(of_images))


def test_slots_that_the_first_lines_lack_are_told_before_training(
    run: TrainingRun, tmp_path: Path
) -> None:
    """PaddleRec's own file declares dense_var, its data has dense_feature: it learnt zeros."""
    assert run.reading is not None
    (tmp_path / "part-0").write_text("click:1 1:2 dense_feature:0.5\n" * 3)

    def told(*sparse: str, **dense: int) -> list[str]:
        reading = replace(run.reading, sparse_slots=sparse, dense_slots=dense)  # type: ignore[type-var]
        return preflight(recipe(replace(run, reading=reading)))

    assert told("click", "1", dense_feature=1) == told("click", "1") == []
    assert told("click", "1", "2", dense_feature=1) == []  # It may come later.
    absent, other = told("click", "1", dense_var=13)
    assert absent.endswith(
        "part-0: slot 'dense_var' is declared and in none of 3 examples; the data has "
        "'dense_feature'"
    )
    assert other.endswith("not declared; declared is 'dense_var'")


def test_what_an_earlier_run_writes_need_not_be_there(run: TrainingRun, tmp_path: Path) -> None:
    """A recipe that trains and then judges; alone the second one is refused."""
    trains = replace(run, saving=Saving(str(tmp_path / "out")))
    judges = replace(run, task=Task.EVALUATE, evaluate_from=str(tmp_path / "out"), test=run.reading)
    preflight(recipe(trains, judges))
    with pytest.raises(UsageError, match="infer_load_path: no checkpoint in"):
        preflight(recipe(judges))


def test_data_on_demand_needs_servers_and_all_of_the_data(run: TrainingRun, tmp_path: Path) -> None:
    """The servers give them out; two files are enough for any number of workers."""
    assert run.reading is not None
    dynamic = replace(run, reading=replace(run.reading, assignment="dynamic"))
    preflight(recipe(dynamic, workers=9))
    with pytest.raises(UsageError, match="dynamic, and there are no servers"):
        preflight(recipe(dynamic, engine=EngineKind.SINGLE))
    online = replace(dynamic, config={"runner.days": "20191001"})
    with pytest.raises(UsageError, match="learns pass by pass"):
        preflight(recipe(online))


def test_paths_of_a_cluster_are_those_of_its_hosts(run: TrainingRun) -> None:
    """What is refused here is not looked for there."""
    wrong = replace(run, warm_start="nowhere")
    with pytest.raises(UsageError, match="warm_start: no checkpoint"):
        preflight(recipe(wrong))
    preflight(recipe(wrong, engine=EngineKind.CLUSTER, workers=9))


@pytest.mark.parametrize(
    ("options", "directory", "is_lost"),
    [
        ({}, "increment", True),
        ({"volumes": ["models:/out"]}, "/out/increment", False),
        ({"volumes": "data:/data:ro;models:/out"}, "/out", False),
        ({"volumes": ["models:/out"]}, "increment", True),
        ({"volumes": ["models:/out:ro"]}, "/out/increment", True),
        ({"site": "kubernetes,volumes=models:/out"}, "/out", False),
    ],
)
def test_what_a_pod_saves_for_itself_is_told_before_it_is_made(
    run: TrainingRun, options: dict[str, object], directory: str, is_lost: bool
) -> None:
    """A model that took hours was gone with the pod of the worker that wrote it."""
    saves = replace(run, saving=Saving(directory))
    for backend in ("kubernetes", "ssh"):
        found = Recipe(EngineKind.CLUSTER, (saves,), Cluster(backend, options=options))
        lines = gone_with_pods(found)
        assert bool(lines) == (is_lost and backend == "kubernetes")
        assert not lines or lines[0].startswith(f"{directory}: worker 0's pod writes this")


@pytest.mark.parametrize(
    ("strategy", "workers", "optimizer", "advice"),
    [
        ("async", 4, "Adam", "half_async"),
        ("async", 3, "Adagrad", "half_async"),
        ("async", 8, "Adam", "sync"),
        ("half_async", 8, "Adam", "sync"),
        ("async", 2, "Adam", None),
        ("async", 4, "SGD", None),
        ("half_async", 4, "Adam", None),
        ("sync", 64, "Adam", None),
        ("geo", 64, "Adam", None),
    ],
)
@pytest.mark.parametrize("engine", [EngineKind.LOCAL_CLUSTER, EngineKind.CLUSTER])
def test_gradients_that_may_come_too_late_are_warned_of(
    run: TrainingRun,
    engine: EngineKind,
    strategy: str,
    workers: int,
    optimizer: str,
    advice: str | None,
) -> None:
    """With a number, the reason, and a strategy that keeps below it."""
    late = replace(
        run,
        reading=None,
        strategy=StrategySpec(strategy),
        hyper={"optimizer.class": optimizer},
    )
    judges = replace(late, task=Task.EVALUATE)
    told = preflight(recipe(late, judges, engine=engine, workers=workers))
    if advice is None:
        assert told == []
        return
    (line,) = told
    behind = updates_behind(strategy, workers)
    assert f"in {strategy} with {workers} workers a gradient is up to {behind} updates" in line
    assert line.endswith(f"-o strategy={advice}")


def test_a_process_alone_is_never_late(run: TrainingRun) -> None:
    """Whatever its file says of a cluster."""
    alone = replace(run, strategy=StrategySpec("async"))
    assert preflight(recipe(alone, engine=EngineKind.SINGLE, workers=8)) == []
