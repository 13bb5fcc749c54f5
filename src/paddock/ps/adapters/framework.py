"""The functions that the adapters of torch and Paddle call of their framework."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from paddock.ps.adapters.arguments import Floats, Keys


def is_float32(tensor: Any) -> bool:
    """A tensor of torch or Paddle is float32."""
    return str(tensor.dtype).endswith(".float32")


@dataclass(frozen=True, slots=True)
class Framework:
    """The functions that are torch's or Paddle's own.

    array: a tensor's numpy array, shared where it can be. flat: that of several tensors, one behind
    the other. modules: a module and all within it. trained: (name, parameter) of those that learn.
    state: what is the module's, these or others. assign: gives a tensor new values.

    with_gradients: whether a graph is recorded now, which no_grad prevents. in_one_graph: whether a
    model is being compiled as one graph, which nothing interrupts later. apart(call,
    *values): the call, which no compiler reads.

    share(vector): its tensors get its values, where they can its memory. It returns what brings
    them what was pulled later. leaf(rows, like, learns, take): the rows as the leaf of a graph, on
    the device of `like`; if it learns, take() is given its gradient. spread(rows, inverse, shape,
    starts, pooling, weights): rows[inverse] as (*shape, dim), or pooled: of each row of shape, or
    from `starts` on; summed with a weight for each, where there are weights. with_zeros(rows): the
    rows, and a row of zeros behind them. take(vector, places): vector[places].
    """

    tensor: type[Any]
    array: Callable[[Any], NDArray[Any]]
    flat: Callable[[Sequence[Any]], Floats]
    zeros_like: Callable[[Any], Any]
    modules: Callable[[Any], Iterable[Any]]
    trained: Callable[[Any], list[tuple[str, Any]]]
    state: Callable[[Any], Iterable[Any]]
    assign: Callable[[Any, Floats], None]
    with_gradients: Callable[[], bool]
    in_one_graph: Callable[[], bool]
    apart: Callable[..., None]
    share: Callable[[Any], Callable[[], object]]
    leaf: Callable[[Floats, Any, bool, Callable[[Floats], None]], Any]
    spread: Callable[[Any, NDArray[Any], Sequence[int], Keys | None, str, Any], Any]
    with_zeros: Callable[[Any], Any]
    take: Callable[[Any, NDArray[Any]], Any]
