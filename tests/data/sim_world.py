"""A made-up job: the real dispatcher service and the real feeds, on a made-up network and disk.

Workers are threads of which one runs at a time; at each point where a process may die (`Sim.point`)
the seed says who goes on, and who dies. Nothing waits and no clock is read: a seed is a story.

Servers count what each record was trained. In sync a worker's step is atomic, with its position, as
the parameter server has it; else each server gets each frame apart, numbered by the real Progress,
and kept by the real TrainerOffsets.
"""

from __future__ import annotations

import copy
import json
import random
import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from paddock.data.dispatch.batches import LeasedBatch, LeasedBatches, flat, records_by_lease
from paddock.data.dispatch.messages import (
    Event,
    PassPlan,
    Poll,
    ProgressReport,
    RegisterWorker,
    ReleaseChunks,
    Reply,
)
from paddock.data.dispatch.service import DispatcherService, question_of, reply_from
from paddock.ps.wire.offsets import OffsetMark, OffsetProgress, TrainerOffsets

SERVERS = 2
TURNS_MAX = 30_000


class DiedError(Exception):
    """This process is no more."""


class OverError(Exception):
    """The world has ended, by a failure elsewhere."""


@dataclass
class Disk:
    """What outlives processes: the servers' logs."""

    notes: dict[str, Any] = field(default_factory=dict)
    lsn: int = 0
    lives: dict[int, int] = field(default_factory=dict)
    counts: list[Counter[int]] = field(default_factory=lambda: [Counter() for _ in range(SERVERS)])
    positions: list[TrainerOffsets] = field(
        default_factory=lambda: [TrainerOffsets() for _ in range(SERVERS)]
    )
    steps: Counter[int] = field(default_factory=Counter)


class Sim:
    """A world of one seed. deaths: how many workers may die. gone: workers that stay away.

    die_at: worker 0 dies at exactly this point of its own. ahead: batches that programs read ahead.
    """

    def __init__(
        self,
        seed: int,
        *,
        strategy: str = "sync",
        workers: int = 3,
        chunks: Sequence[int] = (7, 3, 0, 12, 5, 1, 9),
        batch_size: int = 4,
        passes: int = 2,
        deaths: int = 4,
        gone: Sequence[int] = (),
        die_at: int | None = None,
        bad: Sequence[int] = (),
        ahead: int = 0,
    ) -> None:
        self.draw = random.Random(seed)
        self.strategy = strategy
        self.workers = workers
        self.batch_size = batch_size
        self.deaths = deaths
        self.gone = set(gone)
        self.die_at = die_at
        self.bad = frozenset(bad)
        self.ahead = ahead
        firsts = [sum(chunks[:i]) for i in range(len(chunks))]
        self.chunks = [range(f, f + n) for f, n in zip(firsts, chunks, strict=True)]
        self.plan = PassPlan("d", len(chunks), passes, seed)
        self.disk = Disk()
        self.dispatcher = DispatcherService()
        self.away: set[int] = set()
        self.told: list[str] = []
        self.turns = 0
        self._points: Counter[int] = Counter()
        self._now = -1
        self._changed = threading.Condition()
        self._alive: set[int] = set()
        self._error: BaseException | None = None

    # ------------------------------------------------------------------------------- one at a time

    def point(self, worker: int) -> None:
        """A moment at which this worker may die, and others go on."""
        self.turns += 1
        if self.turns > TURNS_MAX:
            raise AssertionError("the world does not end: somebody waits for ever")
        self._points[worker] += 1
        if self.die_at is not None:
            if worker == 0 and self._points[0] == self.die_at:
                raise DiedError
        elif self.deaths and self.draw.random() < 0.02:
            self.deaths -= 1
            raise DiedError
        self.hand_on(worker)

    def hand_on(self, worker: int) -> None:
        """Let one of those who live go on; returns when it is this one's turn."""
        with self._changed:
            self._now = self.draw.choice(sorted(self._alive)) if self._alive else -1
            self._changed.notify_all()
            self._wait_for(worker)

    def _wait_for(self, worker: int) -> None:
        while self._now != worker:
            if self._error is not None:
                raise OverError
            self._changed.wait(20)

    def run(self) -> None:
        """Have all workers train all passes, over their deaths."""
        self._alive = set(range(self.workers))
        threads = [
            threading.Thread(target=self._live, args=(w,), daemon=True) for w in range(self.workers)
        ]
        for thread in threads:
            thread.start()
        with self._changed:
            self._now = 0
            self._changed.notify_all()
        for thread in threads:
            thread.join(30)
            assert not thread.is_alive(), "the world stands still"
        if self._error is not None:
            raise self._error

    def _live(self, worker: int) -> None:
        """The lives of a worker, one after the other."""
        try:
            with self._changed:
                self._wait_for(worker)
            while True:
                try:
                    self.script(worker)
                    break
                except DiedError:
                    if worker in self.gone:
                        self.away.add(worker)
                        break
                    self._points[worker] = -(10**9) if self.die_at is not None else 0
        except OverError:
            return
        except BaseException as error:  # noqa: BLE001  # raised in `run`
            self._error = error
        finally:
            with self._changed:
                self._alive.discard(worker)
                self._now = self.draw.choice(sorted(self._alive)) if self._alive else -1
                self._changed.notify_all()

    # ---------------------------------------------------------------------------------- a worker

    def script(self, worker: int) -> None:
        """What a user's program does."""
        port = SimPort(self, worker)
        feed = LeasedBatches(port, self.plan, self.read, self.batch_size, make=self.parse)
        feed.begin()
        while not feed.is_ended:
            given: list[LeasedBatch] = []  # not used yet
            for item in feed.items():
                given += [item] if item is not None else []
                while len(given) > (0 if item is None else self.ahead):
                    self.use(port, feed, given.pop(0))
            for item in given:
                self.use(port, feed, item)
        feed.leave()

    def use(self, port: SimPort, feed: LeasedBatches, item: LeasedBatch) -> None:
        """Train a batch."""
        port.train(item.batch)
        feed.use(item)
        port.step()

    def read(self, chunk: int, skip: int) -> Iterator[Sequence[int]]:
        """Records in lists of at most 5."""
        records = self.chunks[chunk][skip:]
        for at in range(0, len(records), 5):
            yield list(records[at : at + 5])

    def parse(self, parts: list[Sequence[int]]) -> list[int]:
        """Some records cannot be parsed."""
        records = flat(parts)
        for record in records:
            if record in self.bad:
                raise ValueError(f"record {record}")
        return records

    # ------------------------------------------------------------------------------- the servers

    def look(self) -> dict[str, Any]:
        """The dispatcher's report."""
        return self.dispatcher.answer(None, {"stream": "train"}, SimDesk(self))

    def call(self, worker: int, incarnation: int, question: dict[str, Any]) -> dict[str, Any]:
        """Ask the dispatcher, until an answer comes: it may die before and behind its write."""
        while True:
            self.point(worker)
            asked = json.loads(json.dumps({**question, "stream": "train"}))
            try:
                answer = self.dispatcher.answer((worker, incarnation), asked, SimDesk(self))
            except ServerDiedError:
                continue
            if self.draw.random() < 0.1:
                continue  # The answer is lost.
            found: dict[str, Any] = json.loads(json.dumps(answer))
            return found


