"""Opens a bundled model for the worker program: its learner, and batches of its data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from paddock.data.formats.format import Format
from paddock.errors import UsageError
from paddock.rec.bundled.formats import ImageFormat, WordFormat
from paddock.rec.bundled.learner import BundledLearner, device_of
from paddock.rec.learner import LoadedModel, Source, WorkerRank
from paddock.rec.models.inputs import Hyper
from paddock.rec.readers.build import IDS_KEY, chunks_of, make_format
from paddock.rec.readers.source import BatchOptions, ChunkSource
from paddock.rec.report import print_line
from paddock.rec.settings import Reading, TrainingRun

FORMATS = ("slots", "criteo", "words", "images")


def open_model(run: TrainingRun, client: Any, place: WorkerRank) -> LoadedModel:
    """The model as a Learner, and its readers as Sources."""
    learner = BundledLearner(run, place, client)
    if learner.unread and place.worker == 0:
        names = ", ".join(f"hyper_parameters.{name}" for name in learner.unread)
        print_line(f"not read by this model: {names}")
    if run.device == "gpu" and device_of(run) == "cpu" and place.worker == 0:
        print_line(f"device is gpu, but {run.framework} sees none here: training on the CPU")
    return LoadedModel(learner, Reader(run, place), lambda reading, one: Reader(run, one)(reading))


@dataclass(frozen=True)
class Reader:
    """Makes the source of a reading: this worker's files, in one of the formats."""

    run: TrainingRun
    place: WorkerRank

    def __call__(self, reading: Reading) -> Source:
        """Raises UsageError for data that is not there or too little for all workers."""
        options = BatchOptions(
            reading.batch_size, reading.loader_processes, reading.shuffle, self.run.seed,
            reading.drop_last, reading.bad_max,
        )  # fmt: skip
        chunks = chunks_of(reading, self.place)
        return ChunkSource(format_of(reading, self.run), chunks, options, warn=print_line)


def format_of(reading: Reading, run: TrainingRun) -> Format:
    """How the files are read. Raises UsageError for a reader that bundled models do not have."""
    if reading.pipe_command is not None:
        raise UsageError(
            f"pipe_command is {reading.pipe_command!r}, and bundled models read files themselves",
            hint="leave it out, and write what it prints to files: paddock data check shows them",
        )
    if reading.reader in ("slots", "criteo"):
        return make_format(reading, {IDS_KEY: Hyper(run.hyper)("sparse_feature_number", 1000001)})
    if reading.reader == "words":
        return WordFormat()
    if reading.reader == "images":
        return ImageFormat()
    raise UsageError(
        f"runner.reader is {reading.reader!r}", hint="bundled models have " + ", ".join(FORMATS)
    )
