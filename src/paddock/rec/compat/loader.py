"""Opens the folder of an old Model for the worker program: a learner, and batches of its slots."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paddock.data.batch import Bag, Batch
from paddock.ps import Client
from paddock.rec.compat.hooks import HookedModel
from paddock.rec.data_parallel import DataParallelTables
from paddock.rec.dygraph.learner import DygraphLearner
from paddock.rec.learner import ChunkSet, LoadedModel, Source, SourceBatch, WorkerRank
from paddock.rec.readers.build import chunks_of, make_source
from paddock.rec.readers.source import ChunkSource
from paddock.rec.report import printer_of
from paddock.rec.settings import Reading, TrainingRun


def open_model(
    run: TrainingRun, client: Client | DataParallelTables | None, place: WorkerRank
) -> LoadedModel:
    """The model as a Learner, and its readers as Sources."""
    say = printer_of(place.worker)
    model = HookedModel(run)
    learner = DygraphLearner(run, model, client, say)  # type: ignore[arg-type]  # As a Folder.
    learner.metrics = {**model.own, **learner.metrics}

    def share(reading: Reading, one: WorkerRank) -> Source:
        chunks = chunks_of(reading, one)
        inner = make_source(reading, chunks, run.config, seed=run.seed, warn=say)
        return SlotArrays(inner, reading)

    return LoadedModel(learner, lambda reading: share(reading, place), share)


@dataclass(frozen=True)
class SlotArrays:
    """Batches as the arrays that net() is given, by slot: (examples, width) each."""

    inner: ChunkSource
    reading: Reading

    def chunk_set(self) -> ChunkSet:
        """See ChunkedSource."""
        lot = self.inner.chunk_set()

        def make(parts: list[Any]) -> tuple[Any, int]:
            batch, size = lot.make(parts)
            return arrays_of(batch, self.reading), size

        return replace(lot, make=make)

    def open(self, epoch: int, position: object | None) -> Iterator[SourceBatch]:
        """See Source."""
        for item in self.inner.open(epoch, position):
            yield SourceBatch(arrays_of(item.batch, self.reading), item.size, item.position)


def arrays_of(batch: Batch, reading: Reading) -> dict[str, NDArray[Any]]:
    """The slots of a batch, sparse ones int64 (the label, too), dense ones float32.

    An example's ids are padded to as many as the example with most has.

    >>> bag = Bag(np.array([1, 2, 3]), np.array([1, 2]))
    >>> batch = Batch(2, {"7": bag}, label=np.float32([0, 1]))
    >>> found = arrays_of(batch, Reading((), 2, sparse_slots=("click", "7"), padding=9))
    >>> {name: array.tolist() for name, array in found.items()}
    {'click': [[0], [1]], '7': [[1, 9], [2, 3]]}
    """
    label = reading.label or (reading.sparse_slots or ("",))[0]
    found: dict[str, NDArray[Any]] = {}
    if len(batch.label):
        kind = np.float32 if label in reading.dense_slots else np.int64
        found[label] = batch.label.astype(kind).reshape(-1, 1)
    for name, ids in batch.ids.items():
        wide = _padded(ids, reading.padding) if isinstance(ids, Bag) else ids
        found[name] = wide.reshape(batch.size, -1)
    found.update(batch.dense)
    return found


def _padded(bag: Bag, padding: int) -> NDArray[np.int64]:
    width = max(1, int(bag.lengths.max(initial=0)))
    wide = np.full((len(bag.lengths), width), padding, np.int64)
    wide[np.arange(width) < bag.lengths[:, None]] = bag.values
    return wide
