"""A user's old Model behind the hooks of a DygraphModel, so that one learner trains both kinds.

Its layers and parameters are those that its attributes hold. A batch of zeros goes through it
first: so layers that net() makes where it finds none yet are known before the optimizer is made,
and the names of its metrics before the first batch.
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import paddle
from numpy.typing import NDArray
from paddle import nn

from paddock.data.batch import Batch
from paddock.errors import UsageError
from paddock.ps import Client
from paddock.rec.compat.model_base import ModelBase, packages
from paddock.rec.data_parallel import DataParallelTables
from paddock.rec.dygraph.folder import user_code
from paddock.rec.dygraph.learner import DygraphLearner
from paddock.rec.dygraph.paddle_patches import patched
from paddock.rec.learner import WorkerRank
from paddock.rec.metrics import METRICS, MergeableMetric
from paddock.rec.readers.paddlerec import PaddleRecEnvs, load_file, standing_in
from paddock.rec.readers.source import ChunkSource, make_format, make_source
from paddock.rec.settings import Reading, Task, TrainingRun

MODULE = "paddock_users_model"
EXAMPLES = 2  # of the batch of zeros

Inputs = Mapping[str, Any]


class AttributeLayer(nn.Layer):  # type: ignore[misc]  # Paddle has no types.
    """The layers and parameters that a Model's attributes hold."""

    def __init__(self, model: ModelBase) -> None:
        super().__init__()
        for name, value in vars(model).items():
            self._hold(name, value)

    def _hold(self, name: str, value: Any) -> None:
        if isinstance(value, nn.Layer):
            self.add_sublayer(name, value)
        elif isinstance(value, paddle.Tensor) and not value.stop_gradient and value.is_leaf:
            self.add_parameter(name, value)
        elif isinstance(value, (list, tuple)):
            for at, one in enumerate(value):
                self._hold(f"{name}_{at}", one)
        elif isinstance(value, dict):
            for key, one in value.items():
                self._hold(f"{name}_{key}", one)


class HookedModel:
    """The model of a folder, as DygraphLearner takes folders: directory, config, model.

    own: metrics given as (score, label), which add up over workers.
    """

    def __init__(self, run: TrainingRun) -> None:
        self.run, self.model = run, self  # The hooks of a DygraphModel are here.
        self.directory = os.path.abspath(run.model_directory)
        self.config = dict(run.config)
        self.own: dict[str, MergeableMetric] = {}
        self._objects: dict[str, Any] = {}
        self._is_fixed = False
        self._made: ModelBase

    # ------------------------------------------------------------------------------------ hooks

    def create_model(self, config: object) -> AttributeLayer:
        """Load the file, make the Model, let the batch of zeros through."""
        reading = self.run.reading or self.run.test
        made = self._made = self._load(reading)
        is_infer = self.run.task is Task.EVALUATE
        if reading is not None and (reading.sparse_slots or reading.dense_slots):
            zeros: dict[str, Any] = {
                name: np.zeros((EXAMPLES, 1), np.int64) for name in reading.sparse_slots
            }
            for name, width in reading.dense_slots.items():
                zeros[name] = np.zeros((EXAMPLES, width), np.float32)
            self._try_out(made, zeros, is_infer)
        net = AttributeLayer(made)
        if not net.parameters():
            raise UsageError(
                f"{self.run.model_file}: Model has no layers to train",
                hint="make them in _init_hyper_parameters: self.fc = paddle.nn.Linear(...)",
            )
        self._is_fixed = True
        return net

    def create_optimizer(self, net: AttributeLayer, config: object) -> Any:
        """The user's, or that of the configuration; of all parameters where it names none."""
        with _given_parameters(net.parameters()):
            return self._made.optimizer()

    def create_metrics(self) -> tuple[list[Any], list[str]]:
        """The paddle.metric objects that net() put in _metrics."""
        return list(self._objects.values()), list(self._objects)

    def train_forward(
        self, net: AttributeLayer, metrics: object, batch: Inputs, config: object
    ) -> tuple[Any, list[Any], dict[str, Any]]:
        """The model computes a batch: loss, metrics, what is printed."""
        self._run(self._made, batch, is_infer=False)
        cost = self._made.get_avg_cost()
        if not isinstance(cost, paddle.Tensor):
            raise UsageError(
                f"{self.run.model_file}: net() has set no _cost, it is {cost!r}",
                hint="self._cost = the mean loss of the batch, a tensor",
            )
        printed = self._taken(self._made.get_metrics())
        return cost.mean() if cost.size > 1 else cost, list(self._objects.values()), printed

    def infer_forward(
        self, net: AttributeLayer, metrics: object, batch: Inputs, config: object
    ) -> tuple[list[Any], dict[str, Any]]:
        """The model judges a batch: metrics, what is printed."""
        self._run(self._made, batch, is_infer=True)
        printed = self._taken(self._made.get_infer_results())
        return list(self._objects.values()), printed

    # ------------------------------------------------------------------------------------ within

    def _load(self, reading: Reading | None) -> ModelBase:
        path, settings = self.run.model_file, PaddleRecEnvs(self.config)
        slots = (reading.sparse_slots, tuple(reading.dense_slots)) if reading else ((), ())
        with standing_in(packages(settings), self.directory), user_code(self.directory):
            kind = getattr(load_file(path, MODULE), "Model", None)
            if not (isinstance(kind, type) and issubclass(kind, ModelBase)):
                raise UsageError(
                    f"{path} has no class Model(ModelBase)",
                    hint="from paddlerec.core.model import ModelBase",
                )
            kind.settings, kind.slots = settings, slots
            return kind(settings.all())

    def _try_out(self, made: ModelBase, zeros: Inputs, is_infer: bool) -> None:
        """A batch that changes nothing: no gradients, no statistics, the same random numbers."""
        state = paddle.get_rng_state()
        before = AttributeLayer(made)
        before.eval()
        with paddle.no_grad():
            self._run(made, zeros, is_infer=is_infer)
        paddle.set_rng_state(state)
        AttributeLayer(made).train()
        found = made.get_infer_results() if is_infer else made.get_metrics()
        for name, value in found.items():
            if isinstance(value, paddle.metric.Metric):
                value.reset()
                self._objects[name] = value
            elif isinstance(value, tuple):
                if name.lower() not in METRICS:
                    raise UsageError(
                        f"{self.run.model_file}: _metrics[{name!r}] is (score, label), and there "
                        "is no such metric",
                        hint=f"one of {', '.join(METRICS)}; or a tensor; or an object of "
                        "paddle.metric",
                    )
                self.own[name] = METRICS[name.lower()]()

    def _run(self, model: ModelBase, batch: Inputs, *, is_infer: bool) -> None:
        inputs = {name: paddle.to_tensor(value) for name, value in batch.items()}
        with _no_new_parameters(self.directory) if self._is_fixed else user_code(self.directory):
            model.run(inputs, is_infer=is_infer)

    def _taken(self, found: Mapping[str, Any]) -> dict[str, Any]:
        """Count what adds up; the rest, to be printed."""
        printed = {}
        for name, value in found.items():
            if isinstance(value, paddle.metric.Metric):
                if name in self._objects:
                    self._objects[name] = value
            elif isinstance(value, tuple):
                if name in self.own:
                    score, label = (np.asarray(one.numpy()) for one in value)
                    if score.ndim == 2 and score.shape[1] <= 2:  # of two classes the second's
                        score = score[:, -1]
                    self.own[name].update(score, label.reshape(-1))
            else:
                printed[name] = value
        return printed


