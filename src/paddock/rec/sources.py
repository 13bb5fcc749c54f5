"""Sources of batches beyond a worker's own files: lost workers' shares, leased chunks, passes.

**Resharding.** What one worker has left goes as a whole to one of the new ones, which reads it as
that one would have: so each example is read once, whatever the reader's position means and however
it shuffles. More workers than before have nothing to do until the epoch ends; then all is dealt
anew.

**Leased chunks** (`assignment: dynamic`) go to whichever worker is free. The dispatcher is with
server 0 (`paddock.data.dispatch`), and where a worker is belongs to the worker group's position of
each step: so what is leased, what is trained and the tables are of one moment.

**Passes** of an online run are epochs of the training loop: each is waited for, then read.

Manifests beside the data tell how many examples there are, and the best that a model can do.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from paddock import ps
from paddock.data.chunks import GENERATED
from paddock.data.dispatch.batches import LeasedBatches
from paddock.data.dispatch.clients import SharedDispatcher
from paddock.data.dispatch.messages import PassPlan
from paddock.data.dispatch.service import SERVICE
from paddock.data.files import find_files
from paddock.data.generate.write import generated
from paddock.data.manifest import Manifest, read_manifest
from paddock.errors import EXIT_DEADLINE, PaddockError, UsageError
from paddock.rec.learner import FLUSH, ChunkSet, Learner, Source, SourceBatch, WorkerRank
from paddock.rec.online import Online
from paddock.rec.settings import Reading, TrainingRun
from paddock.rec.worker_group import PsWorkers

LEFT = "left"  # [[worker, workers, position], ...]: a position of what was taken over


def reshard(positions: Sequence[Any], worker: int, workers: int) -> dict[str, list[list[Any]]]:
    """The shares that this worker takes over.

    positions: of the workers before, in order; None: a whole share.

    >>> reshard([{"chunk": 4}, None, {"chunk": 2}], 0, 2)
    {'left': [[0, 3, {'chunk': 4}], [2, 3, {'chunk': 2}]]}
    >>> reshard([{"left": [[0, 3, 7], [2, 3, None]]}, {"left": []}], 1, 3)
    {'left': [[2, 3, None]]}
    """
    left: list[list[Any]] = []
    for number, at in enumerate(positions):
        if isinstance(at, dict) and LEFT in at:
            left += at[LEFT]
        else:
            left.append([number, len(positions), at])
    return {LEFT: left[worker::workers]}


@dataclass(frozen=True)
class ReshardedSource:
    """A worker's Source that also goes on where reshard() says. share: that of any worker."""

    share: Callable[[WorkerRank], Source]
    place: WorkerRank

    def open(self, epoch: int, position: object | None) -> Iterator[SourceBatch]:
        if not isinstance(position, dict) or LEFT not in position:
            yield from self.share(self.place).open(epoch, position)
            return
        left: list[list[Any]] = position[LEFT]
        for number, (worker, workers, at) in enumerate(left):
            source = self.share(replace(self.place, worker=worker, workers=workers))
            for item in source.open(epoch, at):
                rest = [[worker, workers, item.position], *left[number + 1 :]]
                yield replace(item, position={LEFT: rest})


def stream_name(run: int) -> str:
    """The dispatcher's name of the data of a run. run: which of the recipe's, from 0."""
    return f"rec.{run}"


def forget(client: ps.Client, run: int) -> None:
    """Nothing of the data was read: what a checkpoint knows of them is another run's."""
    client.call(SERVICE, {"do": "forget", "stream": stream_name(run)})


class LeasePort(SharedDispatcher):
    """The way to the dispatcher. Positions are the worker group's to note, with the step."""

    def __init__(self, group: PsWorkers) -> None:
        super().__init__(group.client, stream_name(group.run))
        self.group = group
        self.is_stale = False  # others may have learned since this worker's last batch

    def _offsets(self, trainer: int | None) -> tuple[Any, Any]:
        least, most = (
            found["at"] if found is not None and found.get("run") == self.group.run else None
            for found in super()._offsets(trainer)
        )
        return least, most

    def resume(self, *, exactly: bool) -> None:
        """The group has asked for the position; where other batches follow nothing is left out."""
        if not exactly:
            self.group.client.resume_offset(replays=False)

    def commit_offset(self, position: dict[str, Any]) -> None:
        """The worker group has noted it."""

    def keep(self, *, wanted: bool) -> bool:
        return self.group.keep(wanted=wanted)

    def idle(self, turn: int) -> None:
        """In sync an empty step."""
        self.is_stale = True
        super().idle(turn)


