"""What late gradients do to a tower, with each exactly so many updates late: no timing."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

from paddock.ps.local_tables import LocalTables
from paddock.ps.strategies import updates_behind
from paddock.rec.bundled import learner as bundled
from paddock.rec.learner import WorkerRank
from paddock.rec.preflight import BEHIND_MAX
from rec.models.made import clicks, run_of

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.real

# The bundled model as it is shipped, but for its vocabulary.
SHIPPED = {"sparse_feature_number": 2000, "fc_sizes": [512, 256, 128, 32]}
BATCHES = 60


class LateTables(LocalTables):
    """Tables that apply the pushes of a batch when `behind` more batches were pushed."""

    def __init__(self, behind: int) -> None:
        super().__init__()
        self.behind = behind
        self.batch: list[Callable[[], None]] = []
        self.batches: deque[list[Callable[[], None]]] = deque()

    def push(self, table: str, keys: Any, grads: Any, **more: Any) -> None:
        self.batch.append(partial(super().push, table, keys.copy(), grads.copy(), **more))

    def push_dense(self, table: str, grads: Any, *, used: Any = None) -> None:
        self.batch.append(partial(super().push_dense, table, grads.copy(), used=used))

    def step(self) -> None:
        self.batches.append(self.batch)
        self.batch = []
        while len(self.batches) > self.behind:
            for push in self.batches.popleft():
                push()
        super().step()


def losses_of(monkeypatch: pytest.MonkeyPatch, behind: int, rule: str) -> list[float]:
    """The losses of the first batches."""
    monkeypatch.setattr(bundled, "LocalTables", partial(LateTables, behind))
    rate = {"Adam": 0.002, "SGD": 0.01}[rule]
    hyper = {**SHIPPED, "optimizer.class": rule, "optimizer.learning_rate": rate}
    run = run_of("rank/dnn", "torch", hyper)
    model = bundled.BundledLearner(run, None, WorkerRank())
    return [model.train(clicks(number, 128))["loss"] for number in range(BATCHES)]


def test_adam_overshoots_with_the_delay_of_four_workers_in_async(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """And not with what the warning lets pass, nor with the strategy that it advises."""
    late = updates_behind("async", 4)
    assert late is not None and late > BEHIND_MAX
    advised = updates_behind("half_async", 4)
    assert advised is not None and advised <= BEHIND_MAX
    worst = {n: max(losses_of(monkeypatch, n, "Adam")) for n in (0, advised, BEHIND_MAX, late)}
    assert worst[0] < worst[advised] < worst[BEHIND_MAX], worst
    assert worst[late] > 3 * worst[BEHIND_MAX], worst  # Another order: units die of it.


def test_a_rule_whose_steps_shrink_with_the_gradient_does_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The same model, data and delay: no warning is due."""
    late = updates_behind("async", 4)
    assert late is not None
    losses = losses_of(monkeypatch, late, "SGD")
    assert max(losses) == losses[0]
    assert np.mean(losses[-10:]) < losses[0]
