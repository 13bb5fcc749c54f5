"""Workers die at every step and come again, in all strategies: the real loop, team and servers.

Each has its own share of the data, or what the dispatcher leases to it.

A batch adds one to a row of its own. Each life of a worker is a client of its own; where it dies
its connections close, as the kernel closes those of a process that is killed.
"""

from __future__ import annotations

import io
import random
import re
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from data.shared_world import DataFleet
from paddock import ps
from paddock.data.dispatch.batches import flat
from paddock.errors import UsageError
from paddock.ps.client.server_connection import ServerConnection
from paddock.ps.storage.checkpoint import list_checkpoints, open_checkpoint
from paddock.rec import loop
from paddock.rec.checkpoints import SaveSchedule
from paddock.rec.learner import ChunkSet, SourceBatch, WorkerRank
from paddock.rec.report import TrainingReport
from paddock.rec.resume import RunStart, resume_point
from paddock.rec.settings import ModelKind, Reading, Saving, StrategySpec, Task, TrainingRun
from paddock.rec.worker import ServerCheckpoints, source_of
from paddock.rec.worker_group import NEVER, PsWorkers
from ps.client.running import Fleet, fleet

EPOCHS = 3
SIZES = ((4, 2, 0), (1, 5, 3))  # batches of each epoch, of each worker
ASSIGNMENTS = ("blocks", "dynamic")
STRATEGIES = ("sync", "async", "half_async", "geo")
GEO_STEP = 2
OPEN_MOST = 2 * GEO_STEP  # records of a worker that are not noted yet
PLAIN = ps.OptimizerSpec("sgd", 1.0)
ZEROS = ps.InitialSpec("zeros")
DONE = re.compile(r"epoch (\d) done, (?:(\d+) examples; since the restart )?.*, (\d+) examples in")
TABLES = (ps.SparseSpec("rows", 1, PLAIN, ZEROS, merge="sum"),
          ps.DenseSpec("dense", 8, PLAIN, ZEROS, merge="sum"))  # fmt: skip


class DiedError(BaseException):
    """The worker's process is no more."""


@dataclass
class Counts:
    """How many examples were counted."""

    counts: np.ndarray = field(default_factory=lambda: np.zeros(1))

    def update(self, scores: Any, labels: Any) -> None:
        self.counts += len(scores)

    def state(self) -> Any:
        return self.counts

    def value(self, state: Any = None) -> float:
        return float((self.counts if state is None else state)[0])

    def clear(self) -> None:
        self.counts = np.zeros(1)


class Adding:
    """A learner whose parameters say how often each batch was trained."""

    def __init__(self, client: ps.Client) -> None:
        self.client = client
        self.metrics = {"examples": Counts()}
        for spec in TABLES:
            client.create(spec)
        client.pull_dense("dense")
        client.barrier("open")

    def source(self, reading: Reading, place: WorkerRank | None = None) -> Share:
        one = place or self.client.place
        return Share(one.worker if place else one.trainer, one.workers if place else one.trainers)

    def prefetch(self, batch: Any) -> None: ...
    def save(self, directory: str) -> None: ...
    def load(self, directory: str) -> None: ...
    def export(self, directory: str) -> None: ...

    def refresh(self) -> None: ...

    def train(self, batch: list[int]) -> Mapping[str, float]:
        self.client.pull("rows", batch)
        self.client.push("rows", batch, -np.ones((len(batch), 1)))
        self.client.push_dense("dense", np.full(8, -len(batch)))
        self.client.step()
        self.metrics["examples"].update(batch, batch)
        return {"loss": 1.0}

    evaluate = train


