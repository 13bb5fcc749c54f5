"""Workers that train copies of a model: one mean for all, uneven shares, checkpoints of all."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from paddock import ps
from paddock.errors import PaddockError, UsageError
from paddock.rec import checkpoints
from paddock.rec.data_parallel import DataParallelTables, DataParallelWorkers
from paddock.rec.learner import SourceBatch, WorkerRank
from paddock.rec.resume import RunStart
from paddock.rec.settings import ModelKind, Saving, Task, TrainingRun
from paddock.rec.sources import ReshardedSource
from paddock.rec.worker_group import WorkerGroup, WorkerOffset, beginning

LIMIT_SECONDS = 20.0


class Threads:
    """A Group of threads."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.barrier = threading.Barrier(size, timeout=LIMIT_SECONDS)
        self.parts: list[Any] = [None] * size

    def of(self, rank: int) -> Any:
        """That of one thread."""
        calls = {"add": self._adder(rank), "gather": self._gatherer(rank)}
        return type("One", (), {"rank": rank, "size": self.size, **calls})

    def _gatherer(self, rank: int) -> Callable[[object], list[Any]]:
        def gather(thing: object) -> list[Any]:
            self.parts[rank] = thing
            self.barrier.wait()
            found = list(self.parts)
            self.barrier.wait()
            return found

        return gather

    def _adder(self, rank: int) -> Callable[[np.ndarray], None]:
        def add(numbers: np.ndarray) -> None:
            self.parts[rank] = numbers.copy()
            self.barrier.wait()
            numbers[...] = sum(self.parts)
            self.barrier.wait()

        return add


def together(size: int, work: Callable[[DataParallelWorkers], Any]) -> list[Any]:
    """What each worker's work gives."""
    group = Threads(size)

    def run(rank: int) -> Any:
        try:
            return work(DataParallelWorkers(DataParallelTables(group.of(rank))))
        except BaseException:
            group.barrier.abort()
            raise

    with ThreadPoolExecutor(size) as pool:
        running = [pool.submit(run, rank) for rank in range(size)]
        errors = [one.exception() for one in running]
        for error in errors:
            if error is not None and not isinstance(error, threading.BrokenBarrierError):
                raise error
        return [one.result() for one in running]


def table(copies: DataParallelWorkers, parts: tuple[int, ...] = ()) -> None:
    """Four numbers that sgd with rate 1 updates."""
    copies.tables.create(ps.DenseSpec("dense", 4, ps.OptimizerSpec("sgd", 1.0), parts=parts))


def train(copies: DataParallelWorkers, epoch: int, count: int) -> list[dict[str, WorkerOffset]]:
    """So many batches, each with a gradient of ones; what the first worker saves from the second
    batch on."""
    here = beginning(epoch, 0)
    saved: list[dict[str, WorkerOffset]] = []
    for number in range(count):
        done = number + 1
        here = {**here, "step": done, "at": done, "batches": done, "examples": 10 * done}
        copies.tables.push_dense("dense", np.ones(4, np.float32))
        copies.tables.step()
        copies.after_step(here)
        if copies.worker == 0 and number and copies.is_even(here):
            saved.append(copies.positions(here))
    copies.end_epoch(here)
    return saved


def test_a_batch_is_the_mean_of_all_workers_gradients() -> None:
    """1 and 3 are 2, for each of the copies."""

    def work(copies: DataParallelWorkers) -> list[float]:
        table(copies)
        grads = np.full(4, 1.0 + 2 * copies.worker, np.float32)
        copies.tables.push_dense("dense", grads)
        copies.tables.step()
        return copies.tables.pull_dense("dense").tolist()

    assert together(2, work) == [[-2.0] * 4] * 2


def test_who_has_fewer_batches_waits_for_nobody() -> None:
    """3 batches, 1 and none: all have made 3 steps, and the means divide by all."""

    def work(copies: DataParallelWorkers) -> tuple[int, list[float]]:
        table(copies)
        for epoch in range(2):
            train(copies, epoch, (3, 1, 0)[copies.worker])
        return copies.tables.steps, copies.tables.pull_dense("dense").tolist()

    found = together(3, work)
    assert [steps for steps, _ in found] == [6, 6, 6]
    for _, values in found:
        assert values == pytest.approx([-2 * (2 + 1 + 1) / 3] * 4)


