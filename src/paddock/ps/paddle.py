# mypy: disallow-subclassing-any=False, disallow-any-decorated=False
"""PaddlePaddle 3 on the parameter server, in dygraph: what fleet's static graphs had before 3.1.

    model = WideDeep(client)                     # an nn.Layer that holds ps.paddle.Embedding
    trainer = ps.paddle.Trainer(client, model, optimizer="adam", lr=1e-3)
    for ids, dense, label in batches:
        trainer.step(loss(model(ids, dense), label))

The optimizers run on the servers; Paddle computes losses and gradients.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import paddle
from numpy.typing import NDArray
from paddle import nn
from paddle.nn import functional
from paddle.utils import dlpack

from paddock.errors import UsageError
from paddock.ps.adapter import (
    FlatParameters,
    Floats,
    Gradient,
    Keys,
    Lookup,
    Rows,
    TableClient,
    as_optimizer,
    as_sparse_spec,
    bags_of,
    check_offsets,
    check_pooling,
    end_batch,
    push_batch,
)
from paddock.ps.spec import OptimizerSpec, SparseSpec

__all__ = ["DenseParameters", "Embedding", "Trainer"]


class Embedding(nn.Layer):
    """Rows of a sparse table by int64 id, any id; with gradients that go back to the table.

    pooling "none": ids of any shape give (*shape, dim). "sum" and "mean": ids of shape (bags,
    length) give (bags, dim); so do flat ids with `offsets`, and a list of one id tensor per bag;
    an empty bag gives zeros.

    push_in_backward: each look-up's gradient is pushed as soon as backward() has it. False: they
    wait for push(), which sends them as one, and Trainer does that. In eval mode, or without
    gradients (paddle.no_grad), rows are looked up and nothing is ever pushed.
    """

    def __init__(
        self,
        client: TableClient,
        table: str | SparseSpec,
        dim: int | None = None,
        *,
        optimizer: str | OptimizerSpec = "adagrad",
        lr: float | None = None,
        pooling: str = "none",
        push_in_backward: bool = True,
    ) -> None:
        super().__init__()
        spec = as_sparse_spec(table, dim, optimizer, lr)
        self.pooling = check_pooling(pooling)
        self.rows = Rows(client, spec, at_once=push_in_backward)

    @property
    def dim(self) -> int:
        """Floats in a row."""
        return self.rows.spec.dim

    def extra_repr(self) -> str:
        return f"{self.rows}, pooling={self.pooling!r}"

    def forward(
        self,
        ids: paddle.Tensor | Sequence[paddle.Tensor],
        offsets: paddle.Tensor | None = None,
        *,
        clicks: paddle.Tensor | None = None,
    ) -> paddle.Tensor:
        """The rows of ids, pooled. clicks: one per id, where the table keeps statistics."""
        starts: Keys | None = None if offsets is None else np.asarray(offsets.numpy())
        if not isinstance(ids, paddle.Tensor):
            if starts is not None:
                raise UsageError("offsets beside a list of ids", hint="give one of the two")
            starts = bags_of([int(bag.shape[0]) for bag in ids])
            array = np.concatenate([np.zeros(0, np.int64), *(bag.numpy() for bag in ids)])
        else:
            array = np.asarray(ids.numpy())
        found = self.rows.look_up(array, None if clicks is None else clicks.numpy().reshape(-1))
        rows = self._leaf(found)
        inverse = dlpack.from_dlpack(found.inverse)
        if self.pooling == "none":
            if starts is not None:
                raise UsageError("offsets without pooling", hint='pooling="sum" or "mean"')
            return functional.embedding(inverse, rows).reshape([*array.shape, self.dim])
        if starts is None:
            if array.ndim != 2:
                raise UsageError(
                    f"pooling {self.pooling!r} of ids of shape {array.shape}",
                    hint="shape (bags, length), or flat ids with offsets, or a list of tensors",
                )
            each = functional.embedding(inverse, rows).reshape([*array.shape, self.dim])
            return each.mean(1) if self.pooling == "mean" else each.sum(1)
        return self._bags(functional.embedding(inverse, rows), check_offsets(starts, array.size))

    def _bags(self, each: paddle.Tensor, starts: Keys) -> paddle.Tensor:
        """(ids, dim) summed or averaged to (bags, dim); the differentiable way of Paddle."""
        lengths = np.diff(starts, append=each.shape[0])
        bag = paddle.to_tensor(np.repeat(np.arange(len(starts)), lengths).reshape(-1, 1))
        empty = paddle.zeros([len(starts), self.dim], "float32")
        sums = paddle.scatter_nd_add(empty, bag, each) if each.shape[0] else empty
        if self.pooling == "sum":
            return sums
        return sums / paddle.to_tensor(np.maximum(lengths, 1).astype(np.float32).reshape(-1, 1))

    def _leaf(self, found: Lookup) -> paddle.Tensor:
        """The rows as the leaf of a graph; its gradient, once summed, goes to the table."""
        rows = dlpack.from_dlpack(found.rows)
        if not (self.training and paddle.is_grad_enabled()):
            return rows
        rows.stop_gradient = False

        def take(grad: paddle.Tensor) -> None:
            # A copy: Paddle adds a second backward()'s gradient into the same memory.
            grads = np.array(_array(grad))
            self.rows.receive(Gradient(found.keys, grads, found.shows, found.clicks))

        rows.register_hook(take)
        return rows

    def prefetch(self, ids: paddle.Tensor) -> None:
        """Asks for the rows of a later batch now, so that they travel while this one computes."""
        self.rows.client.prefetch(self.rows.spec.name, ids.numpy().reshape(-1))

    def push(self) -> int:
        """Sends the gradients that wait. Returns of how many look-ups."""
        return self.rows.push()


class DenseParameters:
    """A layer's parameters as views of one pulled float32 vector. Trainer 0 initialises it."""

    def __init__(
        self,
        client: TableClient,
        layer: nn.Layer,
        *,
        table: str = "dense",
        optimizer: str | OptimizerSpec = "sgd",
        lr: float | None = None,
        merge: str = "mean",
    ) -> None:
        named = [(name, p) for name, p in layer.named_parameters() if not p.stop_gradient]
        for name, parameter in named:
            if parameter.dtype != paddle.float32:
                raise UsageError(
                    f"parameter {name!r} is {parameter.dtype}", hint="dense tables are float32"
                )
        self._parameters = [p for _, p in named]
        self._flat = FlatParameters(
            client,
            [(name, tuple(p.shape)) for name, p in named],
            table=table,
            optimizer=as_optimizer(optimizer, lr),
            merge=merge,
        )
        views = self._flat.views(self._flat.values)
        for view, parameter in zip(views, self._parameters, strict=True):
            view[...] = parameter.numpy()
        self._flat.start()
        self._shared = all(p.place.is_cpu_place() for p in self._parameters)
        if self._shared:
            # _share_buffer_to is what Paddle's own fused parameter buffers use (3.3,
            # distributed/fleet/utils/tensor_fusion_helper.py); it has no public name.
            for view, parameter in zip(views, self._parameters, strict=True):
                dlpack.from_dlpack(view)._share_buffer_to(parameter)
        else:
            self._copy_out()

    @property
    def flat(self) -> Floats:
        """(size,) float32: all parameters as last pulled. A view, not a copy."""
        return self._flat.values

    def pull(self) -> None:
        """The parameters become the servers' newest ones."""
        self._flat.pull()
        if not self._shared:
            self._copy_out()

    def push(self) -> None:
        """Sends the gradients as one vector, zeros for those not used, and clears them.

        Raises Refusal, and clears them too, when one is not finite.
        """
        push_batch([], self)

    def gather(self) -> None:
        """Brings the gradients into one vector. Raises Refusal when one is not finite."""
        for view, parameter in zip(
            self._flat.views(self._flat.grads), self._parameters, strict=True
        ):
            view[...] = 0.0 if parameter.grad is None else _array(parameter.grad)
        self._flat.check()

    def send(self) -> None:
        """Sends the gathered vector."""
        self._flat.push()

    def forget(self) -> None:
        """Clears the gradients."""
        for parameter in self._parameters:
            parameter.clear_gradient(set_to_zero=False)

    def _copy_out(self) -> None:
        for view, parameter in zip(
            self._flat.views(self._flat.values), self._parameters, strict=True
        ):
            parameter.set_value(view)


