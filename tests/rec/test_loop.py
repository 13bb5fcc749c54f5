"""The training loop with a learner that only counts."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from paddock.errors import PaddockError, UsageError
from paddock.rec.checkpoints import SaveSchedule
from paddock.rec.learner import SourceBatch
from paddock.rec.loop import evaluate, train
from paddock.rec.report import TrainingReport
from paddock.rec.settings import ModelKind, Saving, Task, TrainingRun
from paddock.rec.worker_group import WorkerGroup


class Mean:
    """The mean of the scores."""

    def __init__(self) -> None:
        self.counts = np.zeros(2)

    def update(self, scores: Any, labels: Any) -> None:
        self.counts += [scores.sum(), len(scores)]

    def state(self) -> Any:
        return self.counts

    def value(self, state: Any = None) -> float:
        total, count = self.counts if state is None else state
        return float(total / max(count, 1))

    def clear(self) -> None:
        self.counts = np.zeros(2)


@dataclass
class Counter:
    """A learner that remembers what it was given. Its loss is the batch's number."""

    metrics: dict[str, Mean] = field(default_factory=lambda: {"mean": Mean()})
    trained: list[int] = field(default_factory=list)
    asked: list[int] = field(default_factory=list)

    def prefetch(self, batch: Any) -> None:
        self.asked.append(batch)

    def train(self, batch: Any) -> Mapping[str, float]:
        self.trained.append(batch)
        self.metrics["mean"].update(np.array([batch]), np.array([0]))
        return {"loss": float(batch) if batch < 90 else float("nan")}

    def evaluate(self, batch: Any) -> Mapping[str, float]:
        return self.train(batch)

    def save(self, directory: str) -> None: ...
    def load(self, directory: str) -> None: ...
    def export(self, directory: str) -> None: ...


@dataclass
class Numbers:
    """Batches 0 to count - 1 of ten examples."""

    count: int

    def open(self, epoch: int, position: Any) -> Iterator[SourceBatch]:
        for number in range(position or 0, self.count):
            yield SourceBatch(number, 10, number + 1)


@dataclass
class Kept:
    """Where checkpoints went."""

    saved: list[dict[str, Any]] = field(default_factory=list)
    exported: list[int] = field(default_factory=list)

    def save(self, position: dict[str, Any]) -> None:
        self.saved.append(position)

    def export(self, epoch: int) -> None:
        self.exported.append(epoch)


def run(**more: Any) -> TrainingRun:
    """A run of our learner."""
    return TrainingRun("test", Task.TRAIN, ModelKind.BUNDLED, ".", "model.py", **more)


def report() -> TrainingReport:
    """Into a string, with a clock that stands."""
    return TrainingReport(io.StringIO(), 2, lambda: 0.0)


def test_every_batch_of_every_epoch_is_trained_once() -> None:
    """And the rows of each batch but the first were asked for one batch early."""
    learner = Counter()
    numbers = train(
        run(epochs=2),
        learner,
        Numbers(3),
        WorkerGroup(),
        report(),
        SaveSchedule(Saving(), lambda: 0),
        None,
    )
    assert learner.trained == [0, 1, 2, 0, 1, 2]
    assert learner.asked == [1, 2, 1, 2]
    assert numbers == {"loss": 1.0, "mean": 1.0}


def test_a_run_goes_on_where_its_position_says() -> None:
    """The batches before it are not trained again; the next epoch is whole."""
    learner = Counter()
    at = {"epoch": 1, "step": 4, "at": 1}
    train(
        run(epochs=3), learner, Numbers(3), WorkerGroup(), report(),
        SaveSchedule(Saving(), lambda: 0), None,
        position=at,
    )  # fmt: skip
    assert learner.trained == [1, 2, 0, 1, 2]


def test_checkpoints_are_due_by_steps_and_epochs_and_at_the_end() -> None:
    """Each with the position behind the batch that was trained last."""
    kept = Kept()
    saving = Saving(every_steps=2, export_directory="x", export_last=True)
    train(run(epochs=2, saving=saving), Counter(), Numbers(3), WorkerGroup(), report(),
          SaveSchedule(saving, lambda: 0), kept)  # fmt: skip
    assert kept.saved == [
        {"epoch": 0, "step": 2, "at": 2, "batches": 2, "examples": 20},
        {"epoch": 1, "step": 4, "at": 1, "batches": 1, "examples": 10},
        {"epoch": 1, "step": 6, "at": 3, "batches": 3, "examples": 30},
        {"epoch": 1, "step": 6, "at": 3, "batches": 3, "examples": 30},
    ]
    assert kept.exported == [1]


def test_a_checkpoint_is_due_after_minutes() -> None:
    """The minutes begin anew when one is written."""
    now = [0.0]
    due = SaveSchedule(Saving(every_minutes=1), lambda: now[0])
    now[0] = 59
    assert not due.after_step(1)
    now[0] = 60
    assert due.after_step(2)
    due.saved()
    assert not due.after_step(3)


