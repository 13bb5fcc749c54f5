"""Metrics of click models that merge over workers: each is a sum of counts. numpy only.

A user's paddle.metric is one, too, where its counts are known; no framework is imported.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from paddock.errors import PaddockError, UsageError

Numbers = NDArray[np.floating]
Counts = NDArray[np.float64]
BUCKETS = 4096  # As PaddleRec's click models: paddle.metric.Auc of 4095 thresholds.


class MergeableMetric(Protocol):
    """A number over all examples since the last clear, mergeable over workers."""

    def update(self, scores: NDArray[np.floating], labels: NDArray[np.floating]) -> None:
        """scores, labels: (examples,); scores in [0, 1]."""

    def state(self) -> NDArray[np.float64]:
        """Counts that add up over workers, (n,) float64."""

    def value(self, state: NDArray[np.float64] | None = None) -> float:
        """The metric of this worker's counts, or of the sum of several workers', (n,) float64."""

    def clear(self) -> None:
        """Forget all examples."""


class CountMetric:
    """A metric from two functions: what a batch adds to the counts, and what the counts say.

    >>> ctr = METRICS["actual_ctr"]()
    >>> ctr.update(np.array([0.2, 0.9]), np.array([0.0, 1.0]))
    >>> ctr.value(), ctr.value(ctr.state() + np.array([1.0, 6.0]))
    (0.5, 0.25)
    """

    def __init__(
        self,
        size: int,
        count: Callable[[Numbers, Numbers], Iterable[float] | Counts],
        result: Callable[[Counts], float],
    ) -> None:
        self._counts = np.zeros(size)
        self._count, self._result = count, result

    def update(self, scores: Numbers, labels: Numbers) -> None:
        """Adds a batch. labels: (examples,). scores: as many, or (examples, classes)."""
        if len(scores) != len(labels):
            raise UsageError(
                f"a metric got {len(scores)} scores and {len(labels)} labels",
                hint="one label for each example of the batch",
            )
        if not np.isfinite(scores).all():
            raise PaddockError(
                "a metric got scores that are no numbers",
                hint="the parameters, or the batch: paddock data check",
                exit_code=1,  # Of the model, not of Paddock.
            )
        found = self._count(np.asarray(scores, np.float64), np.asarray(labels, np.float64))
        self._counts += np.asarray(found, np.float64)

    def state(self) -> Counts:
        """A copy of the counts, float64."""
        counts: Counts = self._counts.copy()
        return counts

    def value(self, state: Counts | None = None) -> float:
        """The metric of the counts, float64; nan where there is nothing to say yet."""
        return self._result(self._counts if state is None else state)

    def clear(self) -> None:
        """Begins anew."""
        self._counts[:] = 0.0


def _ratio(above: float, below: float) -> float:
    return float(above / below) if below else float("nan")


def auc(buckets: int = BUCKETS) -> CountMetric:
    """The share of (click, no click) pairs in order, from a histogram of scores for each label.

    Two scores closer than 1 / buckets may count as a tie. A bucket's number is that of
    paddle.metric.Auc: the whole part of score * (buckets - 1).
    """

    def count(scores: Numbers, labels: Numbers) -> Counts:
        bucket = np.clip(scores * (buckets - 1), 0, buckets - 1).astype(np.int64)
        both = bucket + np.where(labels > 0.5, buckets, 0)
        return np.asarray(np.bincount(both, minlength=2 * buckets), np.float64)

    def area(state: Counts) -> float:
        """Examples of one bucket are ties, which count half."""
        others, clicks = state.reshape(2, -1)
        below = np.cumsum(others) - others
        return _ratio(float((clicks * (below + others / 2)).sum()), others.sum() * clicks.sum())

    return CountMetric(2 * buckets, count, area)


def _mean(of: Callable[[Numbers, Numbers], Numbers]) -> CountMetric:
    return CountMetric(
        2, lambda scores, labels: (of(scores, labels).sum(), len(labels)), lambda s: _ratio(*s)
    )


def _log_loss(scores: Numbers, labels: Numbers) -> Numbers:
    # 1e-7 is about float32's distance from 1: a certain and wrong score costs 16, not infinity.
    sure = np.clip(scores, 1e-7, 1.0 - 1e-7)
    costs: Numbers = -(labels * np.log(sure) + (1.0 - labels) * np.log1p(-sure))
    return costs


def _is_right(scores: Numbers, labels: Numbers) -> Numbers:
    found = scores.argmax(1) if scores.ndim == 2 else scores > 0.5
    return np.asarray(found == labels, np.float64)


def _is_among_five(scores: Numbers, labels: Numbers) -> Numbers:
    right = np.take_along_axis(scores, labels.astype(np.int64)[:, None], 1)
    return np.asarray((scores > right).sum(1) < 5, np.float64)


# By the name that is printed. Those of classes (accuracy, acc5) take scores (examples, classes).
METRICS: dict[str, Callable[[], MergeableMetric]] = {
    "auc": auc,
    "mae": partial(_mean, lambda scores, labels: np.abs(scores - labels)),
    "rmse": lambda: CountMetric(
        2, lambda s, c: (((s - c) ** 2).sum(), len(c)), lambda state: float(np.sqrt(_ratio(*state)))
    ),
    # Clicks over predicted clicks: 1 where predictions are calibrated.
    "copc": lambda: CountMetric(2, lambda s, c: (c.sum(), s.sum()), lambda state: _ratio(*state)),
    "actual_ctr": partial(_mean, lambda scores, labels: labels),
    "predicted_ctr": partial(_mean, lambda scores, labels: scores),
    "log_loss": partial(_mean, _log_loss),
    "accuracy": partial(_mean, _is_right),
    "acc5": partial(_mean, _is_among_five),
}


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
                part = state[at : at + size]
                if isinstance(own, np.ndarray):
                    setattr(metric, name, part.reshape(own.shape))
                else:
                    setattr(metric, name, part.tolist() if isinstance(own, list) else part.item())
                at += size
            return number(metric.accumulate())
        finally:
            for name, own in kept.items():
                setattr(metric, name, own)

    def clear(self) -> None:
        """Forget all examples."""
        self._find().reset()


def number(value: Any) -> float:
    """The number of a metric or a printed tensor; the mean where it has several.

    Raises PaddockError.
    """
    try:
        array = np.asarray(value.numpy() if hasattr(value, "numpy") else value, np.float64)
    except (TypeError, ValueError) as error:
        raise PaddockError(f"a metric is {value!r}, not a number") from error
    return float(array.mean()) if array.size else float("nan")