@contextmanager
def _given_parameters(parameters: list[Any]) -> Iterator[None]:
    """An optimizer that is made without parameters, as in a static program, is of all."""
    own = paddle.optimizer.Optimizer.__init__

    def init(self: Any, learning_rate: Any, parameters_: Any = None, *more: Any, **by: Any) -> None:
        chosen = by.pop("parameters", parameters_)
        own(self, learning_rate, parameters if chosen is None else chosen, *more, **by)

    with patched((paddle.optimizer.Optimizer, "__init__", init)):
        yield


@contextmanager
def _no_new_parameters(directory: str) -> Iterator[None]:
    """A parameter that net() makes for each batch would never learn."""

    def create(self: Any, *_: Any, **__: Any) -> None:
        mine = [f for f in traceback.extract_stack() if Path(f.filename).is_relative_to(directory)]
        where = f"{mine[-1].filename}:{mine[-1].lineno}" if mine else directory
        raise UsageError(
            f"{where}: net() makes a new {type(self).__name__} for each batch",
            hint="make it once, in _init_hyper_parameters, and call it in net()",
        )

    with patched((nn.Layer, "create_parameter", create)), user_code(directory):
        yield


def load_model(
    run: TrainingRun, client: Client | DataParallelTables | None, place: WorkerRank
) -> HooksLearner:
    return HooksLearner(run, HookedModel(run), place, client)


class HooksLearner(DygraphLearner):
    """A Learner of an old Model, whose data are slots or what a user's reader prints."""

    def __init__(
        self, run: TrainingRun, model: HookedModel, place: WorkerRank,
        client: Client | DataParallelTables | None = None,
    ) -> None:  # fmt: skip
        super().__init__(run, model, place, client)
        self.run, self.metrics = run, {**model.own, **self.metrics}

    def source(self, reading: Reading, place: WorkerRank | None = None) -> ChunkSource:
        form, warn = make_format(reading, self.run.config), self.place.say
        seed, place = self.run.seed, place or self.place
        make = partial(arrays_of, reading=reading)
        return make_source(form, reading, place, seed=seed, warn=warn, make=make)


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
        if isinstance(ids, np.ndarray):
            wide = ids
        else:
            width = max(1, int(ids.lengths.max(initial=0)))
            wide = np.full((batch.size, width), reading.padding, np.int64)
            wide[np.arange(width) < ids.lengths[:, None]] = ids.values
        found[name] = wide.reshape(batch.size, -1)
    found.update(batch.dense)
    return found
