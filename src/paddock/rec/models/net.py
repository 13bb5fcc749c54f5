"""A model is described once, with a Net, and run by torch or by Paddle.

A model asks a Net for its parts (tables, layers) when it is made, and for operations in forward().
First values are functions of the seed and the part's name: alike in both frameworks, alone and
with servers. torch_nn.py and paddle_nn.py say what is theirs; nothing here imports a framework.
"""

from __future__ import annotations

import math
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from paddock.data.batch import Batch
from paddock.errors import UsageError
from paddock.ps.adapters.embedding import EmbeddingBase
from paddock.ps.adapters.framework import Framework
from paddock.ps.adapters.trainer import TrainerBase
from paddock.ps.spec import InitialSpec, OptimizerSpec, SparseSpec
from paddock.ps.table.initial import Initial
from paddock.rec.models.inputs import Fields, Hyper

Tensor = Any
Layer = Callable[[Tensor], Tensor]
ZEROS = InitialSpec("zeros")


@dataclass(frozen=True)
class Output:
    """The result of forward() for a batch.

    scores: (examples,) in [0, 1], or (examples, classes). loss: None where the batch has no label.
    labels: (examples,), numpy.
    """

    scores: Tensor
    loss: Tensor | None
    labels: NDArray[np.float32]


class Model(Protocol):
    """The model of a model.py, made of a Net and hyper-parameters."""

    metrics: Sequence[str]  # Names in paddock.rec.metrics.METRICS.

    def __init__(self, net: Any, hyper: Hyper) -> None: ...

    def forward(self, batch: Batch) -> Output:
        """Scores and loss of a batch.

        A model may also have wants(batch), the tables and ids that forward() will look up.
        """


def check_labels(labels: NDArray[Any], classes: int) -> None:
    """Raises UsageError for a label that is none of the classes, 0 to classes - 1.

    >>> check_labels(np.float32([0, 1, 1]), 2)
    >>> check_labels(np.float32([0, 2]), 2)
    Traceback (most recent call last):
    ...
    paddock.errors.UsageError: a label is 2, and the model has labels from 0 to 1 \
(hint: `paddock data check` lists the lines)
    """
    bad = (labels < 0) | (labels >= classes) | (labels % 1 != 0)
    if bad.any():
        raise UsageError(
            f"a label is {labels[bad][0]:g}, and the model has labels from 0 to {classes - 1}",
            hint="`paddock data check` lists the lines",
        )


class Table:
    """Rows by id below `rows`: of ids of any shape; of fields, each of which is its ids' sum."""

    def __init__(self, layer: EmbeddingBase, rows: int, like: Tensor | None) -> None:
        self.layer, self.rows, self._like = layer, rows, like
        self.spec: SparseSpec = layer.rows.spec

    def __call__(self, ids: Fields | NDArray[np.int64]) -> Tensor:
        """The rows: of an array of ids (*shape, dim); of fields (examples, fields, dim)."""
        layer = self.layer
        found = layer.rows.look_up(self.ids(ids), None)
        rows, inverse = layer.leaf(found, self._like), found.inverse
        spread = layer.framework.spread
        if isinstance(ids, Fields) and ids.lengths is not None:
            pooled = spread(rows, inverse, ids.values.shape, ids.starts, "sum", None)
            return pooled.reshape([*ids.shape, self.spec.dim])
        shape = ids.values.shape if isinstance(ids, Fields) else ids.shape
        return spread(rows, inverse, shape, None, "none", None)

    def ids(self, ids: Fields | NDArray[np.int64]) -> NDArray[np.int64]:
        """The ids, flat, (n,) int64. Raises UsageError for one that is not below `rows`."""
        flat = (ids.values if isinstance(ids, Fields) else ids).reshape(-1)
        for worst in (int(flat.max()), int(flat.min())) if flat.size else ():
            if not 0 <= worst < self.rows:
                raise UsageError(
                    f"id {worst} for table {self.spec.name!r} of {self.rows} rows",
                    hint="ids are 0 or more, and below hyper_parameters.sparse_feature_number",
                )
        return flat


