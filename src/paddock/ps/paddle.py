# mypy: disallow-subclassing-any=False, disallow-any-decorated=False
"""PaddlePaddle 3 on the parameter server, in dygraph: what fleet's static graphs had before 3.1.

    model = WideDeep(client)                     # an nn.Layer that holds ps.paddle.Embedding
    trainer = ps.paddle.Trainer(client, model, optimizer="adam", lr=1e-3)
    for ids, dense, label in batches:
        trainer.step(loss(model(ids, dense), label))

The optimizers run on the servers; Paddle computes losses and gradients.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import paddle
from numpy.typing import NDArray
from paddle import nn
from paddle.nn import functional
from paddle.utils import dlpack

from paddock.errors import UsageError
from paddock.ps.adapters.arguments import Floats, Keys
from paddock.ps.adapters.collection import Bags, CollectionBase, KeyedJagged
from paddock.ps.adapters.dense import DenseBase, ModelParameters
from paddock.ps.adapters.embedding import EmbeddingBase
from paddock.ps.adapters.framework import Framework
from paddock.ps.adapters.freshness import at_once, never
from paddock.ps.adapters.trainer import TrainerBase
from paddock.ps.optimizers.schedules import Rate

__all__ = ["Bags", "DenseParameters", "Embedding", "EmbeddingCollection", "KeyedJagged", "Trainer"]


def _array(tensor: paddle.Tensor) -> NDArray[Any]:
    """The tensor as a numpy array; no copy where it is on the CPU and lets itself be shared."""
    still = tensor.detach()
    if not still.place.is_cpu_place():
        return np.asarray(still.numpy())
    shared: NDArray[Any] = np.from_dlpack(still.contiguous())
    return shared


def _share(vector: ModelParameters) -> Callable[[], object]:
    pairs = list(zip(vector.tensors, vector.views(vector.values), strict=True))

    def copy() -> None:
        for parameter, view in pairs:
            parameter.set_value(view)

    if not all(parameter.place.is_cpu_place() for parameter in vector.tensors):
        return copy
    # _share_buffer_to is what Paddle's own fused parameter buffers use (3.3,
    # distributed/fleet/utils/tensor_fusion_helper.py); it has no public name.
    for parameter, view in pairs:
        dlpack.from_dlpack(view)._share_buffer_to(parameter)
    return lambda: None


def _leaf(
    found: Floats, like: paddle.Tensor | None, learns: bool, take: Callable[[Floats], None]
) -> paddle.Tensor:
    rows = dlpack.from_dlpack(found)
    if learns and paddle.is_grad_enabled():
        rows.stop_gradient = False
        # A copy: Paddle adds a second backward()'s gradient into the same memory.
        rows.register_hook(lambda grad: take(np.array(_array(grad))))
    return rows


def _spread(
    rows: paddle.Tensor,
    inverse: NDArray[Any],
    shape: Sequence[int],
    starts: Keys | None,
    how: str,
    weights: paddle.Tensor | None = None,
) -> paddle.Tensor:
    each, dim = functional.embedding(dlpack.from_dlpack(inverse), rows), rows.shape[-1]
    if weights is not None:
        each = each * weights.astype("float32").reshape([-1, 1])
    if starts is None:
        each = each.reshape([*shape, dim])
        if how == "none":
            return each
        return each.mean(1) if how == "mean" else each.sum(1)
    # The differentiable way of Paddle.
    lengths = np.diff(starts, append=each.shape[0])
    bag = paddle.to_tensor(np.repeat(np.arange(len(starts)), lengths).reshape(-1, 1))
    empty = paddle.zeros([len(starts), dim], "float32")
    sums = paddle.scatter_nd_add(empty, bag, each) if each.shape[0] else empty
    if how == "sum":
        return sums
    return sums / paddle.to_tensor(np.maximum(lengths, 1).astype(np.float32).reshape(-1, 1))


PADDLE = Framework(
    tensor=paddle.Tensor,
    array=_array,
    flat=lambda tensors: _array(paddle.concat([one.detach().reshape([-1]) for one in tensors])),
    zeros_like=paddle.zeros_like,
    modules=lambda layer: layer.sublayers(include_self=True),
    trained=lambda layer: [(n, p) for n, p in layer.named_parameters() if not p.stop_gradient],
    # Running statistics are parameters that are not trained.
    state=lambda layer: layer.state_dict().values(),
    assign=lambda tensor, values: tensor.set_value(values),
    with_gradients=paddle.is_grad_enabled,
    in_one_graph=never,
    apart=at_once,
    share=_share,
    leaf=_leaf,
    spread=_spread,
    with_zeros=lambda rows: paddle.concat([rows, paddle.zeros([1, rows.shape[-1]])]),
    take=lambda vector, places: vector[dlpack.from_dlpack(places)],
)


class Embedding(EmbeddingBase, nn.Layer):
    __doc__ = EmbeddingBase.__doc__
    framework = PADDLE


class EmbeddingCollection(CollectionBase, nn.Layer):
    __doc__ = CollectionBase.__doc__
    layer_type = Embedding
    list_type = nn.LayerList


class DenseParameters(DenseBase):
    __doc__ = DenseBase.__doc__
    framework = PADDLE


class Trainer(TrainerBase):
    __doc__ = TrainerBase.__doc__
    dense_type = DenseParameters


def module_of(optimizer: Any) -> nn.Layer:
    """The parameters that an optimizer trains, as a layer. Raises UsageError if it has none."""
    if not optimizer._parameter_list:
        raise UsageError(
            f"{type(optimizer).__name__} has no parameters, as in a static program",
            hint=f"{type(optimizer).__name__}(..., parameters=model.parameters())",
        )
    return nn.ParameterList(optimizer._parameter_list)


def rate_of(optimizer: Any) -> Callable[..., Rate] | None:
    """The rate of an optimizer that an LRScheduler drives, as Table.rate; else None."""
    lr = optimizer._learning_rate
    return (lambda _: Rate(float(lr()))) if callable(lr) else None
