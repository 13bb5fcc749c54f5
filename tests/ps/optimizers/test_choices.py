"""What is refused: unknown rules and options, numbers out of range, choices without meaning."""

from __future__ import annotations

import math

import pytest

from paddock.errors import UsageError
from paddock.ps.optimizers.rule import Option
from paddock.ps.optimizers.rules import RULES, check_optimizer
from paddock.ps.optimizers.updater import Updater
from paddock.ps.spec import OptimizerSpec, ScheduleSpec


def test_unknown_rule_names_all_that_exist() -> None:
    """Paddle ran Adam when another was asked for; here it is an error with the list."""
    with pytest.raises(UsageError) as caught:
        Updater(OptimizerSpec("lamb"), 4)
    assert "'lamb'" in caught.value.message
    assert all(name in caught.value.hint for name in RULES)


def test_all_problems_of_a_spec_are_told_together() -> None:
    """Six mistakes, one error."""
    spec = OptimizerSpec(
        "adam",
        lr=-0.1,
        options={"beta1": 1.0, "rho": 0.5, "epsilon": 0.0},
        schedule=ScheduleSpec("sine"),
        bound=math.inf,
    )
    with pytest.raises(UsageError) as caught:
        Updater(spec, 8)
    messages = [problem.message for problem in caught.value.problems]
    assert messages == [
        "optimizer: lr is -0.1",
        "optimizer: schedule: kind is 'sine'",
        "optimizer: bound is inf",
        "optimizer 'adam': beta1 is 1.0",
        "optimizer 'adam' has no option 'rho'",
        "optimizer 'adam': epsilon is 0.0",
    ]
    assert caught.value.problems[3].hint == "at least 0, below 1"
    assert "beta1, beta2, epsilon" in caught.value.problems[4].hint


@pytest.mark.parametrize(
    ("spec", "hint"),
    [
        (OptimizerSpec("adamw", l2=0.1), "weight_decay"),
        (OptimizerSpec("ftrl", l1=0.1), "options l1"),
        (OptimizerSpec("ftrl", l2=0.1), "options l2"),
        (OptimizerSpec("sum", l2=0.1), "sgd"),
    ],
    ids=lambda value: value.name if isinstance(value, OptimizerSpec) else "",
)
def test_a_decay_with_two_meanings_is_refused(spec: OptimizerSpec, hint: str) -> None:
    """Not guessed at: the hint says which field means what."""
    (problem,) = check_optimizer(spec)
    assert hint in problem.hint


@pytest.mark.parametrize("name", RULES)
def test_defaults_of_every_rule_are_in_range(name: str) -> None:
    """A bare name is a valid choice."""
    rule = RULES[name]
    assert all(option.accepts(option.default) for option in rule.options.values())
    assert check_optimizer(OptimizerSpec(name)) == []


@pytest.mark.parametrize("value", ["0.9", None, math.nan, math.inf, True, [0.9]])
def test_options_that_are_no_numbers_are_refused(value: object) -> None:
    """Specs come as JSON from any client."""
    spec = OptimizerSpec("momentum", options={"momentum": value})  # type: ignore[dict-item]  # bad
    (problem,) = check_optimizer(spec)
    assert repr(value) in problem.message


@pytest.mark.parametrize("name", ["lr", "bound", "clip_value", "clip_norm", "l1", "l2"])
@pytest.mark.parametrize("value", [-1.0, math.nan, math.inf, "1", True])
def test_guards_that_are_no_numbers_are_refused(name: str, value: object) -> None:
    """A NaN limit would switch a guard off in silence."""
    spec = OptimizerSpec(**{name: value})  # type: ignore[arg-type]  # bad on purpose
    assert any(repr(value) in problem.message for problem in check_optimizer(spec))


def test_flags_take_only_two_values() -> None:
    """centered is on or off; a half would be on by accident."""
    for good in (0, 1, 0.0, 1.0, True, False):
        assert not check_optimizer(OptimizerSpec("rmsprop", options={"centered": good}))
    (problem,) = check_optimizer(OptimizerSpec("rmsprop", options={"centered": 0.5}))
    assert problem.hint == "0 or 1"


def test_ranges_read_as_words() -> None:
    """They are hints for people."""
    assert Option(1.0, above=True).range == "above 0"
    assert Option(1.0, low=1.0, high=2.0).range == "at least 1, at most 2"
