"""Passes are waited for on a made-up clock, trained once each, and saved as bases and deltas."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from paddock import ps
from paddock.errors import EXIT_DEADLINE, PaddockError
from paddock.ps.storage.checkpoint import list_checkpoints, open_checkpoint
from paddock.rec import loop
from paddock.rec.checkpoints import SaveSchedule, ServerCheckpoints
from paddock.rec.learner import SourceBatch
from paddock.rec.online import Online
from paddock.rec.report import TrainingReport
from paddock.rec.resume import RunStart
from paddock.rec.settings import ModelKind, Reading, Saving, StrategySpec, Task, TrainingRun
from paddock.rec.sources import PassSource
from paddock.rec.worker_group import NEVER, PsWorkers
from ps.client.running import fleet

ONLINE = Online((date(2019, 10, 1), date(2019, 10, 2)), 480, 1, done_file="DONE")
FORGETS = ps.AccessorSpec(statistics=True, decay=0.5, delete_score=0.3)


class Clock:
    """Seconds that pass only in sleep, which is when data comes."""

    def __init__(self, comes: dict[float, Path]) -> None:
        self.seconds, self.comes = 0.0, comes

    def now(self) -> float:
        return self.seconds

    def sleep(self, seconds: float) -> None:
        self.seconds += seconds
        for at in [at for at in self.comes if at <= self.seconds]:
            put(self.comes.pop(at))


def put(directory: Path, *, is_done: bool = True) -> None:
    """A split with one file."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "part-0").write_text("x")
    if is_done:
        (directory / "DONE").write_text("")


@dataclass
class Files:
    """Each file is a batch."""

    reading: Reading

    def open(self, epoch: int, position: Any) -> Iterator[SourceBatch]:
        for number in range(position or 0, len(self.reading.paths)):
            yield SourceBatch(self.reading.paths[number], 1, number + 1)


@dataclass
class Watching:
    """A learner that remembers; with servers each batch is a push."""

    client: ps.Client | None = None
    metrics: dict[str, Any] = field(default_factory=dict)
    seen: list[str] = field(default_factory=list)

    def prefetch(self, batch: Any) -> None: ...
    def refresh(self) -> None: ...
    def save(self, directory: str) -> None: ...
    def load(self, directory: str) -> None: ...
    def export(self, directory: str) -> None: ...

    def train(self, batch: str) -> Mapping[str, float]:
        self.seen.append("/".join(Path(batch).parts[-3:-1]))
        if self.client is not None:
            key, one = [len(self.seen)], [1.0]
            self.client.push("rows", key, [[1.0]], shows=one, clicks=[0.0])
            self.client.step()
        return {"loss": 1.0}

    evaluate = train


def passes(root: Path, clock: Clock, told: list[str], online: Online = ONLINE) -> PassSource:
    """The passes of a root."""
    reading = Reading((str(root),), 1)
    return PassSource(online, reading, Files, clock.now, clock.sleep, told.append)


def test_a_pass_is_waited_for_and_read_when_it_is_done(tmp_path: Path) -> None:
    """A line says for what; files that lie there unfinished are not read; nor is the mark."""
    told: list[str] = []
    late = tmp_path / "20191001" / "08"
    put(late, is_done=False)
    clock = Clock({90.0: late})
    source = passes(tmp_path, clock, told)
    items = [item.batch for item in source.open(ONLINE.numbers[1], None)]
    assert items == [str(late / "part-0")]
    assert clock.seconds == 90.0
    assert told == [f"pass 20191001/08 waits for {late / 'DONE'}"]
    assert list(source.open(ONLINE.numbers[1], 1)) == [], "its end is its end"
    assert list(source.open(7, None)) == [], "a day that is not planned"


def test_what_does_not_come_ends_the_run_at_the_deadline(tmp_path: Path) -> None:
    """With the pass, the file and the limit; the exit code is that of a deadline."""
    online = Online(ONLINE.days, 480, wait_seconds_max=100.0)
    source = passes(tmp_path, Clock({}), [], online)
    with pytest.raises(
        PaddockError, match=r"pass 20191001/00: .*20191001/00.*within 100 s"
    ) as told:
        list(source.open(online.numbers[0], None))
    assert told.value.exit_code == EXIT_DEADLINE


def life(endpoints: Any, root: Path, saving: Saving, count: int) -> list[str]:
    """A worker's life that ends when so many passes are done; the passes that it trained."""
    with endpoints.client(strategy="async", trainers=1, geo_step=NEVER) as client:
        run = TrainingRun("o", Task.TRAIN, ModelKind.BUNDLED, ".", "x", saving=saving, resume=True,
                  epochs=ONLINE.numbers[count - 1] + 1, strategy=StrategySpec("async"))  # fmt: skip
        team = PsWorkers(client)
        start = RunStart(run, team)
        team.prepare(start.load)
        client.create(ps.SparseSpec("rows", 1, ps.OptimizerSpec("sgd"), accessor=FORGETS))
        learner = Watching(client)
        source = passes(root, Clock({}), [])
        position = team.start(lambda: start.choose(learner, source))
        first = {"epoch": ONLINE.numbers[0], "step": 0, "at": None}
        keeper = ServerCheckpoints(run, learner, team, ONLINE)
        report = TrainingReport(io.StringIO(), 1, lambda: 0.0)
        due = SaveSchedule(saving, lambda: 0.0, ONLINE)
        loop.train(run, learner, source, team, report, due, keeper, position=position or first)
    return learner.seen


def test_each_pass_is_trained_once_over_restarts_and_new_servers(tmp_path: Path) -> None:
    """Deltas behind passes, a base at the end of a day, from which those that follow build."""
    root, saved = tmp_path / "data", tmp_path / "saved"
    names = [ONLINE.name(number) for number in ONLINE.numbers]
    for name in names:
        put(root / name)
    saving = Saving(str(saved), keep=10)
    with fleet(2) as servers:
        assert life(servers, root, saving, 2) == names[:2]
    with fleet(3) as servers:  # Nothing is left of the first ones but the checkpoint.
        assert life(servers, root, saving, 3) == names[2:3]
    with fleet(1) as servers:
        assert life(servers, root, saving, 6) == names[3:]
    lines = [json.loads(line) for line in (saved / "passes.jsonl").read_text().splitlines()]
    assert [line["pass"] for line in lines] == names
    assert [line["mode"] for line in lines] == ["full", "delta", "full", "delta", "delta", "full"]
    assert sorted(line["checkpoint"] for line in lines) == list_checkpoints(saved)
    delta = open_checkpoint(saved, name=lines[4]["checkpoint"])
    assert [base.name for base in delta.bases()] == [lines[3]["checkpoint"], lines[2]["checkpoint"]]
    keys = np.concatenate([
        open_checkpoint(saved).keys("rows", shard) for shard in range(64)
    ])  # fmt: skip
    assert len(keys) < 6, "rows that were seldom shown were given up at the end of a day"
