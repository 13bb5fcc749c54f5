"""Metrics of click models that merge over workers: each is a sum of counts. numpy only."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray


class Metric(Protocol):
    """A number over all examples since the last clear, mergeable over workers."""

    def update(self, scores: NDArray[np.floating], labels: NDArray[np.floating]) -> None:
        """scores, labels: (examples,); scores in [0, 1]."""

    def state(self) -> NDArray[np.float64]:
        """Counts that add up over workers."""

    def value(self, state: NDArray[np.float64] | None = None) -> float:
        """The metric of this worker's counts, or of the sum of several workers'."""

    def clear(self) -> None:
        """Forget all examples."""
