"""Trains a bundled model: its description, a framework, and tables here or on the servers."""

from __future__ import annotations

import importlib
import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paddock.data.batch import Batch
from paddock.errors import PaddockError, UsageError
from paddock.rec.bundled.export import export_model, import_model, is_export
from paddock.rec.bundled.formats import format_of
from paddock.rec.bundled.local_tables import LocalTables
from paddock.rec.bundled.optimizer import rule_of
from paddock.rec.learner import WorkerRank
from paddock.rec.metrics import METRICS, MergeableMetric
from paddock.rec.models.inputs import Hyper
from paddock.rec.models.net import Net, Output
from paddock.rec.readers.paddlerec import load_file
from paddock.rec.readers.source import ChunkSource, make_source
from paddock.rec.report import print_line
from paddock.rec.settings import Reading, TrainingRun

MODEL = "model.json"
AVX2 = "5"
FRAMEWORKS = {"torch": "torch", "paddle": "paddlepaddle"}  # and what pip calls it
# Strategies in which rows may be a batch old.
AHEAD = ("async", "half_async", "staleness")


class BundledLearner:
    """A Learner of one of the bundled models; see paddock.rec.learner for its calls.

    client: a paddock.ps.Client where there are servers, a Copied where workers train copies; None
    keeps the tables in this process.
    """

    def __init__(self, run: TrainingRun, place: WorkerRank, client: Any = None) -> None:
        self.run, self.place = run, place
        hyper = Hyper(run.hyper)
        self.client: Any = LocalTables() if client is None else client
        framework, self.device = framework_of(run), run.device
        if run.device == "gpu":  # the CPU, where none is here
            self.device = str(framework.GPU) if framework.has_gpu() else "cpu"
        options = {"threads": run.strategy.threads, "device": self.device}
        self.net: Net = framework.NET(self.client, rule_of(hyper), run.seed, **options)
        folder = Path(run.model_file).resolve().parent
        self._name = f"{folder.parent.name}/{folder.name}"
        module = load_file(run.model_file, f"paddock_rec_model_{folder.name}")
        if not hasattr(module, "Model"):
            hint = "class Model: as in rank/dnn"
            raise UsageError(f"{run.model_file} has no class Model", hint=hint)
        self.model: Any = module.Model(self.net, hyper)
        self.unread = hyper.unread
        self.trainer = self.net.trainer()
        self._following: Batch | None = None
        strategy = getattr(self.client, "strategy", None)
        self._asks_ahead = strategy is not None and strategy.name in AHEAD
        self.metrics: Mapping[str, MergeableMetric] = {
            name: METRICS[name]() for name in self.model.metrics
        }

    def source(self, reading: Reading, place: WorkerRank | None = None) -> ChunkSource:
        """See Learner."""
        form, seed = format_of(reading, self.run), self.run.seed
        return make_source(form, reading, place or self.place, seed=seed, warn=print_line)

    def prefetch(self, batch: Batch) -> None:
        """Remembers the next batch: its rows are asked for when this one's are there.

        Not in sync, where the next batch has the rows as this one leaves them; nor in geo, which
        has them here; nor for fields whose look-up has several tables, one request being ahead.
        """
        self._following = batch if self._asks_ahead and hasattr(self.model, "wants") else None

    def train(self, batch: Batch) -> Mapping[str, float]:
        """Forward, backward, update. Raises PaddockError for a loss that is no number."""
        output = self.model.forward(batch)
        if (following := self._following) is not None:
            self._following = None
            for table, ids in list(self.model.wants(following))[:1]:
                self.client.prefetch(table.spec.name, table.ids(ids))
        if output.loss is None:
            raise UsageError("a batch without labels cannot train", hint="the reader's label slot")
        loss = float(output.loss.detach())
        if not math.isfinite(loss):
            self.trainer.forget()
            raise PaddockError(
                f"the loss is {loss}; tables {', '.join(self.net.tables) or 'none'}",
                hint="a lower hyper_parameters.optimizer.learning_rate; numbers in the data that "
                "are far from 0",
                exit_code=1,  # Of the training, not of Paddock.
            )
        self.trainer.step(output.loss)
        return self._counted(output, loss)

    def refresh(self) -> None:
        """The servers have other values than at this worker's last step."""
        if self.trainer.dense is not None:
            self.trainer.dense.pull()

    def evaluate(self, batch: Batch) -> Mapping[str, float]:
        """Forward only."""
        with self.net.evaluating():
            output = self.model.forward(batch)
        return self._counted(output, math.nan if output.loss is None else float(output.loss))

    def scores(self, batch: Batch) -> NDArray[np.float32]:
        """The scores of a batch: (examples,) or (examples, classes) float32."""
        with self.net.evaluating():
            return self.net.framework.array(self.model.forward(batch).scores)

    def _counted(self, output: Output, loss: float) -> Mapping[str, float]:
        if len(output.labels):
            scores = self.net.framework.array(output.scores)
            for metric in self.metrics.values():
                metric.update(scores, output.labels)
        return {"loss": loss}

    def save(self, directory: str) -> None:
        """The first worker writes all tables, the dense ones too, and whose they are."""
        if self.place.worker:
            return
        (Path(directory) / MODEL).write_text(json.dumps({"model": self._name}) + "\n")
        self.client.save(directory)

    def load(self, directory: str) -> None:
        """The first worker's servers take what save() or export() wrote; then all pull it.

        Raises UsageError for a checkpoint of another model.
        """
        path = Path(directory) / MODEL
        if path.is_file():
            found = json.loads(path.read_text()).get("model")
            if found != self._name:
                raise UsageError(
                    f"{directory} is a checkpoint of model {found!r}, not of {self._name!r}",
                    hint="another directory, or the config of that model",
                )
        if self.place.worker == 0 or self.place.servers == 0:
            if is_export(directory):
                import_model(self.net, directory)
                if self.trainer.dense is not None:
                    self.trainer.dense.set()
            else:
                self.client.load(directory)
        self.client.barrier("loaded")
        self.refresh()

    def export(self, directory: str) -> None:
        """The first worker writes what a plain program of the framework loads."""
        if self.place.worker == 0:
            export_model(self.net, self._name, self.run, directory)