class Net(ABC):
    """Parts and operations of one framework. Tensors have + - * /, @, [], sum, mean, reshape."""

    framework: Framework
    name: str  # torch | paddle
    root: Any  # The module that has all layers.
    functional: Any  # The framework's module of functions, and its context without gradients.
    no_grad: Callable[[], AbstractContextManager[None]]
    batch_norm_layer: Callable[[int], Layer]
    embedding_layer: Callable[..., EmbeddingBase]
    # Operations that are alike in both: relu(x), softmax(x, axis), class_loss(logits, label) ...
    relu: Callable[[Tensor], Tensor]
    sigmoid: Callable[[Tensor], Tensor]
    softmax: Callable[[Tensor, int], Tensor]
    class_loss: Callable[[Tensor, Tensor], Tensor]
    binary_loss: Callable[[Tensor, Tensor], Tensor]  # of logits and labels
    concat: Callable[[Sequence[Tensor], int], Tensor]
    like: Tensor | None = None  # A tensor of the device that rows go to; None: the current one.

    def __init__(self, client: Any, rule: OptimizerSpec, seed: int) -> None:
        self.client, self.rule, self.seed = client, rule, seed
        self.tables: dict[str, Table] = {}

    # -------------------------------------------------------------------------------------- parts

    def table(
        self,
        name: str,
        rows: int,
        dim: int,
        initial: InitialSpec,
        rule: OptimizerSpec | None = None,
    ) -> Table:
        """A table of `rows` rows: here, or on the servers. rule: None is that of the model."""
        first = replace(initial, seed=self._seed(name))
        spec = SparseSpec(name, dim, self.rule if rule is None else rule, first)
        layer = self.embedding_layer(self.client, spec, push_in_backward=False)
        setattr(self.root, name, layer)
        self.tables[name] = Table(layer, rows, self.like)
        return self.tables[name]

    def linear(
        self, name: str, inputs: int, outputs: int, weight: InitialSpec | None = None
    ) -> Layer:
        """x @ weight + bias; the weight is Normal(0, 1 / sqrt(inputs)) if nothing is said."""
        weight = InitialSpec("normal", 1.0 / math.sqrt(inputs)) if weight is None else weight
        first = self.first(f"{name}.weight", (inputs, outputs), weight)
        layer = self._linear(first, np.zeros(outputs, np.float32))
        setattr(self.root, name, layer)
        return layer

    def mlp(self, name: str, sizes: Sequence[int], activation: str = "relu") -> Layer:
        """Linear layers of these widths, the activation between them and not after the last."""
        layers = [
            self.linear(f"{name}_{number}", inputs, outputs)
            for number, (inputs, outputs) in enumerate(pairwise(sizes))
        ]
        act = getattr(self, activation)

        def run(x: Tensor) -> Tensor:
            for layer in layers[:-1]:
                x = act(layer(x))
            return layers[-1](x)

        return run

    def conv(self, name: str, inputs: int, outputs: int, size: int, stride: int = 1) -> Layer:
        """A square convolution without bias, padded to keep the size. He et al. 2015, (10)."""
        initial = InitialSpec("normal", math.sqrt(2.0 / (outputs * size * size)))
        first = self.first(f"{name}.weight", (outputs, inputs, size, size), initial)
        layer = self._conv(first, stride)
        setattr(self.root, name, layer)
        return layer

    def batch_norm(self, name: str, channels: int) -> Layer:
        """A layer of (examples, channels, height, width); running statistics for evaluation."""
        layer = self.batch_norm_layer(channels)
        setattr(self.root, name, layer)
        return layer

    def parameter(self, name: str, shape: Sequence[int], initial: InitialSpec) -> Tensor:
        """A tensor that learns."""
        return self._parameter(name, self.first(name, shape, initial))

    def first(self, name: str, shape: Sequence[int], initial: InitialSpec) -> NDArray[np.float32]:
        """First values of a part, float32, made as a table's row: a function of seed and name."""
        drawn = Initial(replace(initial, seed=self._seed(name)), math.prod(shape))
        return drawn.values(np.zeros(1, np.int64)).reshape(shape)

    def _seed(self, name: str) -> int:
        return zlib.crc32(f"{self.seed} {name}".encode())

    # ----------------------------------------------------------------------------------- outputs

    def click(self, logit: Tensor, batch: Batch) -> Output:
        """The chance of a click and the mean log loss, of one logit for each example."""
        logit = logit.reshape([-1])
        loss = None
        if len(batch.label):
            check_labels(batch.label, 2)
            loss = self.binary_loss(logit, self.tensor(batch.label))
        return Output(self.sigmoid(logit), loss, batch.label)

    def two_classes(self, logits: Tensor, batch: Batch) -> Output:
        """As click(), of a logit for "no" and one for "yes"."""
        both = self.classes(logits, batch.label)
        return replace(both, scores=both.scores[:, 1])

    def classes(self, logits: Tensor, labels: NDArray[Any]) -> Output:
        """Softmax and the mean cross entropy, of a logit for each class: (examples, classes)."""
        loss = None
        if len(labels):
            check_labels(labels, logits.shape[-1])
            loss = self.class_loss(logits, self.tensor(labels.astype(np.int64)))
        return Output(self.softmax(logits, -1), loss, labels.astype(np.float32))

    def pool(self, x: Tensor, size: int, stride: int) -> Tensor:
        """The largest of each square, padded by half its size."""
        return self.functional.max_pool2d(x, size, stride, size // 2)

    def dropout(self, x: Tensor, chance: float) -> Tensor:
        """Zeros in place of some numbers, where the model learns."""
        return self.functional.dropout(x, chance, training=self.root.training)

    @contextmanager
    def evaluating(self) -> Iterator[None]:
        """A context in which nothing learns."""
        self.root.eval()
        try:
            with self.no_grad():
                yield
        finally:
            self.root.train()

    # ------------------------------------------------------------------- what a framework fills in

    @abstractmethod
    def tensor(self, array: NDArray[Any]) -> Tensor:
        """The array on the device, with its shape and dtype: int64 or float32."""

    @abstractmethod
    def trainer(self) -> TrainerBase:
        """The trainer that updates all parts; made when the model is."""

    @abstractmethod
    def state(self) -> dict[str, Any]:
        """Dense parameters and buffers by name, numpy, as the framework's own layers have them."""

    @abstractmethod
    def save_state(self, state: dict[str, Any], path: str) -> None:
        """As torch.load or paddle.load reads it."""

    @abstractmethod
    def read_state(self, path: str) -> dict[str, Any]:
        """The arrays that save_state wrote; nothing that a pickle may hold is run."""

    @abstractmethod
    def load_state(self, state: dict[str, Any]) -> None:
        """Dense parameters and buffers become these."""

    @abstractmethod
    def _linear(self, weight: NDArray[Any], bias: NDArray[Any]) -> Layer: ...
    @abstractmethod
    def _conv(self, weight: NDArray[Any], stride: int) -> Layer: ...
    @abstractmethod
    def _parameter(self, name: str, first: NDArray[Any]) -> Tensor: ...
