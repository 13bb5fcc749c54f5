"""What hyper_parameters.optimizer says becomes the rule and the rate of all tables."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from paddock import ps
from paddock.errors import UsageError
from paddock.ps.local_tables import LocalTables
from paddock.ps.optimizers.schedules import learning_rate
from paddock.rec.bundled.learner import rule_of
from paddock.rec.models.inputs import Hyper

STEPS = (0, 5, 10, 20, 30)
# Keys of PaddleRec and of Paddle's schedulers; the rate at each of STEPS, where learning_rate is 1.
SCHEDULES: list[tuple[dict[str, Any], list[float]]] = [
    ({}, [1, 1, 1, 1, 1]),
    ({"decay_rate": 0.5, "decay_steps": 10}, [1, 1, 0.5, 0.25, 0.125]),
    ({"decay_rate": 0.25, "decay_steps": 10, "staircase": False}, [1, 0.5, 0.25, 1 / 16, 1 / 64]),
    ({"scheduler": "InverseTimeDecay", "decay_rate": 1, "decay_steps": 10},
     [1, 1, 1 / 2, 1 / 3, 1 / 4]),
    ({"scheduler": "natural_exp", "decay_rate": 1.0, "decay_steps": 20},
     [1, 1, 1, math.exp(-1), math.exp(-1)]),
    ({"scheduler": "piecewise", "boundaries": [10, 30], "values": [2, 0.5, 0.1]},
     [2, 2, 0.5, 0.5, 0.1]),
    ({"scheduler": "cosine", "decay_steps": 20, "end_lr": 0.2}, [1, 0.8828427, 0.6, 0.2, 0.2]),
    ({"scheduler": "cosine", "decay_steps": 20, "end_lr": 3}, [1, 1, 1, 1, 1]),
    ({"warmup_steps": 10, "start_lr": 0.5}, [0.5, 0.75, 1, 1, 1]),
    ({"scheduler": "cosine", "decay_steps": 20, "warmup_steps": 10}, [0, 0.25, 0.5, 0, 0]),
]  # fmt: skip


@pytest.mark.parametrize(("said", "rates"), SCHEDULES)
def test_the_rate_of_a_step_is_as_the_file_says(said: dict[str, Any], rates: list[float]) -> None:
    """Rates of the file are rates, whatever learning_rate is."""
    for rate in (1.0, 0.5):
        own = {"learning_rate": rate}
        scaled = {
            name: [one * rate for one in value] if name == "values"
            else value * rate if name in ("end_lr", "start_lr") else value
            for name, value in said.items()
        }  # fmt: skip
        hyper = Hyper({"optimizer": {**own, **scaled}})
        spec = rule_of(hyper)
        found = [learning_rate(spec, step) for step in STEPS]
        assert found == pytest.approx([one * rate for one in rates])
        assert hyper.unread == []


def test_the_servers_rate_follows_the_schedule_as_that_of_one_worker_alone() -> None:
    """sgd, gradients of 1: each step moves a row and a dense vector by that step's rate."""
    rule = rule_of(Hyper({"optimizer": {
        "class": "SGD", "learning_rate": 1.0, "scheduler": "PiecewiseDecay",
        "boundaries": [1, 3], "values": [1.0, 0.5, 0.25],
    }}))  # fmt: skip
    zeros = ps.InitialSpec("zeros")

    def moved(client: Any) -> list[float]:
        client.create(ps.SparseSpec("rows", 1, rule, zeros))
        client.create(ps.DenseSpec("dense", 1, rule))
        for _ in range(4):
            client.push("rows", np.array([7]), np.ones((1, 1), np.float32))
            client.push_dense("dense", np.ones(1, np.float32))
            client.step()
        if isinstance(client, ps.Client):
            client.flush()  # in async the newest pushes may still be on their way
        return [float(client.pull("rows", [7])[0, 0]), float(client.pull_dense("dense")[0])]

    assert moved(LocalTables()) == [-2.25, -2.25]
    for strategy in ("sync", "async"):
        with ps.local(strategy=strategy) as client:
            assert moved(client) == [-2.25, -2.25]


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ({"class": "Lion"}, "class is 'Lion'"),
        ({"scheduler": "OneCycleLR"}, "scheduler is 'OneCycleLR'"),
        ({"decay_steps": 0.5}, "decay_steps is 0.5, not a int"),
    ],
)
def test_what_is_not_known_is_refused_with_what_is(said: dict[str, Any], message: str) -> None:
    """Bounds and lengths are checked by the tables themselves."""
    with pytest.raises(UsageError, match=message):
        rule_of(Hyper({"optimizer": said}))
    with pytest.raises(UsageError, match="values is"):
        LocalTables().create(
            ps.DenseSpec("d", 1, rule_of(Hyper({"optimizer.scheduler": "piecewise"})))
        )
