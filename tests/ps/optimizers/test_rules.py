"""Each rule against its formula in float64, and numba's loops against numpy's arrays."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paddock.ps.jit import HAVE_NUMBA
from paddock.ps.optimizers.rules import RULES
from paddock.ps.optimizers.schedules import Rate
from paddock.ps.optimizers.updater import Updater
from paddock.ps.spec import OptimizerSpec
from ps.engines import ENGINES, engine
from ps.optimizers.references import REFERENCES
from ps.optimizers.runs import (
    SPECS,
    arena,
    gradients,
    near,
    run,
    spec_name,
    weights,
)

specs = pytest.mark.parametrize("spec", SPECS, ids=spec_name)


@ENGINES
@specs
@pytest.mark.parametrize("scale", [1.0, 0.0])
def test_fifty_steps_follow_the_formula(spec: OptimizerSpec, compiled: bool, scale: float) -> None:
    """To 1e-6 of float64. From zeros the updates are all there is: no error hides in the start."""
    first, steps = np.float32(scale) * weights(6, 13), gradients(50, 6, 13)
    got = run(spec, first, steps, compiled=compiled)[:, :13]
    options = RULES[spec.name].complete(spec.options)
    exact = [g.astype(np.float64) for g in steps]
    wanted = REFERENCES[spec.name](first.astype(np.float64), exact, 0.05, options)
    assert near(got, wanted)


@pytest.mark.skipif(not HAVE_NUMBA, reason="compares numba with numpy")
@specs
@pytest.mark.parametrize("dim", [0, 1, 7, 8, 64, 1003])
def test_numba_and_numpy_give_the_same_bits(spec: OptimizerSpec, dim: int) -> None:
    """State too: a server without numba must replay the log of one with it."""
    first, steps = weights(5, dim), gradients(4, 5, dim)
    loops = run(spec, first, steps, compiled=True)
    arrays = run(spec, first, steps, compiled=False)
    assert loops.tobytes() == arrays.tobytes()


@pytest.mark.skipif(not HAVE_NUMBA, reason="compares numba with numpy")
@specs
@pytest.mark.parametrize("rows", [63, 64, 65, 200])
def test_many_rows_give_the_same_bits(spec: OptimizerSpec, rows: int) -> None:
    """A loop may take rows in groups; the last group is seldom full."""
    first, steps = weights(rows, 3), gradients(3, rows, 3)
    loops = run(spec, first, steps, compiled=True)
    assert loops.tobytes() == run(spec, first, steps, compiled=False).tobytes()


@ENGINES
@specs
def test_one_long_row_equals_many_short_ones(spec: OptimizerSpec, compiled: bool) -> None:
    """A dense shard is one row; a rule per element must not care where rows begin."""
    if spec.name == "row_adagrad":
        assert Updater(spec, 96).width == 97  # One accumulator a row: here it does matter.
        return
    first, steps = weights(8, 12), gradients(3, 8, 12)
    short = run(spec, first, steps, compiled=compiled)
    long = run(spec, first.reshape(1, 96), [g.reshape(1, 96) for g in steps], compiled=compiled)
    assert long[0, :96].tobytes() == np.ascontiguousarray(short[:, :12]).tobytes()


@ENGINES
def test_adam_counts_the_steps_of_each_row(compiled: bool) -> None:
    """Lazy with true powers: a row first pushed late is corrected as new, not as old."""
    spec = OptimizerSpec("adam")
    with engine(compiled):
        updater = Updater(spec, 4)
    first, steps = weights(2, 4), gradients(9, 2, 4)
    values = arena(updater, first, spare=0)
    for i, grads in enumerate(steps):
        rows = np.array([0, 1] if i >= 6 else [0], np.int64)
        updater.apply(values, rows, grads[: len(rows)].copy(), Rate(0.05))
    options = RULES["adam"].complete({})
    late = [g[1:].astype(np.float64) for g in steps[6:]]
    wanted = REFERENCES["adam"](first[1:].astype(np.float64), late, 0.05, options)
    assert values[:, -1].tolist() == [9.0, 3.0]
    assert near(values[1:, :4], wanted)


@ENGINES
def test_adam_of_an_old_row_has_no_correction_left(compiled: bool) -> None:
    """At 16,777,216 steps the count stops growing; the powers are zero long before."""
    with engine(compiled):
        updater = Updater(OptimizerSpec("adam"), 1)
    values = np.array([[1.0, 0.5, 0.25, 2.0**24]], np.float32)
    updater.apply(values, np.zeros(1, np.int64), np.array([[0.5]], np.float32), Rate(0.1))
    assert values[0, 3] == 2.0**24
    assert values[0, 0] == pytest.approx(1.0 - 0.1 * 0.5 / 0.5, abs=1e-7)


@ENGINES
def test_ftrl_sets_small_weights_to_exactly_zero(compiled: bool) -> None:
    """Sparsity is what ftrl is chosen for: not nearly zero, zero."""
    spec = OptimizerSpec("ftrl", options={"l1": 2.0})
    first = np.zeros((1, 2), np.float32)
    grads = [np.array([[0.1, -1.0]], np.float32)] * 5
    got = run(spec, first, grads, compiled=compiled)
    assert got[0, 0] == 0.0
    assert got[0, 1] > 0.0


@ENGINES
@pytest.mark.parametrize("lr", [0.0, 1e-13])
def test_ftrl_at_a_rate_of_nought_changes_nothing(compiled: bool, lr: float) -> None:
    """A warm-up starts at 0, by which the formula divides."""
    first, steps = weights(2, 5), gradients(2, 2, 5)
    got = run(OptimizerSpec("ftrl"), first, steps, compiled=compiled, lr=lr)
    assert got[:, :5].tobytes() == first.tobytes()


@ENGINES
@specs
def test_gradients_of_zero_and_of_tiny_size_give_numbers(
    spec: OptimizerSpec, compiled: bool
) -> None:
    """Squares that vanish in float32 must not become 0 / 0 in any rule."""
    steps = [np.array([[0.0, -0.0, 1e-25, 1e-44]], np.float32)] * 3
    got = run(spec, np.zeros((1, 4), np.float32), steps, compiled=compiled)
    assert np.isfinite(got).all()


@ENGINES
@specs
def test_no_rows_is_no_update(spec: OptimizerSpec, compiled: bool) -> None:
    """A frame may hold no key of a shard."""
    with engine(compiled):
        updater = Updater(spec, 4)
    values = arena(updater, weights(2, 4), spare=0)
    before = values.tobytes()
    updater.apply(values, np.zeros(0, np.int64), np.zeros((0, 4), np.float32), Rate(0.1))
    assert values.tobytes() == before


@specs
def test_width_is_weights_slots_and_scalars(spec: OptimizerSpec) -> None:
    """The table lays rows out by it, and checkpoints keep it."""
    updater = Updater(spec, 10)
    per_row = [slot for slot in updater.slots if slot.per_row]
    assert updater.width == 10 * (1 + len(updater.slots) - len(per_row)) + len(per_row)
    assert updater.slots[len(updater.slots) - len(per_row) :] == tuple(per_row)
    assert updater.initial_state.shape == (updater.width - 10,)


def test_every_rule_is_listed_and_has_a_reference() -> None:
    """The table is the one place that names them; none is left without a test."""
    assert all(rule.name == name for name, rule in RULES.items())
    assert set(REFERENCES) == set(RULES) == {spec.name for spec in SPECS}


@pytest.mark.skipif(not HAVE_NUMBA, reason="compares numba with numpy")
@settings(max_examples=60)
@given(
    spec=st.sampled_from(SPECS),
    dim=st.integers(1, 40),
    rows=st.integers(1, 9),
    exponent=st.integers(-30, 18),
    lr=st.floats(0.0, 2.0),
    seed=st.integers(0, 2**32 - 1),
)
def test_any_sizes_give_the_same_bits(
    spec: OptimizerSpec, dim: int, rows: int, exponent: int, lr: float, seed: int
) -> None:
    """Over fifty powers of ten of gradients, overflow to infinity included."""
    first = weights(rows, dim, seed)
    steps = [g * np.float32(10.0**exponent) for g in gradients(3, rows, dim, seed)]
    loops = run(spec, first, steps, compiled=True, lr=lr)
    arrays = run(spec, first, steps, compiled=False, lr=lr)
    assert np.array_equal(loops, arrays, equal_nan=True)
