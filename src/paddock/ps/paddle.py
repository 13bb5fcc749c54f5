# mypy: disallow-subclassing-any=False, disallow-any-decorated=False
"""PaddlePaddle 3 on the parameter server, in dygraph: what fleet's static graphs had before 3.1.

    model = WideDeep(client)                     # an nn.Layer that holds ps.paddle.Embedding
    trainer = ps.paddle.Trainer(client, model, optimizer="adam", lr=1e-3)
    for ids, dense, label in batches:
        trainer.step(loss(model(ids, dense), label))

The optimizers run on the servers; Paddle computes losses and gradients.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import paddle
from numpy.typing import NDArray
from paddle import nn
from paddle.nn import functional
from paddle.utils import dlpack

from paddock.ps.adapters.collection import Bags, CollectionBase, KeyedJagged
from paddock.ps.adapters.dense import DenseBase
from paddock.ps.adapters.embedding import EmbeddingBase
from paddock.ps.adapters.framework import Framework
from paddock.ps.adapters.given import Floats, Keys
from paddock.ps.adapters.rows import Lookup
from paddock.ps.adapters.trainer import TrainerBase

__all__ = [
    "Bags",
    "DenseParameters",
    "Embedding",
    "EmbeddingCollection",
    "KeyedJagged",
    "Trainer",
]


def _array(tensor: paddle.Tensor) -> NDArray[Any]:
    """The tensor as a numpy array; no copy where it is on the CPU and lets itself be shared."""
    still = tensor.detach()
    if not still.place.is_cpu_place():
        return np.asarray(still.numpy())
    shared: NDArray[Any] = np.from_dlpack(still.contiguous())
    return shared


PADDLE = Framework(
    paddle.Tensor,
    _array,
    lambda layer: layer.sublayers(include_self=True),
    lambda layer: [(name, p) for name, p in layer.named_parameters() if not p.stop_gradient],
    lambda layer: layer.state_dict(),  # Running statistics are parameters that are not trained.
    lambda tensor, values: tensor.set_value(values),
)


class Embedding(EmbeddingBase, nn.Layer):
    __doc__ = EmbeddingBase.__doc__
    framework = PADDLE

    def leaf(self, found: Lookup, like: paddle.Tensor | None) -> paddle.Tensor:
        rows = dlpack.from_dlpack(found.rows)
        if not (self.training and paddle.is_grad_enabled()):
            return rows
        rows.stop_gradient = False
        # A copy: Paddle adds a second backward()'s gradient into the same memory.
        rows.register_hook(lambda grad: self.receive(found, np.array(_array(grad))))
        return rows

    def spread(
        self, found: Lookup, rows: paddle.Tensor, shape: tuple[int, ...], starts: Keys | None
    ) -> paddle.Tensor:
        each = functional.embedding(dlpack.from_dlpack(found.inverse), rows)
        if starts is None:
            each = each.reshape([*shape, self.dim])
            if self.pooling == "none":
                return each
            return each.mean(1) if self.pooling == "mean" else each.sum(1)
        # The differentiable way of Paddle.
        lengths = np.diff(starts, append=each.shape[0])
        bag = paddle.to_tensor(np.repeat(np.arange(len(starts)), lengths).reshape(-1, 1))
        empty = paddle.zeros([len(starts), self.dim], "float32")
        sums = paddle.scatter_nd_add(empty, bag, each) if each.shape[0] else empty
        if self.pooling == "sum":
            return sums
        return sums / paddle.to_tensor(np.maximum(lengths, 1).astype(np.float32).reshape(-1, 1))


class EmbeddingCollection(CollectionBase, nn.Layer):
    __doc__ = CollectionBase.__doc__
    layer_type = Embedding
    list_type = nn.LayerList


class DenseParameters(DenseBase):
    __doc__ = DenseBase.__doc__
    framework = PADDLE

    def bind(self) -> None:
        self._shared = all(p.place.is_cpu_place() for p in self.parameters)
        if not self._shared:
            self.copy_out()
            return
        # _share_buffer_to is what Paddle's own fused parameter buffers use (3.3,
        # distributed/fleet/utils/tensor_fusion_helper.py); it has no public name.
        views = self.vector.views(self.vector.values)
        for parameter, view in zip(self.parameters, views, strict=True):
            dlpack.from_dlpack(view)._share_buffer_to(parameter)

    @property
    def flat(self) -> Floats:
        """(size,) float32: all parameters as last pulled. A view, not a copy."""
        return self.vector.values

    def copy_out(self) -> None:
        if not self._shared:
            views = self.vector.views(self.vector.values)
            for parameter, view in zip(self.parameters, views, strict=True):
                parameter.set_value(view)

    def copy_in(self) -> None:
        views = self.vector.views(self.vector.grads)
        for parameter, view in zip(self.parameters, views, strict=True):
            view[...] = 0.0 if parameter.grad is None else _array(parameter.grad)

    def clear(self) -> None:
        for parameter in self.parameters:
            parameter.clear_gradient(set_to_zero=False)


class Trainer(TrainerBase):
    __doc__ = TrainerBase.__doc__
    dense_type = DenseParameters
