"""What the workers of a run do together: end an epoch, add up metrics, know where each goes on.

Without servers there is one worker and nothing to agree on (`Alone`). With servers (`Served`) all
goes through them: no port, no process more.

**The end of an epoch in sync.** Workers have different numbers of batches, and a step waits for
all of them. So who has no more batches goes on with empty steps, and says in a table that he is
through; as the table belongs to the step, all see at the same step that all are through. A mean
divides by all workers, so an example of the last steps weighs as much as any other.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from paddock import ps
from paddock.ps.xxh3 import xxh3

ENDED = "rec.ended"
SUMS = "rec.sums"
SUMS_DIM = 64


class Team(Protocol):
    """The workers of a run."""

    worker: int
    workers: int

    def position(self) -> dict[str, Any] | None:
        """Where this worker's earlier life, or the checkpoint, goes on."""

    def before_step(self, position: dict[str, Any]) -> None:
        """The batch that is about to be trained ends at `position`."""

    def after_step(self, position: dict[str, Any]) -> None:
        """The batch that was trained ends at `position`."""

    def end_epoch(self, epoch: int) -> None:
        """Wait until all have trained their batches of the epoch."""

    def total(self, name: str, counts: NDArray[np.float64]) -> NDArray[np.float64]:
        """The sum over all workers; all call it with the same name, each name once."""

    def barrier(self, name: str) -> None:
        """Wait for all."""


class Alone:
    """One worker, no servers."""

    worker, workers = 0, 1

    def position(self) -> dict[str, Any] | None:
        """Nothing is kept elsewhere."""
        return None

    def before_step(self, position: dict[str, Any]) -> None:
        """Nobody to tell."""

    def after_step(self, position: dict[str, Any]) -> None:
        """Nobody to tell."""

    def end_epoch(self, epoch: int) -> None:
        """Nobody to wait for."""

    def total(self, name: str, counts: NDArray[np.float64]) -> NDArray[np.float64]:
        """Its own."""
        return counts

    def barrier(self, name: str) -> None:
        """Nobody to wait for."""


class Served:
    """Workers of a job with parameter servers."""

    def __init__(self, client: ps.Client) -> None:
        self.client = client
        self.worker, self.workers = client.place.trainer, client.place.trainers
        self.is_sync = client.strategy.name == "sync"
        sums = ps.OptimizerSpec("sum")
        if self.is_sync:
            client.create(ps.DenseSpec(ENDED, self.workers, sums, merge="sum"))
        client.create(ps.SparseSpec(SUMS, SUMS_DIM, sums))

    def position(self) -> dict[str, Any] | None:
        """Of this worker's earlier life, or of the checkpoint that the servers loaded."""
        return self.client.position()

    def before_step(self, position: dict[str, Any]) -> None:
        """In sync a position belongs to the step that is open."""
        if self.is_sync:
            self.client.note_position(position)

    def after_step(self, position: dict[str, Any]) -> None:
        """Where pushes are applied at once it travels behind them."""
        if not self.is_sync:
            self.client.note_position(position)

    def end_epoch(self, epoch: int) -> None:
        """In sync with empty steps (see above); else a barrier."""
        if not self.is_sync:
            self.client.barrier(f"epoch-{epoch}")
            return
        ended = self.client.pull_dense(ENDED)
        mine = np.zeros(self.workers, np.float32)
        mine[self.worker] = epoch + 1 - ended[self.worker]
        while ended.min() <= epoch:
            if mine.any():
                self.client.push_dense(ENDED, mine)
                mine[:] = 0
            self.client.step()
            ended = self.client.pull_dense(ENDED)

    def total(self, name: str, counts: NDArray[np.float64]) -> NDArray[np.float64]:
        """Each worker's counts become rows of a table, two float32 a number: exact to 48 bits."""
        high = counts.astype(np.float32)
        flat = np.concatenate([high, (counts - high).astype(np.float32)])
        rows = -(-len(flat) // SUMS_DIM)
        padded = np.zeros((rows, SUMS_DIM), np.float32)
        padded.reshape(-1)[: len(flat)] = flat
        first = [xxh3(f"{name}/{w}".encode()) for w in range(self.workers)]
        keys = np.array(first, np.uint64).astype(np.int64)[:, None] + np.arange(rows)
        self.client.set(SUMS, keys[self.worker], padded)
        self.client.barrier(f"sum-{name}")
        found = self.client.pull(SUMS, keys).reshape(self.workers, -1).astype(np.float64)
        halves = found[:, : 2 * len(counts)].reshape(self.workers, 2, len(counts))
        whole: NDArray[np.float64] = halves.sum((0, 1))
        return whole

    def barrier(self, name: str) -> None:
        """Wait for all workers."""
        self.client.barrier(name)