class ServerDiedError(Exception):
    """The server is started again, from its log."""


class SimDesk:
    """The desk of server 0."""

    def __init__(self, sim: Sim) -> None:
        self._sim = sim

    @property
    def notes(self) -> Mapping[str, Any]:
        return copy.deepcopy(self._sim.disk.notes)

    @property
    def serial(self) -> int:
        return self._sim.disk.lsn

    @property
    def past(self) -> str:
        return ""

    def keep(self, changes: Mapping[str, Any]) -> None:
        dies = self._sim.draw.random() < 0.1
        is_written = self._sim.draw.random() < 0.5
        if dies and not is_written:
            raise ServerDiedError
        self._sim.disk.lsn += 1
        self._sim.disk.notes.update(json.loads(json.dumps(changes)))
        for key in [key for key, value in self._sim.disk.notes.items() if value is None]:
            del self._sim.disk.notes[key]
        if dies:
            raise ServerDiedError

    def is_gone(self, trainer: int) -> bool:
        return trainer in self._sim.away

    def say(self, line: str) -> None:
        self._sim.told.append(line)


class SimPort:
    """A worker's life: its link to the servers."""

    def __init__(self, sim: Sim, worker: int) -> None:
        self._sim = sim
        self.worker = worker
        self.incarnation = sim.disk.lives[worker] = sim.disk.lives.get(worker, 0) + 1
        self._progress = OffsetProgress(SERVERS)
        self._open: list[int] = []  # of the step of sync
        self._position: dict[str, Any] | None = None
        self._is_committed = True

    def _point(self) -> None:
        self._sim.point(self.worker)

    def _marks(self, worker: int) -> list[OffsetMark]:
        return [positions.mark(worker) for positions in self._sim.disk.positions]

    def seen(self) -> dict[int, int]:
        return {n: least for n, (least, _) in self.seen_of(self.worker).items()}

    def seen_of(self, worker: int) -> dict[int, tuple[int, int]]:
        self._point()
        marks = sorted(self._marks(worker), key=lambda mark: mark.number)
        if self._sim.strategy == "sync":
            marks = [OffsetMark(0, self._sim.disk.positions[0].at(worker))] * 2
        least, most = records_by_lease(marks[0].position), records_by_lease(marks[-1].position)
        return {n: (least.get(n, 0), most.get(n, 0)) for n in least.keys() | most.keys()}

    def resume(self, *, exactly: bool) -> None:
        self._progress.begin(self._marks(self.worker), again=exactly)

    def ask(self, event: Event) -> Reply:
        assert isinstance(event, RegisterWorker | Poll | ReleaseChunks | ProgressReport)
        return reply_from(self._sim.call(self.worker, self.incarnation, question_of(event)))

    def train(self, records: list[int]) -> None:
        """Push the gradients of a batch."""
        if self._sim.strategy == "sync":
            self._open += records
            return
        for server in range(SERVERS):
            self._point()
            number = self._progress.next_frame(server)
            if number is not None:
                self._sim.disk.counts[server].update(records)
                self._sim.disk.positions[server].count(self.worker, number)

    def commit_offset(self, position: dict[str, Any]) -> None:
        if self._sim.strategy == "sync":
            self._position, self._is_committed = position, False
            return
        for server in self._progress.note(position):
            self._point()
            kept = json.loads(json.dumps(position))
            self._sim.disk.positions[server].note(self.worker, self._progress.number, kept)

    def step(self) -> None:
        """The end of a batch; in sync the step is committed, or it is not."""
        self._point()
        if self._sim.strategy != "sync":
            return
        disk = self._sim.disk
        for counter in disk.counts:
            counter.update(self._open)
        self._open = []
        if self._position is not None:
            disk.steps[self.worker] += 1
            kept = json.loads(json.dumps(self._position))
            disk.positions[0].note(self.worker, disk.steps[self.worker], kept)
        self._is_committed = True
        self._point()

    def keep(self, *, wanted: bool) -> bool:
        return self._is_committed if self._sim.strategy == "sync" else wanted

    def idle(self, turn: int) -> None:
        self.step()
