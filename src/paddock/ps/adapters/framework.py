"""What the adapters of torch and Paddle ask of their framework."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray


def is_float32(tensor: Any) -> bool:
    """Of torch and Paddle alike."""
    return str(tensor.dtype).endswith(".float32")


@dataclass(frozen=True, slots=True)
class Framework:
    """What is torch's or Paddle's own. array: a tensor's numpy array, shared where it can be.

    modules: a module and all within it. trained: (name, parameter) of those that learn. state:
    by name, what else is the module's. assign: gives a tensor new values.
    """

    tensor: type[Any]
    array: Callable[[Any], NDArray[Any]]
    modules: Callable[[Any], Iterable[Any]]
    trained: Callable[[Any], list[tuple[str, Any]]]
    state: Callable[[Any], Mapping[str, Any]]
    assign: Callable[[Any, NDArray[Any]], None]
