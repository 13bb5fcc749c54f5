"""A learner trains one model for the training loop, whatever its framework and kind.

The loop (`loop.py`) knows batches, epochs, lines and saving; a Learner knows one model: its data,
forward, backward, update (here or on the servers), and its state. There are three: the bundled
models' (torch and Paddle), PaddleRec 2.x's DygraphModel, and the old Model hooks, by the kind of
the model's folder.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from paddock.rec.metrics import MergeableMetric
from paddock.rec.report import print_line
from paddock.rec.settings import ModelKind, Reading

# Modules with a function load_model(run, client, place): the model of a run's folder, made and with
# its first values. client: a ps.Client; the DataParallelTables of several workers; None for one
# worker alone. UsageError: the folder's code, framework or hyper-parameters do not fit.
LOADERS = {
    ModelKind.BUNDLED: "paddock.rec.bundled.learner",
    ModelKind.DYGRAPH: "paddock.rec.dygraph.learner",
    ModelKind.HOOKS: "paddock.rec.compat.hooks",
}


@dataclass(frozen=True)
class WorkerRank:
    """Which worker this is. servers: 0 where parameters are in this process."""

    worker: int = 0
    workers: int = 1
    servers: int = 0

    def say(self, line: str) -> None:
        """Worker 0 prints the line; others, which have the same one, do not."""
        if self.worker == 0:
            print_line(line)


@dataclass(frozen=True)
class SourceBatch:
    """A batch on its way to a learner: its size, and where its reader is behind it (JSON).

    used: called when it was trained.
    """

    batch: Any
    size: int
    position: object
    used: Callable[[], None] = lambda: None


# Of a source that goes on when all that it gave was trained.
FLUSH = SourceBatch(None, 0, None)


class Source(Protocol):
    """The batches of one epoch for this worker."""

    def open(self, epoch: int, position: object | None) -> Iterator[SourceBatch]:
        """Batches from `position` on (None: all); `position` is an Item's, of the same epoch."""


@runtime_checkable
class ReshardableSource(Source, Protocol):
    """A source that goes on by itself after another number of workers: no ReshardedSource."""

    def resharded(self, epoch: int, positions: Sequence[object | None]) -> object:
        """This worker's position in its share of what those before have left of the epoch.

        positions: of each of them, an Item's; None: it had read nothing.
        """


@dataclass(frozen=True)
class ChunkSet:
    """Data in chunks, each of which any worker may read. digest: equal for equal chunks.

    size: records of a batch. name: of a chunk, for people. read: (epoch, chunk, records to skip)
    -> the others, in parts. make: of the parts of a batch, what a learner trains, and how many
    examples that is.
    """

    digest: str
    chunks: int
    size: int
    name: Callable[[int], str]
    read: Callable[[int, int, int], Iterator[Any]]
    make: Callable[[list[Any]], tuple[Any, int]]


@runtime_checkable
class ChunkedSource(Source, Protocol):
    """A source whose chunks can go to whichever worker is free: `assignment: dynamic`."""

    def chunk_set(self) -> ChunkSet:
        """Its chunks, of all workers."""


class Learner(Protocol):
    """A model with its optimizer."""

    metrics: Mapping[str, MergeableMetric]

    def source(self, reading: Reading, place: WorkerRank | None = None) -> Source:
        """The batches of a worker's share of the data; without a place, of this worker's own.

        Raises UsageError for data that is not there or too little for all workers.
        """

    def prefetch(self, batch: Any) -> None:
        """Ask for the rows of the next batch while this one computes; may do nothing."""

    def train(self, batch: Any) -> Mapping[str, float]:
        """Trains one step; returns loss and other numbers to print. Metrics are updated."""

    def evaluate(self, batch: Any) -> Mapping[str, float]:
        """Forward only; metrics are updated."""

    def refresh(self) -> None:
        """The servers have loaded other values: those that are kept here are pulled anew."""

    def save(self, directory: str) -> None:
        """Write the state of this process's part of the model into a directory that exists."""

    def load(self, directory: str) -> None:
        """Read what `save` wrote."""

    def export(self, directory: str) -> None:
        """Write what a program without paddock loads: parameters, embeddings included."""
