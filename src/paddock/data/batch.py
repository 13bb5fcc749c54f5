"""A batch of examples as columns: what every parser makes and every model takes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

Ids = NDArray[np.int64]
Floats = NDArray[np.float32]


@dataclass(frozen=True)
class Bag:
    """The ids of one slot: none, one or several for each example.

    values: (n,) int64, those of example 0 first. lengths: (examples,) int64; they add up to n.
    """

    values: Ids
    lengths: NDArray[np.int64]


@dataclass(frozen=True)
class Batch:
    """Examples as columns; all columns have as many examples as `size`.

    ids: slot -> (examples,) int64 where each example has one, (examples, width) where each has
    `width`, else a Bag. dense: slot -> (examples, width) float32. label: (examples,) float32,
    empty where the data has none. other: what a format has besides (text, images).
    """

    size: int
    ids: dict[str, Ids | Bag] = field(default_factory=dict)
    dense: dict[str, Floats] = field(default_factory=dict)
    label: Floats = field(default_factory=lambda: np.empty(0, np.float32))
    other: dict[str, Any] = field(default_factory=dict)
