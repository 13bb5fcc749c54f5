"""Learning rates by global step, against the formulas in the docstring."""

from __future__ import annotations

import math

import pytest

from paddock.ps.optimizers.schedules import KINDS, learning_rate
from paddock.ps.spec import SCHEDULES, OptimizerSpec, ScheduleSpec, check_fields

STEPS = (0, 1, 9, 10, 11, 25, 1000)


def _rates(schedule: ScheduleSpec, steps: tuple[int, ...] = STEPS) -> list[float]:
    return [learning_rate(OptimizerSpec(lr=0.1, schedule=schedule), step) for step in steps]


def test_constant_is_the_optimizers_own_rate() -> None:
    """The default changes nothing."""
    assert _rates(ScheduleSpec()) == [0.1] * len(STEPS)


@pytest.mark.parametrize("staircase", [False, True])
def test_decays_follow_their_formulas(staircase: bool) -> None:
    """Smooth, or in steps of ``every``."""
    periods = [s // 10 if staircase else s / 10 for s in STEPS]

    def rates(kind: str) -> list[float]:
        return _rates(ScheduleSpec(kind, rate=0.5, every=10, staircase=staircase))

    assert rates("exponential") == pytest.approx([0.1 * 0.5**p for p in periods])
    assert rates("natural_exp") == pytest.approx([0.1 * math.exp(-0.5 * p) for p in periods])
    assert rates("inverse_time") == pytest.approx([0.1 / (1 + 0.5 * p) for p in periods])


def test_noam_rises_to_its_warmup_and_falls() -> None:
    """Its peak is at warmup_steps; step 0 counts as 1, where the formula divides by zero."""
    spec = OptimizerSpec(lr=2.0, schedule=ScheduleSpec("noam", dim=64, warmup_steps=100))
    rates = [learning_rate(spec, s) for s in range(400)]
    assert rates.index(max(rates)) == 100
    assert rates[100] == pytest.approx(2.0 / 8 / 10)
    assert rates[25] == pytest.approx(2.0 / 8 * 25 / 1000)
    assert rates[399] == pytest.approx(2.0 / 8 / math.sqrt(399))
    assert rates[0] == rates[1]


def test_piecewise_changes_at_its_boundaries() -> None:
    """values[i] before boundaries[i]: the step named is the first with the next value."""
    schedule = ScheduleSpec("piecewise", boundaries=(10, 25), values=(1.0, 0.5, 0.1))
    assert _rates(schedule) == pytest.approx([0.1, 0.1, 0.1, 0.05, 0.05, 0.01, 0.01])


def test_cosine_falls_half_a_wave_and_stays() -> None:
    """From lr to its share, slowly at both ends."""
    rates = _rates(ScheduleSpec("cosine", rate=0.1, every=100), (0, 50, 100, 1000))
    assert rates == pytest.approx([0.1, 0.055, 0.01, 0.01])


def test_warmup_is_a_straight_line_to_the_schedule() -> None:
    """From warmup_start, in parts of lr; afterwards the schedule as if there had been none."""
    schedule = ScheduleSpec("exponential", 0.5, every=10, warmup_steps=10, warmup_start=0.1)
    rates = _rates(schedule, (0, 5, 10, 20))
    assert rates == pytest.approx([0.01, 0.1 * (0.1 + 0.4 / 2), 0.05, 0.025])


def test_far_steps_end_in_small_numbers_not_in_errors() -> None:
    """A job may run for years: no overflow, no division by zero."""
    for kind in ("exponential", "natural_exp", "inverse_time", "noam"):
        schedule = ScheduleSpec(kind, rate=0.5, warmup_steps=10)
        assert 0.0 <= _rates(schedule, (10**15,))[0] < 1e-6


def test_unknown_kind_names_the_known() -> None:
    """Told with the value and what could stand there."""
    (problem,) = check_fields(ScheduleSpec("sine"), "schedule")
    assert problem.message == "schedule: kind is 'sine'"
    assert "natural_exp" in problem.hint
    assert tuple(sorted(KINDS)) == tuple(sorted(SCHEDULES))


@pytest.mark.parametrize(
    ("schedule", "names"),
    [
        (ScheduleSpec("exponential", rate=0.0, every=0), ["every is 0", "rate is 0.0"]),
        (ScheduleSpec("exponential", rate=1.5), ["rate is 1.5"]),
        (ScheduleSpec("cosine", rate=1.5), ["rate is 1.5"]),
        (ScheduleSpec("natural_exp", rate=-1.0), ["rate is -1.0"]),
        (ScheduleSpec("inverse_time", rate=math.nan), ["rate is nan"]),
        (ScheduleSpec("noam", dim=0), ["dim is 0", "warmup_steps is 0"]),
        (ScheduleSpec("piecewise", boundaries=(5, 5), values=(1.0,)), ["boundaries", "values"]),
        (ScheduleSpec("constant", warmup_steps=-1, warmup_start=-1.0), ["steps", "start"]),
    ],
    ids=lambda value: value.kind if isinstance(value, ScheduleSpec) else "",
)
def test_every_bad_field_is_told_at_once(schedule: ScheduleSpec, names: list[str]) -> None:
    """With the value found and the range."""
    found = check_fields(schedule, "schedule")
    assert len(found) == len(names)
    assert all(name in problem.message for name, problem in zip(names, found, strict=True))
    assert all(problem.hint for problem in found)
