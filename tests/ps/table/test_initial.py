"""First values: pure functions of (seed, key, column), in numba and numpy alike."""

from __future__ import annotations

import numpy as np
import pytest

from paddock.ps.spec import INITIALIZERS, InitialSpec
from paddock.ps.table.initial import Initial
from paddock.ps.table.sharding import admission_draw
from ps.engines import engine

KEYS = np.concatenate(
    [
        np.array([-(2**63), 2**63 - 1, 0, -1]),
        np.random.default_rng(0).integers(-(2**63), 2**63 - 1, 5000),
    ]
)


def bits(values: np.ndarray) -> list:
    """Exact content, NaN and -0.0 included."""
    return values.view(np.int32).tolist()


@pytest.mark.parametrize("kind", INITIALIZERS)
def test_compiled_and_numpy_values_have_the_same_bits(kind: str) -> None:
    """A replica without numba must agree with its primary."""
    spec = InitialSpec(kind, 0.37, seed=11)
    with engine(compiled=False):
        plain = Initial(spec, 9).values(KEYS)
    assert bits(plain) == bits(Initial(spec, 9).values(KEYS))


@pytest.mark.parametrize("kind", INITIALIZERS)
def test_a_value_depends_on_its_key_and_column_only(kind: str) -> None:
    """Any sharding, order or batch gives a key the same start."""
    initial = Initial(InitialSpec(kind, 0.5, seed=4), 8)
    whole = initial.values(KEYS)
    order = np.random.default_rng(1).permutation(len(KEYS))
    assert bits(initial.values(KEYS[order])) == bits(whole[order])
    part = np.empty((len(KEYS), 3), np.float32)
    initial.fill(KEYS, part, 5)
    assert bits(part) == bits(whole[:, 5:])


def test_seeds_give_unrelated_values() -> None:
    """Two tables with their own seeds start apart."""
    one, two = (Initial(InitialSpec("uniform", 1.0, seed=s), 8).values(KEYS) for s in (0, 1))
    assert abs(np.corrcoef(one.ravel(), two.ravel())[0, 1]) < 0.02


def test_distributions_have_their_moments() -> None:
    """scale is the half-width of uniform and the standard deviation of normal."""
    uniform = Initial(InitialSpec("uniform", 0.5), 32).values(KEYS).astype(np.float64)
    assert abs(uniform.mean()) < 0.005
    assert abs(uniform.std() - 0.5 / 3**0.5) < 0.003
    assert -0.5 <= uniform.min() <= uniform.max() < 0.5
    normal = Initial(InitialSpec("normal", 2.0), 32).values(KEYS).astype(np.float64) / 2.0
    assert abs(normal.mean()) < 0.01
    assert abs(normal.std() - 1.0) < 0.01
    assert abs((normal**4).mean() - 3.0) < 0.12
    assert abs((np.abs(normal) > 1.96).mean() - 0.05) < 0.003


def test_xavier_takes_its_width_from_the_fan() -> None:
    """fan is fan_in + fan_out; without it dim stands in."""
    of_fan = Initial(InitialSpec("xavier", fan=600), 8).values(KEYS)
    of_dim = Initial(InitialSpec("xavier"), 24).values(KEYS)
    assert 0.099 < np.abs(of_fan).max() <= 0.1
    assert 0.499 < np.abs(of_dim).max() <= 0.5


def test_zeros_and_constant_are_just_that() -> None:
    """scale is the value of constant and nothing to zeros."""
    assert (Initial(InitialSpec("zeros", 3.0), 4).values(KEYS) == 0.0).all()
    assert (Initial(InitialSpec("constant", 3.0), 4).values(KEYS) == 3.0).all()


def test_coins_are_fair_and_differ_by_push() -> None:
    """Admission by chance: each push of a key is another toss, each replay the same."""
    first, again, later = (
        admission_draw(KEYS, 5, 10),
        admission_draw(KEYS, 5, 10),
        admission_draw(KEYS, 5, 11),
    )
    assert (first == again).all()
    assert abs(first.mean() - 0.5) < 0.02
    assert abs(np.corrcoef(first, later)[0, 1]) < 0.05