def test_a_part_is_left_alone_only_where_nobody_used_it() -> None:
    """The optimizer of a part that one worker used moves it for all."""

    def work(copies: DataParallelWorkers) -> list[float]:
        table(copies, (1, 1, 2))
        used = [True, copies.worker == 1, False]
        copies.tables.push_dense("dense", np.full(4, 2.0 * copies.worker, np.float32), used=used)
        copies.tables.step()
        return copies.tables.pull_dense("dense").tolist()

    assert together(2, work) == [[-1.0, -1.0, 0.0, 0.0]] * 2


def test_counts_are_added_up_and_meetings_are_of_all() -> None:
    """Metrics are over the examples of all workers."""

    def work(copies: DataParallelWorkers) -> list[float]:
        copies.meet("judged", 0)
        return copies.total("test", 0, np.array([1.0, copies.worker])).tolist()

    assert together(3, work) == [[3.0, 3.0]] * 3


class Loads:
    """A learner that loads anything."""

    metrics: ClassVar[dict[str, Any]] = {}

    def load(self, directory: str) -> None:
        """It does."""


def run_of(directory: Path) -> TrainingRun:
    """A training that goes on in a directory."""
    saving = Saving(str(directory))
    return TrainingRun("t", Task.TRAIN, ModelKind.BUNDLED, ".", "x", saving=saving, resume=True)


class Share:
    """Batches 100 * worker + 0, 1, 2 ... of 4."""

    def __init__(self, place: WorkerRank) -> None:
        self.first = 100 * place.worker

    def open(self, epoch: int, position: Any) -> Iterator[SourceBatch]:
        for number in range(position or 0, 4):
            yield SourceBatch(self.first + number, 1, number + 1)


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_a_checkpoint_goes_on_where_all_were_with_any_number_of_workers(
    workers: int, tmp_path: Path
) -> None:
    """The first worker asks, at its next batch all say where they are: nothing is read twice."""

    def begin(copies: DataParallelWorkers) -> list[WorkerOffset]:
        table(copies)
        return train(copies, 0, 3 - copies.worker)

    saved = together(2, begin)[0]
    assert [(saved[0][str(w)]["at"], saved[0][str(w)]["workers"]) for w in range(2)] == [
        (3, 2), (2, 2),
    ]  # fmt: skip
    checkpoints.write(
        str(tmp_path),
        "step-3",
        1,
        lambda aside: checkpoints.write_state(aside, {"positions": saved[0]}),
    )

    def go_on(team: WorkerGroup) -> tuple[list[int], int, int]:
        source = ReshardedSource(Share, WorkerRank(team.worker, team.workers))
        start = RunStart(run_of(tmp_path), team)
        position = start.choose(Loads(), source)
        assert position is not None
        left = [item.batch for item in source.open(0, position["at"])]
        return left, position["batches"], position["examples"]

    found = together(workers, go_on) if workers > 1 else [go_on(WorkerGroup())]
    assert sorted(one for left, *_ in found for one in left) == [3, 102, 103]
    assert [sum(counts) for counts in list(zip(*found, strict=True))[1:]] == [5, 50]


def test_copies_that_do_not_begin_alike_are_refused() -> None:
    """A host with another checkpoint would train another model, and nobody would see it."""

    def work(copies: DataParallelWorkers) -> None:
        table(copies)
        copies.tables.set_dense("dense", np.full(4, float(copies.worker), np.float32))
        copies.start(lambda: None)

    with pytest.raises(PaddockError, match="2 workers do not begin with the same model"):
        together(2, work)


def test_rows_by_id_are_refused_without_servers() -> None:
    """Each worker would have its own; the hint says what can."""
    copied = DataParallelTables(Threads(2).of(0))
    with pytest.raises(UsageError, match="2 workers, no servers, and table 'rows'") as caught:
        copied.create(ps.SparseSpec("rows", 3))
    assert "server_num: 1" in caught.value.hint


def test_a_copy_is_saved_as_a_model_alone_is(tmp_path: Path) -> None:
    """So one worker can go on with it, and servers can."""

    def work(copies: DataParallelWorkers) -> str:
        table(copies)
        train(copies, 0, 2)
        if copies.worker == 0:
            copies.tables.save(tmp_path)
        return copies.tables.digest()["dense"]

    first, second = together(2, work)
    assert first == second
    other = DataParallelTables(Threads(1).of(0))
    other.create(ps.DenseSpec("dense", 4, ps.OptimizerSpec("sgd", 1.0)))
    other.load(tmp_path)
    assert other.digest()["dense"] == first
    assert other.steps == 2
