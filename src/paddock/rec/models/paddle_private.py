"""Paddle's private attributes: they are read in this file only, since nothing public has them.

Source: paddlepaddle 3.3.1, python/paddle: optimizer/*.py, regularizer.py, nn/layer/layers.py,
nn/layer/common.py and norm.py, framework/framework.py.
"""

from __future__ import annotations

from operator import attrgetter
from typing import Any

# Of an optimizer: its own list of parameters, which may be changed, or of groups, as dicts; the
# learning rate, a number or a scheduler, which is called.
parameters_of = attrgetter("_parameter_list")
rate_of = attrgetter("_learning_rate")
# The factor of a weight decay.
coefficient_of = attrgetter("_coeff")
# Of an nn.Embedding: True if its gradients have the rows of the batch only; the largest norm of a
# row, None is any; the id whose row is zeros, -1 or None where there is none.
is_sparse = attrgetter("_sparse")
max_norm_of = attrgetter("_max_norm")
padding_of = attrgetter("_padding_idx")
# Of a layer, by attribute, both may be changed; a parameter that is None is a declared one.
own_parameters = attrgetter("_parameters")
own_buffers = attrgetter("_buffers")
# Of a batch norm: the running mean and variance, (channels,) float32 each.
statistics_of = attrgetter("_mean", "_variance")


def setting(optimizer: Any, name: str) -> Any:
    """An argument of an optimizer's constructor, by its name: lazy_mode, centered."""
    return getattr(optimizer, f"_{name}")


def setting_or_none(optimizer: Any, name: str) -> Any:
    """An argument that only some optimizers have: grad_clip, amsgrad."""
    return getattr(optimizer, f"_{name}", None)


def numbers(optimizer: Any, *names: str) -> dict[str, float]:
    """Arguments of an optimizer's constructor that are numbers, by name."""
    return {name: float(setting(optimizer, name)) for name in names}


def make_dense(embedding: Any) -> None:
    """From now on the layer's gradients have all rows."""
    embedding._sparse = False


def current_place(paddle: Any) -> Any:
    """The device that Paddle computes on, as its data loader takes it."""
    return paddle.framework._current_expected_place()


def set_threads(paddle: Any, count: int) -> None:
    """The processor threads of one operator."""
    paddle.base.core.set_num_threads(count)