def load_model(run: TrainingRun, client: Any, place: WorkerRank) -> BundledLearner:
    """See paddock.rec.learner.load_model."""
    learner = BundledLearner(run, place, client)
    if learner.unread and place.worker == 0:
        names = ", ".join(f"hyper_parameters.{name}" for name in learner.unread)
        print_line(f"not read by this model: {names}")
    if run.device == "gpu" and learner.device == "cpu" and place.worker == 0:
        print_line(f"device is gpu, but {run.framework} sees none here: training on the CPU")
    return learner


def framework_of(run: TrainingRun) -> Any:
    """The module of the run's framework: its NET and GROUP.

    Raises UsageError when it is not known or not installed.
    """
    # Frameworks read these when they are imported.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    cpuinfo = Path("/proc/cpuinfo")
    words = set(cpuinfo.read_text().split()) if cpuinfo.is_file() else set[str]()
    if "AuthenticAMD" in words and "avx2" in words:
        os.environ.setdefault("MKL_DEBUG_CPU_TYPE", AVX2)
    if run.framework not in FRAMEWORKS:
        raise UsageError(
            f"runner.framework is {run.framework!r}", hint="one of " + ", ".join(FRAMEWORKS)
        )
    try:
        return importlib.import_module(f"paddock.rec.models.{run.framework}_nn")
    except ModuleNotFoundError as error:
        if error.name not in FRAMEWORKS:
            raise
        other = next(name for name in FRAMEWORKS if name != error.name)
        raise UsageError(
            f"runner.framework is {run.framework}, and {error.name} is not installed",
            hint=f"pip install {FRAMEWORKS[error.name]}; or -o framework={other}",
        ) from error
