"""Tell what each strategy does with each option of a table: honours it, or refuses it. Pure.

The reference page prints this table, create() refuses by it, and a test tries each of its cells.
"""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING

from paddock.errors import Problem
from paddock.ps.spec import AccessorSpec, DenseSpec, OptimizerSpec, SparseSpec

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from paddock.ps.spec import TableSpec
    from paddock.ps.strategies import Strategy

WHOLE = "every row that a trainer touches is made, and learned whole"
UNCOUNTED = "the differences that it sends have no shows and clicks"
# A server adds up differences, and knows of no bound.
UNBOUNDED = "with geo_merge='sum' the differences of several trainers may add up to more"
REFUSED: Mapping[str, Mapping[Strategy, str]] = {
    "accessor.admit_count": {"geo": WHOLE},
    "accessor.admit_probability": {"geo": WHOLE},
    "accessor.admit_score": {"geo": WHOLE},
    "accessor.unlock_score": {"geo": WHOLE},
    "accessor.statistics": {"geo": UNCOUNTED},
    "optimizer.bound": {"geo": UNBOUNDED},
}
# Without effect in a table without another option of its accessor, whatever the strategy.
DEPENDS = {
    **dict.fromkeys(("nonclick_coeff", "click_coeff", "decay", "delete_score"), "statistics"),
    "unlock_from": "unlock_score",
}
ALONE = "each push is applied by itself"
# Contributions of a step become rows at its end; those of geo when they are exchanged.
COUNTED: Mapping[str, str] = {"sync": "from the next step on", "geo": "at an exchange"}


def options() -> list[str]:
    """Return the full names of all options of tables; a schedule and an initial are one each.

    >>> options()[:3], options()[-2:]
    (['dim', 'optimizer.name', 'optimizer.lr'], ['size', 'parts'])
    """
    names: dict[str, None] = {}
    for cls in (SparseSpec, DenseSpec):
        for each in fields(cls):
            part = {"optimizer": OptimizerSpec, "accessor": AccessorSpec}.get(each.name)
            inner = [f"{each.name}.{one.name}" for one in fields(part)] if part else [each.name]
            names |= dict.fromkeys(inner)
    return [name for name in names if name not in ("name", "kind")]


def cell(option: str, strategy: Strategy) -> str:
    """Return what a strategy does with an option, for people.

    >>> cell("accessor.admit_count", "sync"), cell("merge", "geo")
    ('yes', 'each push is applied by itself')
    """
    if reason := REFUSED.get(option, {}).get(strategy):
        return f"refused: {reason}" if reason != UNBOUNDED else "yes; refused with geo_merge='sum'"
    if option == "max_rows" and strategy in COUNTED:
        return COUNTED[strategy]
    if option == "merge" and strategy != "sync":
        return ALONE
    if needed := DEPENDS.get(option.rpartition(".")[2]):
        is_refused = REFUSED[f"accessor.{needed}"].get(strategy)
        return f"refused with {needed}" if is_refused else f"with {needed}"
    return "yes"


def refusals(spec: TableSpec, strategy: Strategy, *, adds_up: bool) -> Iterator[Problem]:
    """Yield the options of a spec that a strategy cannot honour. adds_up: geo_merge is "sum"."""
    by_reason: dict[str, list[str]] = {}
    for option, reasons in REFUSED.items():
        reason = reasons.get(strategy, "")
        if reason and (adds_up or reason != UNBOUNDED) and _is_chosen(spec, option):
            by_reason.setdefault(reason, []).append(option.rpartition(".")[2])
    for reason, names in by_reason.items():
        what = f"table {spec.name!r}: {strategy} does not honour {', '.join(names)}: {reason}"
        hint = "strategy async, half_async or sync; or leave them out"
        yield Problem(what, "geo_merge='mean'; or " + hint if reason == UNBOUNDED else hint)


def without_effect(spec: TableSpec) -> Iterator[Problem]:
    """Yield the options that do nothing for want of another, as somebody meant them to.

    >>> spec = SparseSpec("t", 2, accessor=AccessorSpec(decay=0.9))
    >>> [problem.message for problem in without_effect(spec)]
    ["table 't': decay without statistics has no effect"]
    """
    lacking: dict[str, list[str]] = {}
    for name, needed in DEPENDS.items():
        if _is_chosen(spec, f"accessor.{name}") and not _is_chosen(spec, f"accessor.{needed}"):
            lacking.setdefault(needed, []).append(name)
    for needed, names in lacking.items():
        what = f"table {spec.name!r}: {', '.join(names)} without {needed} has no effect"
        yield Problem(what, f"AccessorSpec({needed}=...) as well, or leave it out")


def _is_chosen(spec: TableSpec, option: str) -> bool:
    part, _, name = option.partition(".")
    if not hasattr(spec, part):
        return False
    value = getattr(spec, part)
    return bool(getattr(value, name) != getattr(type(value)(), name))