def test_data_without_an_example_is_an_error() -> None:
    """An empty file trained nothing, in silence, with exit code 0."""
    with pytest.raises(UsageError, match="run 'test': there was nothing to train on"):
        train(
            run(),
            Counter(),
            Numbers(0),
            WorkerGroup(),
            report(),
            SaveSchedule(Saving(), lambda: 0),
            None,
        )


def test_a_loss_that_is_no_number_ends_the_run() -> None:
    """The message has the run, the batch and the epoch."""
    with pytest.raises(PaddockError, match="run 'test', batch 0 of epoch 0: loss is nan") as caught:
        train(
            run(),
            Counter(),
            Skewed(),
            WorkerGroup(),
            report(),
            SaveSchedule(Saving(), lambda: 0),
            None,
        )
    assert caught.value.exit_code == 1  # 125 would be a fault of Paddock.


def test_what_goes_wrong_in_a_batch_is_told_with_its_number() -> None:
    """The servers name the table; how it ends stays as it was."""

    class Refused(Counter):
        def train(self, batch: Any) -> Mapping[str, float]:
            raise PaddockError("table 'emb': nan", hint="h", exit_code=9, retryable=True)

    with pytest.raises(PaddockError, match="batch 0 of epoch 0: table 'emb': nan") as caught:
        train(
            run(),
            Refused(),
            Numbers(1),
            WorkerGroup(),
            report(),
            SaveSchedule(Saving(), lambda: 0),
            None,
        )
    assert (caught.value.exit_code, caught.value.retryable, caught.value.hint) == (9, True, "h")


def test_an_epoch_whose_end_was_told_is_not_told_again() -> None:
    """A checkpoint made there goes on there."""
    told, kept = report(), Kept()
    train(run(epochs=2), Counter(), Numbers(3), WorkerGroup(), told,
    SaveSchedule(Saving(), lambda: 0), kept,
          position={"epoch": 0, "step": 3, "at": 3})  # fmt: skip
    assert isinstance(told.out, io.StringIO)
    assert "epoch 0" not in told.out.getvalue()
    assert [one["epoch"] for one in kept.saved] == [1]


def test_a_checkpoint_waits_until_all_that_was_learned_is_with_the_servers() -> None:
    """In geo that is behind an exchange."""

    class Uneven(WorkerGroup):
        def is_even(self, position: dict[str, Any]) -> bool:
            return position["step"] % 3 == 0

    kept = Kept()
    saving = Saving(every_steps=2, last=False)
    train(run(), Counter(), Numbers(7), Uneven(), report(), SaveSchedule(saving, lambda: 0), kept)
    assert [one["step"] for one in kept.saved] == [3, 6]


class Skewed:
    """A batch whose loss is no number."""

    def open(self, epoch: int, position: Any) -> Iterator[SourceBatch]:
        yield SourceBatch(99, 10, 1)


def test_lines_come_every_interval_and_at_the_end_of_an_epoch() -> None:
    """Without a terminal each stays."""
    told = report()
    train(
        run(), Counter(), Numbers(3), WorkerGroup(), told, SaveSchedule(Saving(), lambda: 0), None
    )
    assert isinstance(told.out, io.StringIO)
    lines = told.out.getvalue().splitlines()
    assert [line.split(",")[1].strip() for line in lines] == ["batch 0", "batch 2", "loss 1.0000"]
    assert lines[-1].startswith("epoch 0 done, loss 1.0000, mean 1.0000, 30 examples")


def test_after_a_restart_lines_count_on_and_the_end_tells_the_whole_epoch() -> None:
    """Loss, metrics and the rate are since the restart, and the line says so."""
    kept, told = Kept(), report()
    train(run(), Counter(), Numbers(3), WorkerGroup(), report(),
    SaveSchedule(Saving(every_steps=1), lambda: 0),
          kept)  # fmt: skip
    clock = iter([0.0] * 3 + [1.0] * 20)
    told.now = lambda: next(clock)
    train(run(), Counter(), Numbers(5), WorkerGroup(), told,
    SaveSchedule(Saving(), lambda: 0), None,
          position=kept.saved[0])  # fmt: skip
    assert isinstance(told.out, io.StringIO)
    lines = told.out.getvalue().splitlines()
    assert [line.split(", loss")[0] for line in lines[:-1]] == [
        "epoch 0, batch 2", "epoch 0, batch 4",
    ]  # fmt: skip
    assert lines[-1] == (
        "epoch 0 done, 50 examples; since the restart loss 2.5000, mean 2.5000, 40 examples in "
        "1.0 s (40 examples/s)"
    )


def test_evaluation_is_over_all_batches_and_trains_none() -> None:
    """Its numbers begin at zero."""
    learner = Counter()
    assert evaluate(learner, Numbers(4), WorkerGroup(), report(), "x", 0) == {
        "loss": 1.5,
        "mean": 1.5,
    }
