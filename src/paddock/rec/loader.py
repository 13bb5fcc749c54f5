"""The one place that chooses a model's loader, by the kind of its folder."""

from __future__ import annotations

import importlib
from typing import Any, Protocol

from paddock.rec.learner import Learner, Source, WorkerRank
from paddock.rec.settings import ModelKind, Reading, TrainingRun

# Modules with a function load_model(run, client, place), as here.
LOADERS = {
    ModelKind.BUNDLED: "paddock.rec.bundled.loader",
    ModelKind.DYGRAPH: "paddock.rec.dygraph.learner",
    ModelKind.HOOKS: "paddock.rec.compat.hooks",
}


class LoadedModel(Protocol):
    """A model's folder in memory: a learner that trains it, and sources of its data."""

    @property
    def learner(self) -> Learner:
        """The model with its optimizer."""

    def source(self, reading: Reading, place: WorkerRank | None = None) -> Source:
        """The batches of a worker's share of the data; without a place, of this worker's own.

        Raises UsageError for data that is not there or too little for all workers.
        """


def load_model(run: TrainingRun, client: Any, place: WorkerRank) -> LoadedModel:
    """The model of a run's folder, made and with its first values.

    client: a ps.Client; the DataParallelTables of several workers; None for one worker alone.
    Raises UsageError for a folder whose code, framework or hyper-parameters do not fit.
    """
    loaded: LoadedModel = importlib.import_module(LOADERS[run.contract]).load_model(
        run, client, place
    )
    return loaded
