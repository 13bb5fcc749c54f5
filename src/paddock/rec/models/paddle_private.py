"""Paddle's private attributes: they are read in this file only, since nothing public has them.

Source: paddlepaddle 3.3.1, python/paddle: optimizer/*.py, regularizer.py, nn/layer/layers.py,
nn/layer/common.py and norm.py, framework/framework.py.
"""

from __future__ import annotations

from typing import Any


def setting(optimizer: Any, name: str) -> Any:
    """An argument of an optimizer's constructor, by its name: lazy_mode, centered."""
    return getattr(optimizer, f"_{name}")


def setting_or_none(optimizer: Any, name: str) -> Any:
    """An argument that only some optimizers have: grad_clip, amsgrad."""
    return getattr(optimizer, f"_{name}", None)


def numbers(optimizer: Any, *names: str) -> dict[str, float]:
    """Arguments of an optimizer's constructor that are numbers, by name."""
    return {name: float(getattr(optimizer, f"_{name}")) for name in names}


def parameters_of(optimizer: Any) -> list[Any]:
    """The optimizer's own list of parameters, which may be changed; or of groups, as dicts."""
    listed: list[Any] = optimizer._parameter_list
    return listed


def rate_of(optimizer: Any) -> Any:
    """The learning rate: a number or a scheduler, which is called."""
    return optimizer._learning_rate


def coefficient_of(regularizer: Any) -> float:
    """The factor of a weight decay."""
    return float(regularizer._coeff)


def is_sparse(embedding: Any) -> bool:
    """The layer's gradients have the rows of the batch only."""
    return bool(embedding._sparse)


def make_dense(embedding: Any) -> None:
    """From now on the layer's gradients have all rows."""
    embedding._sparse = False


def max_norm_of(embedding: Any) -> float | None:
    """The largest norm of a row that is looked up; None is any."""
    found: float | None = embedding._max_norm
    return found


def padding_of(embedding: Any) -> int | None:
    """The id whose row is zeros; -1 or None where there is none."""
    found: int | None = embedding._padding_idx
    return found


def own_parameters(layer: Any) -> dict[str, Any]:
    """The layer's own parameters by attribute, which may be changed; None is a declared one."""
    found: dict[str, Any] = layer._parameters
    return found


def own_buffers(layer: Any) -> dict[str, Any]:
    """The layer's own buffers by attribute."""
    found: dict[str, Any] = layer._buffers
    return found


def statistics_of(batch_norm: Any) -> tuple[Any, Any]:
    """The running mean and variance: (channels,) float32 each."""
    return batch_norm._mean, batch_norm._variance


def current_place(paddle: Any) -> Any:
    """The device that Paddle computes on, as its data loader takes it."""
    return paddle.framework._current_expected_place()


def set_threads(paddle: Any, count: int) -> None:
    """The processor threads of one operator."""
    paddle.base.core.set_num_threads(count)
