"""The same steps by torch.optim and by our rules: 50 steps, 1e-6. Needs torch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from paddock.ps.optimizers.schedules import learning_rate
from paddock.ps.spec import OptimizerSpec, ScheduleSpec
from ps.engines import ENGINES
from ps.optimizers.runs import gradients, near, run, weights

pytestmark = pytest.mark.real

LR = 0.05
# Our spec, torch's class, torch's arguments.
PAIRS: list[tuple[OptimizerSpec, str, dict[str, Any]]] = [
    (OptimizerSpec("sgd", l2=0.01), "SGD", {"weight_decay": 0.01}),
    (OptimizerSpec("momentum", l2=0.01), "SGD", {"momentum": 0.9, "weight_decay": 0.01}),
    (
        OptimizerSpec("nesterov", l2=0.01),
        "SGD",
        {"momentum": 0.9, "nesterov": True, "weight_decay": 0.01},
    ),
    (OptimizerSpec("adagrad", l2=0.01), "Adagrad", {"weight_decay": 0.01}),
    (
        OptimizerSpec("adagrad", options={"initial": 0.1}),
        "Adagrad",
        {"initial_accumulator_value": 0.1},
    ),
    (OptimizerSpec("adam"), "Adam", {}),
    (OptimizerSpec("adam", l2=0.01), "Adam", {"weight_decay": 0.01}),
    (
        OptimizerSpec("adam", options={"beta1": 0.8, "beta2": 0.95, "epsilon": 1e-3}),
        "Adam",
        {"betas": (0.8, 0.95), "eps": 1e-3},
    ),
    (OptimizerSpec("adamw", options={"weight_decay": 0.1}), "AdamW", {"weight_decay": 0.1}),
    (OptimizerSpec("rmsprop", l2=0.01), "RMSprop", {"weight_decay": 0.01}),
    (OptimizerSpec("rmsprop", options={"centered": 1}), "RMSprop", {"centered": True}),
    (OptimizerSpec("rmsprop", options={"momentum": 0.9}), "RMSprop", {"momentum": 0.9}),
    (
        OptimizerSpec("rmsprop", options={"momentum": 0.9, "centered": 1}),
        "RMSprop",
        {"momentum": 0.9, "centered": True},
    ),
]


@ENGINES
@pytest.mark.parametrize(
    ("spec", "name", "arguments"), PAIRS, ids=lambda v: str(v) if isinstance(v, dict) else ""
)
def test_fifty_steps_equal_those_of_torch(
    spec: OptimizerSpec, name: str, arguments: dict[str, Any], compiled: bool
) -> None:
    """In float64 there, so that the 1e-6 is ours alone and not the sum of two roundings."""
    torch = pytest.importorskip("torch")
    first, steps = weights(6, 13), gradients(50, 6, 13)
    parameter = torch.nn.Parameter(torch.from_numpy(first.astype(np.float64)))
    optimizer = getattr(torch.optim, name)([parameter], lr=LR, **arguments)
    for grads in steps:
        parameter.grad = torch.from_numpy(grads.astype(np.float64))
        optimizer.step()
    got = run(spec, first, steps, compiled=compiled, lr=LR)[:, :13]
    assert near(got, parameter.detach().numpy())


@ENGINES
def test_adam_equals_sparse_adam_where_all_rows_are_touched(compiled: bool) -> None:
    """SparseAdam is torch's lazy form; it differs only for rows left out of a step."""
    torch = pytest.importorskip("torch")
    first, steps = weights(6, 13), gradients(50, 6, 13)
    parameter = torch.nn.Parameter(torch.from_numpy(first.astype(np.float64)))
    optimizer = torch.optim.SparseAdam([parameter], lr=LR)
    for grads in steps:
        index = torch.arange(6)[None]
        dense = torch.from_numpy(grads.astype(np.float64))
        parameter.grad = torch.sparse_coo_tensor(index, dense, (6, 13), check_invariants=True)
        optimizer.step()
    got = run(OptimizerSpec("adam"), first, steps, compiled=compiled, lr=LR)[:, :13]
    assert near(got, parameter.detach().numpy())


SCHEDULES: list[tuple[ScheduleSpec, str, dict[str, Any]]] = [
    (ScheduleSpec("exponential", rate=0.9), "ExponentialLR", {"gamma": 0.9}),
    (
        ScheduleSpec("exponential", rate=0.5, every=7, staircase=True),
        "StepLR",
        {"step_size": 7, "gamma": 0.5},
    ),
    (
        ScheduleSpec("piecewise", boundaries=(5, 11), values=(1.0, 0.1, 0.01)),
        "MultiStepLR",
        {"milestones": [5, 11], "gamma": 0.1},
    ),
    (
        ScheduleSpec(warmup_steps=8, warmup_start=0.25),
        "LinearLR",
        {"start_factor": 0.25, "total_iters": 8},
    ),
]


@pytest.mark.parametrize(("schedule", "name", "arguments"), SCHEDULES, ids=lambda v: "")
def test_schedules_equal_those_of_torch(
    schedule: ScheduleSpec, name: str, arguments: dict[str, Any]
) -> None:
    """Where torch has the same one; step 0 is the first update."""
    torch = pytest.importorskip("torch")
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=LR)
    scheduler = getattr(torch.optim.lr_scheduler, name)(optimizer, **arguments)
    theirs = []
    for _ in range(20):
        theirs.append(scheduler.get_last_lr()[0])
        optimizer.step()
        scheduler.step()
    ours = [learning_rate(OptimizerSpec(lr=LR, schedule=schedule), s) for s in range(20)]
    assert ours == pytest.approx(theirs, rel=1e-9)
