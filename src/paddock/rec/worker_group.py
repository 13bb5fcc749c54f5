"""A worker group begins, ends an epoch, adds up metrics and knows where each worker is.

Without servers there is one worker and nothing to agree on (`WorkerGroup` itself). With servers
(`PsWorkers`) all goes through them: no port, no process more.

**The end of an epoch in sync.** Workers have different numbers of batches, and a step waits for
all of them. So who has no more batches goes on with empty steps, and says at a step that he is
through; the servers report that with the step, so all see at the same one that all are through. A
mean divides by all workers, so an example of the last steps weighs as much as any other.

**What survives the death of a worker** (its next incarnation trains each batch once, see
`paddock.ps.wire.offsets`):

    where it is in the data     its position, with the servers, of the last step (sync) or batch
    in geo                      its position at the last exchange; the group decides when that is,
                                so that a next one exchanges after the same batches
    whether it has begun the    a key of the job's key-value store: a checkpoint that is loaded
    run, or is through with it  brings none of an earlier job
    which meetings have been    counted over all of these, by the servers; the late go through.
                                Two names take turns: nobody is two meetings of a kind ahead
    counts for metrics          lost, but for those of an epoch that had ended
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paddock import ps
from paddock.rec.learner import WorkerRank

REDUCED_AT_ONCE = 1 << 16  # float64, of Client.all_reduce
NEVER = 1 << 60  # The geo_step of a client whose group says when to exchange.

# "epoch", "step": batches of the run, "at": the source's, None: all; "batches" and "examples" of
# the epoch. Nothing that another incarnation would count otherwise: servers compare positions.
WorkerOffset = dict[str, Any]


def beginning(epoch: int, step: int) -> WorkerOffset:
    """The offset at which nothing of an epoch was trained."""
    return {"epoch": epoch, "step": step, "at": None, "batches": 0, "examples": 0}


class WorkerGroup:
    """The workers of a run; by itself a worker alone, without servers, who agrees with nobody.

    client: of the job's servers; None without. tables: those that the model trains on, called as a
    client is; None: its own.
    """

    rank = WorkerRank()
    worker: int = 0
    workers: int = 1
    client: ps.Client | None = None
    tables: Any = None

    def finish(self) -> None:
        """This worker is through with the run."""

    def prepare(self, load: Callable[[], int | None]) -> bool:
        """Before the model is opened one worker loads a checkpoint into the servers, if at all, and
        says how many epochs are over; None: it resumes none. Not where an earlier incarnation did.

        False if an earlier incarnation of this worker has finished the run.
        """
        return True

    def has_resumed(self) -> bool:
        """True if worker 0 has loaded a checkpoint of this run into the servers, to go on from."""
        return False

    def start(self, choose: Callable[[], WorkerOffset | None]) -> WorkerOffset | None:
        """The offset at which this worker goes on; None: the beginning.

        It is that of `choose`, or of an earlier incarnation that has begun.
        """
        return choose()

    def before_step(self, position: WorkerOffset) -> None:
        """The batch that is about to be trained ends at `position`."""

    def after_step(self, position: WorkerOffset) -> None:
        """The batch that was trained ends at `position`."""

    def is_even(self, position: WorkerOffset) -> bool:
        """True if a checkpoint may be made here: all that was learned is with the servers."""
        return True

    def end_epoch(self, position: WorkerOffset) -> None:
        """Wait until all have trained their batches of the epoch."""

    def positions(self, position: WorkerOffset) -> dict[str, WorkerOffset]:
        """Offsets of all workers, by number, as a checkpoint of servers has them."""
        return {"0": {**position, "workers": 1}}

    def total(self, kind: str, number: int, counts: NDArray[np.float64]) -> NDArray[np.float64]:
        """The sum over all workers; all call with the same kind and rising numbers.

        counts: (n,) float64, as the result.
        """
        return counts

    def meet(self, kind: str, number: int) -> None:
        """Wait for all; they come with the same kind and rising numbers, from 0."""


class PsWorkers(WorkerGroup):
    """Workers of a job with parameter servers.

    run: which of the recipe's, from 0. geo_step: batches between exchanges; the client itself is
    made with one that never comes.
    """

    client: ps.Client

    def __init__(self, client: ps.Client, *, run: int = 0, geo_step: int = 1) -> None:
        self.client = self.tables = client
        self.run, self.geo_step = run, geo_step
        self.worker, self.workers = client.place.trainer, client.place.trainers
        self.is_sync = client.strategy.name == "sync"
        self.is_geo = client.strategy.name == "geo"
        self._noted: WorkerOffset | None = None
        self._noted_at = -1  # the step of sync
        self._open: WorkerOffset | None = None  # in geo, not exchanged yet
        self.rank = WorkerRank(self.worker, self.workers, len(client.place.endpoints))

    # ----------------------------------------------------------------------------------- start

    def finish(self) -> None:
        self._set("over", self.worker, True)

    def prepare(self, load: Callable[[], int | None]) -> bool:
        if self._get("over", self.worker):  # The others may be in a later run, or have left.
            return False
        if self._get("begun", self.worker):
            return True
        if self.worker == 0 and self._get("prepared", 0) is None:
            epochs = load()
            if epochs is not None:
                self._set("resumed", 0, True)
            self._set("prepared", 0, epochs or 0)
        self.meet("begin", 0)
        return True

    def has_resumed(self) -> bool:
        return bool(self._get("resumed", 0))

    def start(self, choose: Callable[[], WorkerOffset | None]) -> WorkerOffset | None:
        held = self._noted = self.client.resume_offset()
        if self._get("begun", self.worker):
            is_mine = held is not None and held["run"] == self.run
            return self._at_least_prepared(held if is_mine else None)
        chosen = choose()
        both = {**(held or {}), **(chosen or {}), "run": self.run}
        if (held is None) != (chosen is None) or (held is not None and both != held):
            # What the servers have of this worker is of another job or run, or of no share dealt
            # to it: from here on it is.
            chosen = chosen or beginning(0, 0)
            self.client.resume_offset(replays=False)
            self._note(chosen)
            if self.is_sync:
                self.client.step()
        if not self.is_sync:  # an earlier incarnation may have noted it, and met nobody
            self.meet("chosen", 0)
        self._set("begun", self.worker, True)
        return self._at_least_prepared(chosen)

    def _at_least_prepared(self, position: WorkerOffset | None) -> WorkerOffset | None:
        """In a checkpoint another worker may have begun the next epoch: then this one has ended
        its own, and these servers know of no meeting at its end.
        """
        epochs = self._get("prepared", 0)
        held = position or beginning(0, 0)
        return position if held["epoch"] >= epochs else beginning(epochs, held["step"])

    def _get(self, what: str, worker: int) -> Any:
        return self.client.kv_get(f"rec/{self.run}/{what}/{worker}")

    def _set(self, what: str, worker: int, value: object) -> None:
        self.client.kv_set(f"rec/{self.run}/{what}/{worker}", value)

    # -------------------------------------------------------------------------------- positions

    def _note(self, position: WorkerOffset) -> None:
        # Not again what was noted last, perhaps by the incarnation before: positions are numbered.
        whole = {**position, "run": self.run, "workers": self.workers}
        if whole != self._noted:
            self.client.commit_offset(whole)
            self._noted, self._noted_at = whole, self.client.open_step

    def before_step(self, position: WorkerOffset) -> None:
        """In sync a position belongs to the step that is open."""
        if self.is_sync:
            self._note(position)

    def after_step(self, position: WorkerOffset) -> None:
        """The offset travels behind pushes that are applied at once, in geo behind an exchange."""
        self._open = None if self.is_even(position) else position
        if not self.is_sync and self._open is None:
            self._note(position)

    def keep(self, *, wanted: bool) -> bool:
        """True if all committed offsets are durable. wanted: do what can be done for it."""
        if self.is_sync:
            return self.client.open_step > self._noted_at
        if wanted:
            if self._open is not None:
                self._note(self._open)
            self.client.flush()
        return wanted

    def is_even(self, position: WorkerOffset) -> bool:
        """In geo only where differences were exchanged."""
        return not self.is_geo or position["step"] % self.geo_step == 0

    def end_epoch(self, position: WorkerOffset) -> None:
        """In sync with empty steps (see above); else a meeting."""
        epoch = position["epoch"]
        if not self.is_sync:
            self._note(position)
            self.meet("epoch", epoch)
            return
        ended = (self.run << 32) + epoch + 1  # those of the runs before are less
        while self.client.ended < ended:
            self._note(position)
            self.client.step(ended=ended)

    # --------------------------------------------------------------------------------- together

    def total(self, kind: str, number: int, counts: NDArray[np.float64]) -> NDArray[np.float64]:
        """The sum over all workers, as WorkerGroup says. counts: (n,) float64.

        Raises PaddockError when a worker was started again, and its counts are lost.
        """
        parts = np.array_split(counts, -(-len(counts) // REDUCED_AT_ONCE))
        name = f"rec/{self.run}/{kind}"
        found = [
            self.client.all_reduce(part, name=f"{name}/{index}", turn=number)
            for index, part in enumerate(parts)
        ]
        return np.concatenate(found)

    def meet(self, kind: str, number: int) -> None:
        """Two names a kind: who comes late and is one behind does not meet those ahead."""
        self.client.meet(f"rec.{self.run}.{kind}.{number % 2}", number // 2 + 1)

    def save(self, directory: str, keep: int, mode: str = "full") -> str:
        """Client.save() without an exchange of geo: an offset was committed behind all."""
        return self.client.save(directory, mode=mode, keep=keep, exchanges=False)