class Trainer:
    """One batch after another: all tables of a model pushed as one step, the new values pulled."""

    def __init__(
        self,
        client: TableClient,
        layer: nn.Layer,
        *,
        table: str = "dense",
        optimizer: str | OptimizerSpec = "sgd",
        lr: float | None = None,
    ) -> None:
        self.client = client
        layers = layer.sublayers(include_self=True)
        self.embeddings = [part for part in layers if isinstance(part, Embedding)]
        for embedding in self.embeddings:
            embedding.rows.at_once = False
        has_own = any(not p.stop_gradient for p in layer.parameters())
        self.dense = (
            DenseParameters(client, layer, table=table, optimizer=optimizer, lr=lr)
            if has_own
            else None
        )

    def step(self, loss: paddle.Tensor | None = None) -> None:
        """Ends a batch: backward of loss (where given), push, step, pull.

        Raises Refusal when a gradient is not finite: nothing of the batch is sent then, its
        gradients are dropped, and the next batch goes on as if this one had not been.
        """
        tables = [embedding.rows for embedding in self.embeddings]
        end_batch(self.client, tables, self.dense, loss, paddle.Tensor)


def _array(tensor: paddle.Tensor) -> NDArray[Any]:
    """The tensor as a numpy array; no copy where it is on the CPU and lets itself be shared."""
    still = tensor.detach()
    if not still.place.is_cpu_place():
        return np.asarray(still.numpy())
    shared: NDArray[Any] = np.from_dlpack(still.contiguous())
    return shared