@dataclass
class Share:
    """A worker's batches, dealt one by one; of two workers those of epoch e and worker w have
    the numbers from 100 e + 10 w on.
    """

    worker: int
    workers: int = 2
    bad: ClassVar[int] = -1  # a record that nobody can read

    def open(self, epoch: int, position: Any) -> Iterator[SourceBatch]:
        if self.workers == 2:
            mine = [10 * self.worker + number for number in range(SIZES[self.worker][epoch])]
        else:
            both = enumerate(SIZES)
            every = [10 * worker + n for worker, sizes in both for n in range(sizes[epoch])]
            mine = every[self.worker :: self.workers]
        for number in range(position or 0, len(mine)):
            yield SourceBatch([100 * epoch + mine[number]], 1, number + 1)

    def chunk_set(self) -> ChunkSet:
        """Chunks of up to three of those numbers, batches of up to two."""

        def read(epoch: int, chunk: int, skip: int) -> Iterator[list[int]]:
            every = [number for number in every_batch() if number // 100 == epoch]
            for number in every[3 * chunk : 3 * chunk + 3][skip:]:
                if number == self.bad:
                    raise UsageError(f"part-{chunk}:{number}: no number")
                yield [number]

        return ChunkSet("d", 3, 2, str, read, lambda parts: (flat(parts), len(flat(parts))))


def every_batch() -> list[int]:
    """The numbers of all batches."""
    return [
        100 * epoch + 10 * worker + number
        for worker, sizes in enumerate(SIZES)
        for epoch, size in enumerate(sizes)
        for number in range(size)
    ]


class Mortal:
    """One life of a worker, that ends when it has sent `frames` frames or questions."""

    def __init__(self, client: ps.Client, frames: float) -> None:
        self.client, self.left = client, frames
        for peer in client.peers:
            self._weaken(peer)

    def _weaken(self, peer: ServerConnection) -> None:
        send, ask = peer.post, peer.ask

        def sent(*given: Any) -> Any:
            self._lose()
            return send(*given)

        def asked(*given: Any, **more: Any) -> Any:
            self._lose()
            return ask(*given, **more)

        peer.post, peer.ask = sent, asked  # type: ignore[method-assign]

    def _lose(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise DiedError

    def bury(self) -> None:
        """The kernel closes the connections; what was sent arrives."""
        for peer in self.client.peers:
            peer.end()


def run_of(strategy: str, assignment: str, **more: Any) -> TrainingRun:
    """A run of our learner."""
    return TrainingRun("test", Task.TRAIN, ModelKind.BUNDLED, ".", "model.py", epochs=EPOCHS,
               reading=Reading(("x",), 2, assignment=assignment),
               strategy=StrategySpec(strategy, GEO_STEP), **more)  # fmt: skip


def live(
    client: ps.Client, run: TrainingRun, out: io.StringIO, number: int = 0
) -> Mapping[str, float]:
    """What paddock.rec.worker does with a client. out: what it tells."""
    team = PsWorkers(client, run=number, geo_step=GEO_STEP)
    report = TrainingReport(out, 1, lambda: 0.0)
    start = RunStart(run, team, number, say=report.line)
    if not team.prepare(start.load):
        return {}
    learner = Adding(client)
    assert run.reading is not None
    source = source_of(run.reading, run, learner, team, report)
    position = team.start(lambda: start.choose(learner, source))
    keeper = ServerCheckpoints(run, learner, team) if team.worker == 0 else None
    due = SaveSchedule(run.saving, lambda: 0.0)
    numbers = loop.train(run, learner, source, team, report, due, keeper, position=position)
    team.finish()
    return numbers


class Job:
    """Workers as threads; each lives again until it has ended."""

    def __init__(
        self, servers: Fleet, strategy: str, saving: Saving, assignment: str = "blocks", *,
        resume: bool = False, workers: int = 2,
    ) -> None:  # fmt: skip
        self.servers, self.strategy, self.workers = servers, strategy, workers
        self.run = run_of(strategy, assignment, saving=saving, resume=resume)
        self.told = [io.StringIO() for _ in range(workers)]
        self.problems: list[BaseException] = []
        self.numbers: dict[int, Any] = {}
        self.deaths = 0

    def client(self, worker: int) -> ps.Client:
        return self.servers.client(
            strategy=self.strategy, trainer=worker, trainers=self.workers, geo_step=NEVER,
            timeout=20.0, geo_merge="sum",
        )  # fmt: skip

    def worker(self, worker: int, lives: list[float]) -> None:
        """One worker; lives: after how many frames each of its lives ends."""
        try:
            for frames in [*lives, float("inf")]:
                mortal = Mortal(self.client(worker), frames)
                try:
                    self.numbers[worker] = live(mortal.client, self.run, self.told[worker])
                    mortal.client.close()
                    return
                except DiedError:
                    self.deaths += 1
                    mortal.bury()
        except BaseException as error:  # noqa: BLE001  # Told by train().
            self.problems.append(error)

    def train(self, *lives: list[float]) -> None:
        """Until all have ended."""
        threads = [
            threading.Thread(target=self.worker, args=(worker, ends), daemon=True)
            for worker, ends in enumerate(lives)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(25.0)
        assert not self.problems, self.problems
        assert not any(thread.is_alive() for thread in threads), "somebody waits for ever"

    def trained(self, *, is_exact: bool = True) -> list[float]:
        """How often each batch was."""
        with self.client(0) as client:
            for spec in TABLES:
                client.create(spec)
            rows = client.pull("rows", every_batch())[:, 0].tolist()
            assert not is_exact or client.pull_dense("dense").tolist() == [sum(rows)] * 8
        return rows


@pytest.mark.parametrize("assignment", ASSIGNMENTS)
@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("seed", range(2))
def test_every_batch_is_trained_once_whoever_dies_when(
    assignment: str, strategy: str, seed: int
) -> None:
    """Uneven shares; an epoch in which one has nothing; both die three times, at any frame."""
    draw = random.Random(f"{strategy} {seed}")
    with fleet(2, "--num_gradient_servers=2", kind=DataFleet) as servers:
        job = Job(servers, strategy, Saving(), assignment)
        job.train(*([float(draw.randrange(40)) for _ in range(3)] for _ in range(2)))
        assert job.trained() == [1.0] * len(every_batch())
        assert job.deaths
    for epoch, before, examples in DONE.findall(job.told[0].getvalue()):
        assert int(before or examples) == sum(size[int(epoch)] for size in SIZES)


@pytest.mark.parametrize("assignment", ASSIGNMENTS)
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_job_goes_on_from_its_checkpoint_with_other_servers(
    assignment: str, strategy: str, tmp_path: Path
) -> None:
    """What was trained after the checkpoint is gone with the servers, and is trained again."""
    saving = Saving(str(tmp_path), every_steps=2, last=False)
    with fleet(2, "--num_gradient_servers=2", kind=DataFleet) as servers:
        job = Job(servers, strategy, saving, assignment)
        job.train([], [])
        whole = job.trained()
    count = 3 if strategy == "sync" else 2
    # Worker 0 saves; the other one may have been dealt nearly all.
    is_open = assignment == "dynamic" and strategy != "sync" and any(tmp_path.iterdir())
    with fleet(count, "--num_gradient_servers=2", kind=DataFleet) as servers:
        job = Job(servers, strategy, saving, assignment, resume=True)
        job.train([9.0, 15.0], [12.0])
        found = job.trained(is_exact=not is_open)
    assert (min(found), whole) == (1.0, [1.0] * len(every_batch()))
    # Leases that server 0 gave out while the others saved are not known any more.
    assert sum(found) <= len(whole) + (2 * OPEN_MOST if is_open else 0)
    assert is_open == ("trained twice, as strategy is" in job.told[0].getvalue())


@pytest.mark.parametrize(
    ("strategy", "workers"), [("sync", 1), ("sync", 3), ("async", 3), ("geo", 1)]
)
@pytest.mark.parametrize("assignment", ASSIGNMENTS)
def test_another_number_of_workers_takes_over_what_is_left(
    assignment: str, strategy: str, workers: int, tmp_path: Path
) -> None:
    """In the middle of an epoch, and they die on the way."""
    saving = Saving(str(tmp_path), every_steps=1, keep=20, last=False)
    with fleet(2, "--num_gradient_servers=2", kind=DataFleet) as servers:
        job = Job(servers, strategy, saving, assignment)
        job.train([], [])
    names = list_checkpoints(tmp_path)
    (tmp_path / "LATEST").write_text(names[0])
    cut = resume_point(open_checkpoint(tmp_path).positions)
    assert len(cut.ats) == 2 and cut.trained["examples"]
    words = f"--num_gradient_servers={workers}", "--trainer-timeout=0.5"
    with fleet(2, *words, kind=DataFleet) as servers:
        job = Job(servers, strategy, saving, assignment, resume=True, workers=workers)
        job.train(*[[14.0, 25.0]] * workers)
        found = job.trained(is_exact=strategy == "sync")
    if strategy == "sync":
        assert found == [1.0] * len(every_batch())
        told = DONE.findall(job.told[0].getvalue())
        assert [int(before or examples) for _, before, examples in told] == [5, 7, 3]
    # Else what was open when the checkpoint was made may be trained again, in part.
    assert min(found) == 1.0
    assert sum(found) <= len(found) + 2 * OPEN_MOST


@pytest.mark.parametrize("strategy", ["sync", "async"])
def test_a_chunk_that_nobody_can_read_is_set_aside_and_told(
    strategy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is before the bad record is trained once; the last line counts such chunks."""
    bad = 111  # the fourth of epoch 1: the first one of chunk 1
    monkeypatch.setattr(Share, "bad", bad)
    with fleet(2, "--num_gradient_servers=2", kind=DataFleet) as servers:
        job = Job(servers, strategy, Saving(), "dynamic")
        job.train([], [])
        found = dict(zip(every_batch(), job.trained(), strict=True))
    lost = [number for number, count in found.items() if count != 1.0]
    assert lost == [bad, bad + 1, bad + 2]
    told = job.told[0].getvalue()
    assert "epoch 1: 1 is set aside from record 0 on: part-1:111: no number" in told
    assert "1 chunks of data were set aside, and not trained to their end" in told
