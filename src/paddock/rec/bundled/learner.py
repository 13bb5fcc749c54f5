"""Trains a bundled model: its description, a framework, and tables here or on the servers.

An export is what a plain program loads, a state dict of torch or Paddle, and its facts:

    model.pt | model.pdparams   {"<part>.weight": ...}: as torch.nn.Linear, paddle.nn.Embedding ...
                                have them; the rows of a table by id, from 0 on
    model.json                  which model, its hyper-parameters, each tensor's shape

hyper_parameters.optimizer names the rule of all tables. The servers compute the rate of each step,
so it is one for all workers; steps are theirs: of the job in sync, pushes of all workers in async
and half_async.
"""

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
from paddock.ps.adapters.rows import pull_all_rows, set_all_rows
from paddock.ps.local_tables import LocalTables
from paddock.ps.spec import OptimizerSpec, ScheduleSpec
from paddock.rec.bundled.formats import format_of
from paddock.rec.learner import WorkerRank
from paddock.rec.metrics import METRICS, MergeableMetric
from paddock.rec.models.inputs import Hyper
from paddock.rec.models.net import Net, Output, Table
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

    The first worker prints what the model does not read, and that there is no GPU.

    client: a paddock.ps.Client where there are servers, DataParallelTables of copies; None
    keeps the tables in this process.
    """

    def __init__(self, run: TrainingRun, client: Any, place: WorkerRank) -> None:
        self.run, self.place = run, place
        hyper = Hyper(run.hyper)
        self.client: Any = LocalTables() if client is None else client
        framework, device = framework_of(run), run.device
        if run.device == "gpu":  # the CPU, where none is here
            device = str(framework.GPU) if framework.has_gpu() else "cpu"
        options = {"threads": run.strategy.threads, "device": device}
        self.net: Net = framework.NET(self.client, rule_of(hyper), run.seed, **options)
        folder = Path(run.model_file).resolve().parent
        self._name = f"{folder.parent.name}/{folder.name}"
        module = load_file(run.model_file, f"paddock_rec_model_{folder.name}")
        if not hasattr(module, "Model"):
            hint = "class Model: as in rank/dnn"
            raise UsageError(f"{run.model_file} has no class Model", hint=hint)
        self.model: Any = module.Model(self.net, hyper)
        self.trainer = self.net.trainer()
        self._following: Batch | None = None
        strategy = getattr(self.client, "strategy", None)
        self._asks_ahead = strategy is not None and strategy.name in AHEAD
        self.metrics: Mapping[str, MergeableMetric] = {
            name: METRICS[name]() for name in self.model.metrics
        }
        self.unread = hyper.unread
        if self.unread:
            names = ", ".join(f"hyper_parameters.{name}" for name in self.unread)
            place.say(f"not read by this model: {names}")
        if run.device == "gpu" and device == "cpu":
            place.say(f"device is gpu, but {run.framework} sees none here: training on the CPU")

    def source(self, reading: Reading, place: WorkerRank | None = None) -> ChunkSource:
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
            if any(Path(directory, name).is_file() for name in FILES.values()):  # an export
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


load_model = BundledLearner


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


FILES = {"torch": "model.pt", "paddle": "model.pdparams"}
ROWS_MAX = 1 << 28


def export_model(net: Net, name: str, run: TrainingRun, directory: str) -> None:
    """Writes both files. Raises UsageError for a table too large for one array."""
    where = Path(directory)
    where.mkdir(parents=True, exist_ok=True)
    state = {**net.state(), **{f"{t.spec.name}.weight": _rows(net, t) for t in net.tables.values()}}
    net.save_state(state, str(where / FILES[net.name]))
    facts = {
        "framework": net.name,
        "model": name,
        "hyper_parameters": run.hyper,
        "tensors": {name: list(one.shape) for name, one in state.items()},
    }
    (where / "model.json").write_text(json.dumps(facts, indent=1, default=str) + "\n")


def import_model(net: Net, directory: str) -> None:
    """Tables and dense parameters become the export's; optimizers begin anew.

    Raises UsageError for the export of another framework or other shapes.
    """
    path = Path(directory) / FILES[net.name]
    if not path.is_file():
        raise UsageError(
            f"{directory} was exported by another framework than {net.name}",
            hint="runner.framework: as that run had it",
        )
    state = net.read_state(str(path))
    tables = {f"{table.spec.name}.weight": table for table in net.tables.values()}
    wanted = {name: one.shape for name, one in net.state().items()}
    wanted |= {name: (table.rows, table.spec.dim) for name, table in tables.items()}
    found = {name: one.shape for name, one in state.items()}
    if found != wanted:
        odd = sorted(name for name in {*wanted, *found} if wanted.get(name) != found.get(name))
        raise UsageError(
            f"{path} has other parameters than this model: {', '.join(odd)}",
            hint="the hyper-parameters that it was trained with are in its model.json",
        )
    for name, table in tables.items():
        rows = state.pop(name)
        set_all_rows(net.client, table.spec.name, rows)
    net.load_state(state)


def _rows(net: Net, table: Table) -> NDArray[np.float32]:
    """All rows, those of ids that were never seen too, at their first values."""
    name, rows = table.spec.name, table.rows
    if rows > ROWS_MAX:
        raise UsageError(
            f"table {name!r} of {rows} rows is too large to export as one array ({ROWS_MAX})",
            hint="serve its rows: paddock ps publish",
        )
    return pull_all_rows(net.client, table.spec, rows)


# optimizer.class of PaddleRec's files, in small letters: the rules of the servers.
RULES = ("adam", "adamw", "sgd", "adagrad", "momentum", "rmsprop", "ftrl")
# scheduler, Paddle's name of it too -> ScheduleSpec.kind.
SCHEDULERS = {
    "constant": "constant",
    "exponential": "exponential", "exponentialdecay": "exponential",
    "natural_exp": "natural_exp", "naturalexpdecay": "natural_exp",
    "inverse_time": "inverse_time", "inversetimedecay": "inverse_time",
    "piecewise": "piecewise", "piecewisedecay": "piecewise",
    "cosine": "cosine", "cosineannealingdecay": "cosine",
}  # fmt: skip


def rule_of(hyper: Hyper) -> OptimizerSpec:
    """The optimizer that a config names, with its learning rate over the steps.

    decay_rate alone is exponential, as in PaddleRec. Raises UsageError for what is not known.

    >>> rule_of(Hyper({"optimizer.decay_rate": 0.5, "optimizer.decay_steps": 100})).schedule.kind
    'exponential'
    """
    name = hyper("optimizer.class", "Adam")
    hyper("optimizer.strategy", "sync")  # The job's strategy is read elsewhere.
    if name.lower() not in RULES:
        raise UsageError(
            f"hyper_parameters.optimizer.class is {name!r}", hint="one of " + ", ".join(RULES)
        )
    rate, l2 = hyper("optimizer.learning_rate", 0.001), hyper("optimizer.l2", 0.0)
    decay, every = hyper("optimizer.decay_rate", 1.0), hyper("optimizer.decay_steps", 1)
    word = hyper("optimizer.scheduler", "constant" if decay == 1.0 else "exponential")
    kind = SCHEDULERS.get(word.lower())
    if kind is None:
        hint = "one of " + ", ".join(dict.fromkeys(SCHEDULERS.values()))
        raise UsageError(f"hyper_parameters.optimizer.scheduler is {word!r}", hint=hint)
    part = 1.0 / (rate or 1.0)  # The file has rates, a ScheduleSpec parts of the optimizer's own.
    more: dict[str, Any] = {}
    if kind == "piecewise":
        more["values"] = tuple(one * part for one in hyper("optimizer.values", [rate]))
        more["boundaries"] = tuple(hyper("optimizer.boundaries", [0]))
    elif kind == "cosine":
        # Who has a learning_rate below the file's end_lr has it throughout.
        more = {"rate": min(1.0, hyper("optimizer.end_lr", 0.0) * part), "every": every}
    elif kind != "constant":
        stairs = hyper("optimizer.staircase", True)
        more = {"rate": decay, "every": every, "staircase": stairs}
    warmup, start = hyper("optimizer.warmup_steps", 0), hyper("optimizer.start_lr", 0.0) * part
    schedule = ScheduleSpec(kind, warmup_steps=warmup, warmup_start=start, **more)
    return OptimizerSpec(name.lower(), rate, l2=l2, schedule=schedule)
