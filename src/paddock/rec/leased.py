"""Data on demand (`assignment: dynamic`): chunks go to whichever worker is free.

The dispatcher is with server 0 (`paddock.data.dispatch`), and where a worker is belongs to the
worker group's position of each step: so what is leased, what is trained and the tables are of
one moment.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from paddock import ps
from paddock.data.dispatch_words import Plan
from paddock.data.dispatcher import SERVICE
from paddock.data.feed import Feed
from paddock.data.feed_ports import Shared
from paddock.errors import PaddockError
from paddock.rec.learner import FLUSH, ChunkSet, Learner, SourceBatch
from paddock.rec.settings import TrainingRun
from paddock.rec.worker_group import PsWorkers


def stream_name(run: int) -> str:
    """What the dispatcher calls the data of a run. run: which of the recipe's, from 0."""
    return f"rec.{run}"


def forget(client: ps.Client, run: int) -> None:
    """Nothing of the data was read: what a checkpoint knows of them is another run's."""
    client.call(SERVICE, {"do": "forget", "stream": stream_name(run)})


class LeasePort(Shared):
    """The way to the dispatcher. Positions are the worker group's to note, with the step."""

    def __init__(self, group: PsWorkers) -> None:
        super().__init__(group.client, stream_name(group.run))
        self.group = group
        self.is_stale = False  # others may have learned since this worker's last batch

    def _marks(self, trainer: int | None) -> tuple[Any, Any]:
        least, most = (
            found["at"] if found is not None and found.get("run") == self.group.run else None
            for found in super()._marks(trainer)
        )
        return least, most

    def resume(self, *, exactly: bool) -> None:
        """The group has asked for the position; where other batches follow nothing is left out."""
        if not exactly:
            traffic = self.group.client.traffic
            traffic.progress.begin(traffic.marks(), again=False)

    def note(self, position: dict[str, Any]) -> None:
        """The worker group has noted it."""

    def keep(self, *, wanted: bool) -> bool:
        """See PsWorkers.keep."""
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
        self._feed = Feed(
            self._port,
            Plan(lot.digest, lot.chunks, run.epochs, seed, aside=run.reading.aside_max),
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
        if feed.pass_ == epoch and not feed.is_ended:  # Else an earlier life has read its part.
            for item in feed.items():
                if item is None:
                    yield FLUSH
                    continue
                if self._port.is_stale:
                    self._learner.refresh()
                    self._port.is_stale = False
                used = lambda item=item: feed.use(item)  # noqa: E731
                batch, size = item.batch
                yield SourceBatch(batch, size, item.position, used)
        if self._group.worker == 0:
            self._tell()

    def _tell(self) -> None:
        """Name what could not be read in the epoch that has ended."""
        found = self._port.look()
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