class LeasedSource:
    """A Source of what is leased to this worker. say: takes a line for the user."""

    def __init__(
        self,
        run: TrainingRun,
        lot: ChunkSet,
        group: PsWorkers,
        learner: Learner,
        say: Callable[[str], None],
    ) -> None:
        assert run.reading is not None
        seed = run.seed if run.reading.shuffle else None
        self._group, self._lot, self._learner, self._say = group, lot, learner, say
        self._epoch = 0
        self._told = 0
        self._port = LeasePort(group)
        self._feed = LeasedBatches(
            self._port,
            PassPlan(lot.digest, lot.chunks, run.epochs, seed, aside=run.reading.aside_max),
            lambda chunk, skip: lot.read(self._epoch, chunk, skip),
            lot.size,
            make=lot.make,
            name=lot.name,
        )

    def open(self, epoch: int, position: object | None) -> Iterator[SourceBatch]:
        """See Source; where this worker is the servers know."""
        self._epoch, feed = epoch, self._feed
        feed.begin()
        if feed.pass_ < epoch:
            raise PaddockError(
                f"epoch {epoch} begins, and the servers are still giving out epoch {feed.pass_}",
                hint="resume from a checkpoint of this run, or begin afresh",
            )
        if feed.pass_ == epoch and not feed.is_ended:  # Else it was read before.
            for item in feed.items():
                if item is None:
                    yield FLUSH
                    continue
                if self._port.is_stale:
                    self._learner.refresh()
                    self._port.is_stale = False
                used = lambda item=item: feed.use(item)  # noqa: E731
                batch, size = item.batch
                yield SourceBatch(batch, size, item.offset, used)
        if self._group.worker == 0:
            self._tell()

    def _tell(self) -> None:
        """Name what could not be read in the epoch that has ended."""
        found = self._port.progress()
        aside = found.get("aside", [])
        for one in aside[self._told :]:
            name, start, reason = self._lot.name(one["chunk"]), one["start"], one["reason"]
            self._say(f"epoch {one['pass_']}: {name} is set aside from record {start} on: {reason}")
        self._told = len(aside)
        if not self._feed.is_ended:
            return
        if aside:
            self._say(f"{len(aside)} chunks of data were set aside, and not trained to their end")
        if found["again"]:
            self._say(f"{found['again']} records may have been trained twice: a worker was lost")


@dataclass(frozen=True)
class PassSource:
    """A Source. read: opens the files of one pass. now: seconds of a clock that never goes back;
    sleep: until the next look. say: takes a line for the user.
    """

    online: Online
    reading: Reading
    read: Callable[[Reading], Source]
    now: Callable[[], float]
    sleep: Callable[[float], None]
    say: Callable[[str], None]

    def open(self, epoch: int, position: object | None) -> Iterator[SourceBatch]:
        """Wait for the pass of this number, and read it; nothing for one that is not planned."""
        if epoch not in self.online.numbers:
            return
        places = [d for root in self.reading.paths for d in self.online.directories(root, epoch)]
        files = [path for place in places for path in self._wait(epoch, place)]
        if files:
            inner = self.read(replace(self.reading, paths=tuple(files)))
            yield from inner.open(epoch, position)

    def _wait(self, epoch: int, directory: str) -> list[str]:
        """The files of a directory, once it is complete. Raises PaddockError at the deadline."""
        began, has_said = self.now(), False
        while (found := ready(directory, self.online.done_file)) is None:
            limit = self.online.wait_seconds_max
            wanted = posixpath.join(directory, self.online.done_file)
            if self.now() - began >= limit:
                raise PaddockError(
                    f"pass {self.online.name(epoch)}: {wanted} has not come within {limit:g} s",
                    hint="runner.data_wait_second is how long it is waited for",
                    exit_code=EXIT_DEADLINE,
                    retryable=True,
                )
            if not has_said:
                self.say(f"pass {self.online.name(epoch)} waits for {wanted}")
                has_said = True
            self.sleep(self.online.sleep_seconds)
        return found


def ready(directory: str, done_file: str) -> list[str] | None:
    """The data files of a directory; None while it is not complete.

    done_file: the file that says so; "": the directory has files. With it a split may be empty.
    """
    if done_file:
        try:
            find_files([posixpath.join(directory, done_file)])
        except UsageError:
            return None
    try:
        found = [one.path for one in find_files([directory])]
    except UsageError:
        return [] if done_file else None
    return [path for path in found if posixpath.basename(path) != done_file]


def best(reading: Reading, numbers: Mapping[str, float]) -> str:
    """A note of the best score that a model can reach on generated data."""
    for manifest in _manifests(reading):
        facts = manifest.facts if manifest is not None else {}
        for name, fact in (("auc", "bayes_auc"), ("accuracy", "best_accuracy")):
            if name in numbers and isinstance(found := facts.get(fact), float):
                return f" (the best possible {name} on these examples: {found:.4f})"
    return ""


def examples(reading: Reading) -> int:
    """The number of examples of all workers in an epoch; 0 where data has no manifest."""
    found = list(_manifests(reading))
    if None in found:
        return 0
    return sum(shard.count for manifest in found if manifest for shard in manifest.shards)


def _manifests(reading: Reading) -> Iterator[Manifest | None]:
    for path in reading.paths:
        directory = Path(generated(path) if path.startswith(GENERATED) else path)
        yield read_manifest(directory) if directory.is_dir() else None
