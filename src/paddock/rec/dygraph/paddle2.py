"""Behaviours of Paddle 2 that models were written for, while a user's code runs.

TruncatedNormal: Paddle 3 takes a and b as the bounds themselves, -2 and 2 by default, so that with
a small std nothing is cut; Paddle 2 cut at two std. Source: paddlepaddle 3.3,
nn/initializer/normal.py; 2.6, TruncatedGaussianRandomKernel.

Operators of a float tensor with an int or bool tensor: Paddle 3 raises, Paddle 2 cast the right
one to the left one's type. Here the whole numbers become floats, on whichever side they stand:
Paddle 2's int * float was cut to whole numbers, which no model can have meant. Functions
(paddle.multiply) raised in both.

float() and int() of a tensor of shape [1], the scalar of Paddle 2: since numpy 2.4 an error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import paddle
from paddle.nn import initializer

OPERATORS = (
    "add", "radd", "sub", "rsub", "mul", "rmul", "truediv", "rtruediv", "pow", "rpow",
    "floordiv", "mod", "eq", "ne", "lt", "le", "gt", "ge",
)  # fmt: skip
STD_MAX = 2.0


@contextmanager
def as_in_paddle_2() -> Iterator[None]:
    """Within it Paddle behaves as Paddle 2 did."""
    changed: list[tuple[Any, str, Any]] = []
    for name in (f"__{operator}__" for operator in OPERATORS):
        own = getattr(paddle.Tensor, name, None)
        if own is not None:
            changed.append((paddle.Tensor, name, own))
            setattr(paddle.Tensor, name, _promoting(own))
    for name in ("__float__", "__int__"):
        own = getattr(paddle.Tensor, name)
        changed.append((paddle.Tensor, name, own))
        setattr(paddle.Tensor, name, _of_one(own))
    begin = initializer.TruncatedNormal.__init__
    changed.append((initializer.TruncatedNormal, "__init__", begin))
    initializer.TruncatedNormal.__init__ = _cut_at_two(begin)
    try:
        yield
    finally:
        for owner, name, own in changed:
            setattr(owner, name, own)


def _promoting(own: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    tensor = paddle.Tensor

    def operator(left: Any, right: Any) -> Any:
        if isinstance(right, tensor) and left.dtype != right.dtype:
            if left.is_floating_point() and not _is_float(right):
                right = right.astype(left.dtype)
            elif right.is_floating_point() and not _is_float(left):
                left = left.astype(right.dtype)
        return own(left, right)

    return operator


def _of_one(own: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda one: own(one.reshape([]) if one.ndim and one.size == 1 else one)


def _is_float(one: Any) -> bool:
    return bool(one.is_floating_point() or one.is_complex())


def _cut_at_two(begin: Callable[..., None]) -> Callable[..., None]:
    def init(
        self: Any,
        mean: float = 0.0,
        std: float = 1.0,
        a: float | None = None,
        b: float | None = None,
        name: str | None = None,
    ) -> None:
        low = mean - STD_MAX * std if a is None else a
        high = mean + STD_MAX * std if b is None else b
        begin(self, mean, std, low, high, name)

    return init
