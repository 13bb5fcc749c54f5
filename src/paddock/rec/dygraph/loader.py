"""Opens a PaddleRec 2.x folder for the worker program."""

from __future__ import annotations

from paddock.ps import Client
from paddock.rec.data_parallel import DataParallelTables
from paddock.rec.dygraph.folder import DygraphFolder
from paddock.rec.dygraph.learner import DygraphLearner
from paddock.rec.dygraph.reading import Batches
from paddock.rec.learner import LoadedModel, WorkerRank
from paddock.rec.report import printer_of
from paddock.rec.settings import TrainingRun


def open_model(
    run: TrainingRun, client: Client | DataParallelTables | None, place: WorkerRank
) -> LoadedModel:
    """The model as a Learner, and its readers as Sources."""
    folder = DygraphFolder(run.model_directory, run.config)
    learner = DygraphLearner(run, folder, client, printer_of(place.worker))
    return LoadedModel(
        learner,
        lambda reading: Batches(folder, reading, place),
        lambda reading, one: Batches(folder, reading, one),
    )
