"""A user's paddle.metric, whose counts add up over workers; imports no framework."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paddock.errors import PaddockError

# What the metrics of Paddle count. Source: paddlepaddle 3.3, metric/metrics.py.
COUNTS = {
    "Auc": ("_stat_pos", "_stat_neg"),
    "Precision": ("tp", "fp"),
    "Recall": ("tp", "fn"),
    "Accuracy": ("total", "count"),
}


def counts_of(metric: object) -> tuple[str, ...] | None:
    """The attributes that add up, of a class of Paddle's or one derived from it; else None."""
    for cls in type(metric).__mro__:
        if cls.__module__.startswith("paddle.") and cls.__name__ in COUNTS:
            return COUNTS[cls.__name__]
    return None


class PaddleMetric:
    """A user's metric. find: the object now, as train_forward may return another one.

    One whose counts are not known has an empty state: it is of one worker only.
    """

    def __init__(self, find: Callable[[], Any]) -> None:
        self._find = find
        self._names = counts_of(find()) or ()

    def update(self, scores: NDArray[np.floating], labels: NDArray[np.floating]) -> None:
        """The model's own forward counts; scores and labels, (n,) floats, are never passed here."""
        raise AssertionError("a user's metric is updated by train_forward and infer_forward")

    def state(self) -> NDArray[np.float64]:
        """All counts, one behind the other, (n,) float64."""
        metric = self._find()
        counts = [np.asarray(getattr(metric, name), np.float64) for name in self._names]
        return np.concatenate([np.zeros(0), *(one.reshape(-1) for one in counts)])

    def value(self, state: NDArray[np.float64] | None = None) -> float:
        """The metric's accumulate(), perhaps with the counts of a state, (n,) float64."""
        metric = self._find()
        if state is None:
            return number(metric.accumulate())
        kept, at = {name: getattr(metric, name) for name in self._names}, 0
        try:
            for name, own in kept.items():
                size = np.size(own)
                setattr(metric, name, _shaped(state[at : at + size], own))
                at += size
            return number(metric.accumulate())
        finally:
            for name, own in kept.items():
                setattr(metric, name, own)

    def clear(self) -> None:
        """Forget all examples."""
        self._find().reset()


def _shaped(values: NDArray[np.float64], like: Any) -> Any:
    if isinstance(like, np.ndarray):
        return values.reshape(like.shape)
    if isinstance(like, list):
        return values.tolist()
    return values.item()


def number(value: Any) -> float:
    """The number of a metric or a printed tensor; the mean where it has several.

    Raises PaddockError.
    """
    try:
        array = np.asarray(value.numpy() if hasattr(value, "numpy") else value, np.float64)
    except (TypeError, ValueError) as error:
        raise PaddockError(f"a metric is {value!r}, not a number") from error
    return float(array.mean()) if array.size else float("nan")
