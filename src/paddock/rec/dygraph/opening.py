"""Opens a PaddleRec 2.x folder for the worker program."""

from __future__ import annotations

import sys

from paddock.ps import Client
from paddock.rec.copies import Copied
from paddock.rec.dygraph.folder import Folder
from paddock.rec.dygraph.learner import DygraphLearner
from paddock.rec.dygraph.reading import Batches
from paddock.rec.learner import Opened, Place
from paddock.rec.settings import Run


def open_model(run: Run, client: Client | Copied | None, place: Place) -> Opened:
    """The model as a Learner, and its readers as Sources."""
    folder = Folder(run.model_directory, run.config)
    learner = DygraphLearner(run, folder, client, _say if place.worker == 0 else _nothing)
    return Opened(
        learner,
        lambda reading: Batches(folder, reading, place),
        lambda reading, one: Batches(folder, reading, one),
    )


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def _nothing(line: str) -> None:
    """The other workers would say the same."""
