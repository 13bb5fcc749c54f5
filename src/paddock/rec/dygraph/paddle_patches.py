"""Behaviours of Paddle 2 that models were written for, while a user's code runs.

TruncatedNormal: Paddle 3 takes a and b as the bounds themselves, -2 and 2 by default, so that with
a small std nothing is cut; Paddle 2 cut at two std. Source: paddlepaddle 3.3,
nn/initializer/normal.py; 2.6, TruncatedGaussianRandomKernel.

Operators of a float tensor with an int or bool tensor: Paddle 3 raises, Paddle 2 cast the right
one to the left one's type. Here the whole numbers become floats, on whichever side they stand:
Paddle 2's int * float was cut to whole numbers, which no model can have meant. Functions
(paddle.multiply) raised in both.

float() and int() of a tensor of shape [1], the scalar of Paddle 2: since numpy 2.4 an error.

concat of scalars: those of Paddle 2 had shape [1], those of Paddle 3 have none to be put together.

Names that are gone: is_compiled_with_npu (NPUs are custom devices now), and the little of
paddle.fluid that models of 2.0 to 2.4 still say; rec.config.folder refuses what else they say.

as_served(): what Paddle does otherwise while a model whose embeddings are on the servers computes.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Set
from contextlib import contextmanager
from types import ModuleType, SimpleNamespace
from typing import Any

import paddle
from paddle import nn
from paddle.nn import functional, initializer

from paddock.errors import UsageError
from paddock.rec.models import paddle_private as private

OPERATORS = (
    "add", "radd", "sub", "rsub", "mul", "rmul", "truediv", "rtruediv", "pow", "rpow",
    "floordiv", "mod", "eq", "ne", "lt", "le", "gt", "ge",
)  # fmt: skip
STD_MAX = 2.0


@contextmanager
def patched(*changes: tuple[Any, str, Any]) -> Iterator[None]:
    """Within it these attributes of objects have other values: (owner, name, value)."""
    before = [(owner, name, getattr(owner, name)) for owner, name, _ in changes]
    for owner, name, value in changes:
        setattr(owner, name, value)
    try:
        yield
    finally:
        for owner, name, own in before:
            setattr(owner, name, own)


@contextmanager
def as_in_paddle_2() -> Iterator[None]:
    """Within it Paddle behaves as Paddle 2 did."""
    tensor, normal = paddle.Tensor, initializer.TruncatedNormal
    names = [f"__{one}__" for one in OPERATORS if hasattr(tensor, f"__{one}__")]
    changes: list[tuple[Any, str, Any]]
    changes = [(tensor, name, _promoting(getattr(tensor, name))) for name in names]
    for name in ("__float__", "__int__"):
        own = getattr(tensor, name)
        scalar = lambda one, own=own: own(  # noqa: E731
            one.reshape([]) if one.ndim and one.size == 1 else one
        )
        changes.append((tensor, name, scalar))
    changes.append((normal, "__init__", _cut_at_two(normal.__init__)))
    changes.append((paddle, "concat", _of_scalars(paddle.concat)))
    _give_back_what_is_gone()
    with patched(*changes):
        yield


@contextmanager
def within_its_rows(optimizer: Any) -> Iterator[None]:
    """Within it Adam moves the rows of sparse embeddings by their own gradients only.

    Without lazy_mode Paddle's kernel compares each row of the table with the next one of the
    gradient, and has no end: behind the gradient's last row it reads on, and takes what it finds
    for rows and gradients. Of 400 first steps 111 moved a row that no id had asked for, 4 to NaN.
    So the table's last row is always asked for, too, and has a gradient of zero.
    Source: paddlepaddle 3.3.1 on a CPU; phi/kernels/funcs/adam_functors.h, SparseAdamFunctor.
    """
    embedding = functional.embedding
    if type(optimizer).__name__ == "Adam" and not private.setting(optimizer, "lazy_mode"):
        embedding = _asking_for_the_last(embedding)
    with patched((functional, "embedding", embedding)):
        yield


def _asking_for_the_last(own: Callable[..., Any]) -> Callable[..., Any]:
    def embedding(x: Any, weight: Any, *rest: Any, **options: Any) -> Any:
        if not options.get("sparse"):
            return own(x, weight, *rest, **options)
        last = paddle.full([1], weight.shape[0] - 1, x.dtype)
        rows = own(paddle.concat([x.reshape([-1]), last]), weight, *rest, **options)
        return rows[:-1].reshape([*x.shape, weight.shape[1]])

    return embedding


def _give_back_what_is_gone() -> None:
    """For good: a module that imports a name keeps it."""
    if not hasattr(paddle, "is_compiled_with_npu"):
        paddle.is_compiled_with_npu = lambda: paddle.is_compiled_with_custom_device("npu")
    if not hasattr(paddle, "fluid"):
        fluid: Any = ModuleType("paddle.fluid")
        kinds = {"FP16": "float16", "FP32": "float32", "FP64": "float64", "BOOL": "bool",
                 "INT32": "int32", "INT64": "int64"}  # fmt: skip
        types = SimpleNamespace(**{kind: getattr(paddle, name) for kind, name in kinds.items()})
        fluid.core = SimpleNamespace(VarDesc=SimpleNamespace(VarType=types))
        fluid.layers = SimpleNamespace(gather=paddle.gather)
        sys.modules["paddle.fluid"] = paddle.fluid = fluid


def _of_scalars(own: Callable[..., Any]) -> Callable[..., Any]:
    def concat(x: Any, axis: Any = 0, name: Any = None) -> Any:
        scalars = isinstance(x, (list, tuple)) and x and all(one.ndim == 0 for one in x)
        return own([one.reshape([1]) for one in x] if scalars else x, axis, name)

    return concat


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


DENSE = "sparse=False for it: it is then a dense table"


@contextmanager
def as_served(taken: Set[int], saw_sparse: Callable[[], None]) -> Iterator[None]:
    """Around a forward. taken: ids of layers that look up on the servers.

    saw_sparse: called where functional.embedding is asked for sparse gradients. Raises UsageError
    where the model uses what is on the servers.
    """
    own = functional.embedding

    def embedding(*args: Any, **options: Any) -> Any:
        if options.pop("sparse", False):  # such weights are part of a dense table
            saw_sparse()
        return own(*args, **options)

    named = _refusing(nn.Layer.named_parameters, taken)
    changes = (functional, "embedding", embedding), (nn.Layer, "named_parameters", named)
    try:
        with patched(*changes):
            yield
    except AttributeError as error:
        if "weight" in str(error) and "Embedding" in str(error) and taken:
            raise UsageError(
                f"the model uses the weight of a sparse embedding: {error}", hint=DENSE
            ) from error
        raise


def _refusing(own: Callable[..., Any], taken: Set[int]) -> Callable[..., Any]:
    """Layer.named_parameters, which parameters() asks, too: those on the servers would be missing.

    A loss that has the norm of all would be another one, and nothing would say so.
    """

    def named_parameters(layer: nn.Layer, *args: Any, **options: Any) -> Any:
        if any(id(one) in taken for one in layer.sublayers(include_self=True)):
            raise UsageError(
                "the model asks for all its parameters while it computes, and those of its sparse "
                "embeddings are on the servers",
                hint=DENSE,
            )
        return own(layer, *args, **options)

    return named_parameters
