"""Builds rows and runs an updater over steps, as a table would."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from paddock.ps.optimizers.schedules import Rate
from paddock.ps.optimizers.updater import Updater
from paddock.ps.spec import OptimizerSpec
from ps.engines import engine

F32 = NDArray[np.float32]

# One of each rule, and each form of those that have several.
SPECS = (
    OptimizerSpec("sgd"),
    OptimizerSpec("momentum"),
    OptimizerSpec("nesterov", options={"momentum": 0.8}),
    OptimizerSpec("adagrad", options={"initial": 0.1}),
    OptimizerSpec("row_adagrad", options={"initial": 0.3, "epsilon": 1e-3}),
    OptimizerSpec("adam"),
    OptimizerSpec("adam", options={"beta1": 0.5, "beta2": 0.9, "epsilon": 1e-4}),
    OptimizerSpec("adamw", options={"weight_decay": 0.1}),
    OptimizerSpec("rmsprop"),
    OptimizerSpec("rmsprop", options={"centered": 1}),
    OptimizerSpec("rmsprop", options={"momentum": 0.7}),
    OptimizerSpec("rmsprop", options={"centered": 1, "momentum": 0.7, "alpha": 0.9}),
    OptimizerSpec("adam_told", options={"beta1": 0.875, "beta2": 0.9921875}),
    OptimizerSpec("paddle_adam", options={"beta1": 0.875, "beta2": 0.9921875}),
    OptimizerSpec("paddle_rmsprop", options={"momentum": 0.9}),
    OptimizerSpec("ftrl"),
    OptimizerSpec("ftrl", options={"beta": 0.5, "l1": 0.4, "l2": 0.2, "initial": 0.1}),
    OptimizerSpec("sum"),
)


def spec_name(spec: OptimizerSpec) -> str:
    """A short name for a test's id."""
    return "-".join([spec.name, *(f"{k}={v}" for k, v in spec.options.items())])


def weights(rows: int, dim: int, seed: int = 1) -> F32:
    """First weights (rows, dim)."""
    return np.random.default_rng(seed).standard_normal((rows, dim)).astype(np.float32)


def gradients(steps: int, rows: int, dim: int, seed: int = 2) -> list[F32]:
    """A gradient (rows, dim) for each step."""
    rng = np.random.default_rng(seed)
    return [rng.standard_normal((rows, dim)).astype(np.float32) for _ in range(steps)]


def arena(updater: Updater, first: F32, spare: int = 3) -> F32:
    """Values whose rows ``spare`` on hold the weights and a new row's state; NaN elsewhere."""
    values = np.full((spare + len(first), updater.width), np.nan, np.float32)
    values[spare:, : updater.dim] = first
    values[spare:, updater.dim :] = updater.initial_state
    return values


def run(
    spec: OptimizerSpec, first: F32, steps: Sequence[F32], *, compiled: bool, lr: float = 0.05
) -> F32:
    """The rows (n, width) after the steps, each row pushed at each, in another order each time."""
    with engine(compiled):
        updater = Updater(spec, first.shape[1])
    values = arena(updater, first)
    spare = len(values) - len(first)
    rng = np.random.default_rng(3)
    for grads in steps:
        order = rng.permutation(len(first))
        updater.apply(values, (spare + order).astype(np.int64), grads[order], Rate(lr))
    assert np.isnan(values[:spare]).all(), "a row that was not pushed changed"
    return values[spare:]


def near(got: F32, wanted: NDArray[np.float64] | F32, tolerance: float = 1e-6) -> bool:
    """Whether all elements agree to the tolerance, relative to the largest of the row.

    Not relative to each element: one that ends near zero has lost digits in any float32
    arithmetic, torch's too (1e-5 and more from its own float64).
    """
    scale = np.maximum(np.abs(wanted).max(axis=1, keepdims=True), 1e-30)
    return bool((np.abs(got.astype(np.float64) - wanted) <= tolerance * scale).all())
