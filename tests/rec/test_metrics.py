"""Metrics: right on known numbers, and the same over any number of workers."""

from __future__ import annotations

import math

import numpy as np
import pytest

from paddock.errors import PaddockError, UsageError
from paddock.rec.metrics import METRICS, auc


def scored(seed: int, examples: int = 20_000) -> tuple[np.ndarray, np.ndarray]:
    """Scores that say something of their labels."""
    rng = np.random.default_rng(seed)
    scores = 1 / (1 + np.exp(-rng.normal(-1.0, 1.5, examples)))
    return scores.astype(np.float32), (rng.random(examples) < scores).astype(np.float32)


def exact_auc(scores: np.ndarray, labels: np.ndarray) -> float:
    """Of all pairs, without buckets."""
    _, inverse, counts = np.unique(scores, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    rank = (ends - (counts - 1) / 2.0)[inverse]
    clicks = float((labels > 0.5).sum())
    above = float(rank[labels > 0.5].sum()) - clicks * (clicks + 1) / 2
    return above / (clicks * (len(labels) - clicks))


@pytest.mark.parametrize("seed", range(5))
def test_auc_of_buckets_is_that_of_all_pairs(seed: int) -> None:
    """4096 buckets are close enough to call two models different at the fourth digit."""
    scores, labels = scored(seed)
    metric = auc()
    metric.update(scores, labels)
    assert metric.value() == pytest.approx(exact_auc(scores, labels), abs=2e-5)


def test_exact_auc_is_the_share_of_pairs_in_order() -> None:
    """Counted pair by pair; a tie is half."""
    rng = np.random.default_rng(3)
    scores, labels = rng.integers(0, 9, 60) / 10, rng.integers(0, 2, 60).astype(float)
    clicks, others = scores[labels == 1], scores[labels == 0]
    pairs = np.sign(clicks[:, None] - others) / 2 + 0.5
    assert exact_auc(scores, labels) == pytest.approx(pairs.mean())
    metric = auc()
    metric.update(scores, labels)
    assert metric.value() == pytest.approx(pairs.mean())


@pytest.mark.parametrize("name", sorted(set(METRICS) - {"acc5"}))
def test_workers_that_add_up_their_counts_have_the_metric_of_all(name: str) -> None:
    """So a job prints one number, not the mean of its workers'."""
    scores, labels = scored(1)
    whole, parts = METRICS[name](), [METRICS[name]() for _ in range(3)]
    whole.update(scores, labels)
    for part, rows in zip(parts, np.array_split(np.arange(len(labels)), (100, 5000)), strict=True):
        part.update(scores[rows], labels[rows])
    merged = np.sum([part.state() for part in parts], axis=0)
    assert parts[0].value(merged) == pytest.approx(whole.value(), rel=1e-12)
    whole.clear()
    assert math.isnan(whole.value())


def test_values_are_those_of_their_formulas() -> None:
    """On numbers that can be checked by hand."""
    scores, labels = np.array([0.9, 0.2, 0.6, 0.4]), np.array([1.0, 0.0, 0.0, 1.0])
    found = {}
    for name in set(METRICS) - {"acc5", "auc"}:
        metric = METRICS[name]()
        metric.update(scores, labels)
        found[name] = metric.value()
    assert found == pytest.approx(
        {
            "mae": (0.1 + 0.2 + 0.6 + 0.6) / 4,
            "rmse": math.sqrt((0.01 + 0.04 + 0.36 + 0.36) / 4),
            "copc": 2 / 2.1,
            "actual_ctr": 0.5,
            "predicted_ctr": 2.1 / 4,
            "log_loss": -math.log(0.9 * 0.8 * 0.4 * 0.4) / 4,
            "accuracy": 0.5,
        }
    )


def test_accuracy_of_classes_takes_a_score_for_each() -> None:
    """acc1 and acc5 of ResNet and of the word models."""
    scores = np.eye(8)[[0, 1, 2, 3]] + np.arange(8) / 10
    labels = np.array([0.0, 1.0, 7.0, 0.0])
    right, among = METRICS["accuracy"](), METRICS["acc5"]()
    for metric in (right, among):
        metric.update(scores, labels)
    assert (right.value(), among.value()) == (0.5, 0.75)


def test_scores_without_their_labels_are_refused() -> None:
    """A metric that broadcasts would be wrong without a word."""
    with pytest.raises(UsageError, match="4 scores and 1 labels"):
        auc().update(np.ones(4), np.ones(1))


@pytest.mark.parametrize("name", METRICS)
def test_scores_that_are_no_numbers_are_refused(name: str) -> None:
    """auc failed with numpy's words, the others were nan."""
    with pytest.raises(PaddockError, match="scores that are no numbers"):
        METRICS[name]().update(np.array([0.5, np.nan]), np.ones(2))


def test_a_certain_and_wrong_score_has_a_finite_loss() -> None:
    """float32 scores reach 0 and 1."""
    metric = METRICS["log_loss"]()
    metric.update(np.float32([0.0, 1.0]), np.float32([1.0, 0.0]))
    assert metric.value() == pytest.approx(-math.log(1e-7))
