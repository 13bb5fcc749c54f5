"""Clips, l1/l2 and bounds, in their order, both ways; and the search for bad gradients."""

from __future__ import annotations

import numpy as np
import pytest

from paddock.ps.jit import HAVE_NUMBA, kernel
from paddock.ps.optimizers.guards import square_sum, square_sums
from paddock.ps.spec import OptimizerSpec
from ps.engines import ENGINES
from ps.optimizers.runs import gradients, near, run, weights


def _one(spec: OptimizerSpec, w: list[float], g: list[float], compiled: bool) -> list[float]:
    first, grads = np.array([w], np.float32), np.array([g], np.float32)
    result: list[float] = run(spec, first, [grads], compiled=compiled, lr=1.0)[0].tolist()
    return result[: len(w)]


@ENGINES
def test_clip_value_limits_each_element(compiled: bool) -> None:
    """Only the elements beyond it change, on both sides."""
    spec = OptimizerSpec("sgd", clip_value=1.0)
    assert _one(spec, [0.0] * 4, [3.0, -3.0, 0.5, -1.0], compiled) == [-1.0, 1.0, -0.5, 1.0]


@ENGINES
def test_clip_norm_scales_a_long_row_only(compiled: bool) -> None:
    """Direction is kept; a row within the limit keeps its bits."""
    spec = OptimizerSpec("sgd", clip_norm=1.0)
    assert _one(spec, [0.0, 0.0], [3.0, 4.0], compiled) == pytest.approx([-0.6, -0.8])
    assert _one(spec, [0.0, 0.0], [0.3, 0.4], compiled) == [-np.float32(0.3), -np.float32(0.4)]


@ENGINES
def test_value_is_clipped_before_norm_and_decay_after(compiled: bool) -> None:
    """The order is part of what a table means: [30, 4] is first cut to [3, 3], then to norm 1."""
    spec = OptimizerSpec("sgd", clip_value=3.0, clip_norm=1.0, l2=0.5)
    got = _one(spec, [2.0, 0.0], [30.0, 4.0], compiled)
    side = 1 / np.sqrt(2)
    assert got == pytest.approx([2.0 - (side + 1.0), -side])


@ENGINES
def test_l1_pulls_by_sign_and_l2_by_size(compiled: bool) -> None:
    """A weight of zero is left where it is."""
    spec = OptimizerSpec("sgd", l1=0.25, l2=0.5)
    got = _one(spec, [2.0, -2.0, 0.0], [0.0, 0.0, 0.0], compiled)
    assert got == [2.0 - 1.25, -2.0 + 1.25, 0.0]


@ENGINES
def test_bound_holds_after_the_update(compiled: bool) -> None:
    """Of the weights alone: the velocity beside them may be larger."""
    spec = OptimizerSpec("momentum", bound=1.5)
    first, grads = np.zeros((1, 3), np.float32), np.array([[9.0, -9.0, 1.0]], np.float32)
    got = run(spec, first, [grads], compiled=compiled, lr=1.0)
    assert got[0].tolist() == [-1.5, 1.5, -1.0, 9.0, -9.0, 1.0]


@ENGINES
def test_norm_of_huge_gradients_does_not_overflow(compiled: bool) -> None:
    """Squares are taken in float64: 1e30 squared is no float32."""
    spec = OptimizerSpec("sgd", clip_norm=2.0)
    got = _one(spec, [0.0] * 4, [1e30, -1e30, 1e30, 1e30], compiled)
    assert got == pytest.approx([-1.0, 1.0, -1.0, -1.0])


@pytest.mark.skipif(not HAVE_NUMBA, reason="compares numba with numpy")
@pytest.mark.parametrize("dim", [1, 5, 8, 16, 23, 5000])
def test_all_guards_give_the_same_bits_both_ways(dim: int) -> None:
    """As the rules do."""
    spec = OptimizerSpec("adagrad", bound=1.0, clip_value=1.5, clip_norm=2.0, l1=0.01, l2=0.1)
    first, steps = weights(6, dim), gradients(5, 6, dim)
    loops = run(spec, first, steps, compiled=True)
    assert loops.tobytes() == run(spec, first, steps, compiled=False).tobytes()


@kernel
def one_sum(row: np.ndarray) -> float:
    """Of one row, as the kernels have it."""
    return square_sum(row)  # type: ignore[no-any-return]


@pytest.mark.skipif(not HAVE_NUMBA, reason="compares numba with numpy")
@pytest.mark.parametrize("dim", [0, 1, 7, 8, 9, 64, 100_003])
def test_sums_of_squares_keep_one_order(dim: int) -> None:
    """numpy is free to add in any order; this finds out if a version takes another."""
    grads = weights(3, dim)
    one_by_one = [one_sum(row) for row in grads]
    assert square_sums(grads).tolist() == one_by_one
    assert one_by_one == pytest.approx((grads.astype(np.float64) ** 2).sum(axis=1).tolist())


@ENGINES
def test_l2_is_the_same_as_adding_to_the_gradient(compiled: bool) -> None:
    """Coupled, so the accumulators see it; adamw is the one where they do not."""
    first, steps = weights(4, 8), gradients(1, 4, 8)
    with_l2 = run(OptimizerSpec("adagrad", l2=0.3), first, steps, compiled=compiled)
    by_hand = [steps[0] + np.float32(0.3) * first]
    assert near(with_l2, run(OptimizerSpec("adagrad"), first, by_hand, compiled=compiled))
