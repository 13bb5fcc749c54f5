"""Which optimizers there are, and what is wrong with a table's choice of one.

To add one: write its file (``adagrad.py`` is the shortest with state) and add its name here.
"""

from __future__ import annotations

import math
from importlib import import_module

from paddock.errors import Problem, UsageError
from paddock.ps.optimizers.rule import Rule
from paddock.ps.optimizers.schedules import check_schedule
from paddock.ps.spec import OptimizerSpec

# Each is a file of this folder with a RULE of that name.
NAMES = (
    "sgd",
    "momentum",
    "nesterov",
    "adagrad",
    "row_adagrad",
    "adam",
    "adamw",
    "rmsprop",
    "ftrl",
    "sum",
)


def _load(name: str) -> Rule:
    rule: Rule = import_module(f"paddock.ps.optimizers.{name}").RULE
    return rule


RULES: dict[str, Rule] = {name: _load(name) for name in NAMES}


def find_rule(name: str) -> Rule:
    """The rule of that name.

    Raises: UsageError naming the known ones.

    >>> find_rule("adam").name
    'adam'
    """
    rule = RULES.get(name)
    if rule is None:
        raise UsageError.of([_unknown(name)])
    return rule


def check_optimizer(spec: OptimizerSpec) -> list[Problem]:
    """Everything wrong with the spec: rule, options, learning rate, schedule, guards.

    >>> [p.message for p in check_optimizer(OptimizerSpec("adam", options={"beta1": 1.5}))]
    ["optimizer 'adam': beta1 is 1.5"]
    """
    found: list[Problem] = []
    rule = RULES.get(spec.name)
    if rule is None:
        found.append(_unknown(spec.name))
    else:
        found += rule.check(spec.options)
        for name, hint in rule.refuses.items():
            if getattr(spec, name):
                found.append(
                    Problem(
                        f"optimizer {spec.name!r} does not take {name} {getattr(spec, name)!r}",
                        hint,
                    )
                )
    for name in ("lr", "bound", "clip_value", "clip_norm", "l1", "l2"):
        value = getattr(spec, name)
        if isinstance(value, bool) or not isinstance(value, int | float):
            found.append(Problem(f"optimizer: {name} is {value!r}", "a number, 0 or more"))
        elif not (math.isfinite(value) and value >= 0.0):
            found.append(Problem(f"optimizer: {name} is {value!r}", "finite, 0 or more"))
    return found + check_schedule(spec.schedule)


def _unknown(name: str) -> Problem:
    return Problem(f"optimizer {name!r} is unknown", "one of " + ", ".join(NAMES))
