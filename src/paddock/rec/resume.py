"""How a run goes on from a checkpoint: whose it is, and which batches come next. Pure.

With as many workers each goes on at its own position. With another number what all of them have
left of the epoch is dealt anew: the source does it, as only it knows what a position means.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from paddock.errors import Problem, UsageError

READY = ".ready"  # paddock.ps.adapters.dense: of a table that a table has beside it


@dataclass(frozen=True)
class ResumePoint:
    """Where all workers of a job were. ats: their sources', in order; None: all of the epoch.
    trained: batches and examples of the epoch, of all of them.
    """

    epoch: int
    step: int
    ats: tuple[Any, ...]
    trained: Mapping[str, int] = field(default_factory=dict)


def resume_point(positions: Mapping[str, Mapping[str, Any] | None]) -> ResumePoint:
    """Of a checkpoint's positions, by worker.

    Nobody begins an epoch before all have ended the one before: so who is an epoch behind has
    nothing left of it, and has not begun the next.

    >>> here = {"epoch": 1, "step": 9, "at": 4, "workers": 3, "batches": 4, "examples": 40}
    >>> behind = {"epoch": 0, "step": 7, "at": 7, "workers": 3, "batches": 7, "examples": 70}
    >>> resume_point({"0": here, "1": behind})
    ResumePoint(epoch=1, step=9, ats=(4, None, None), trained={'batches': 4, 'examples': 40})
    """
    found = {int(worker): one for worker, one in positions.items() if one}
    if not found:
        return ResumePoint(0, 0, ())
    newest = max(found.values(), key=lambda one: one["epoch"])
    epoch = newest["epoch"]
    there = {worker: one for worker, one in found.items() if one["epoch"] == epoch}
    ats = [there[n]["at"] if n in there else None for n in range(newest["workers"])]
    trained = {n: sum(one.get(n, 0) for one in there.values()) for n in ("batches", "examples")}
    return ResumePoint(epoch, max(one["step"] for one in found.values()), tuple(ats), trained)


def is_leased(at: object) -> bool:
    """Whether a source's position is of chunks that were leased: `assignment: dynamic`.

    >>> is_leased({"pass": 0, "open": [[7, 512]]}), is_leased({"chunk": 1, "done": 5})
    (True, False)
    """
    return isinstance(at, dict) and "open" in at


def check_assignment(where: str, cut: ResumePoint, assignment: str) -> None:
    """Raises UsageError when a checkpoint's data were given out in another way.

    >>> check_assignment("out", ResumePoint(0, 3, ({"chunk": 1, "done": 5},)), "dynamic")
    Traceback (most recent call last):
    ...
    paddock.errors.UsageError: checkpoint out is of a run with another assignment than dynamic \
(hint: go on with the one it had, or warm_start from it)
    """
    known = [is_leased(at) for at in cut.ats if at is not None]
    is_dynamic = assignment == "dynamic"
    # Nothing is known where nobody has begun the epoch; those of dynamic the servers count.
    if any(known) != is_dynamic and (known or (is_dynamic and cut.epoch)):
        raise UsageError(
            f"checkpoint {where} is of a run with another assignment than {assignment}",
            hint="go on with the one it had, or warm_start from it",
        )


def check_tables(where: str, there: Iterable[str], here: Iterable[str]) -> None:
    """Raises UsageError when a checkpoint's tables are not those of the model.

    >>> check_tables("out/step-7", ["emb", "dense"], ["emb", "dense"])
    >>> check_tables("out/step-7", ["emb", "tower"], ["emb", "dense"])
    Traceback (most recent call last):
    ...
    paddock.errors.UsageError: checkpoint out/step-7 has no table 'dense' of this model; table \
'tower' of checkpoint out/step-7 is not of this model (hint: is this the model that was trained?)
    """
    mine, its = _told(here), _told(there)
    hint = "is this the model that was trained?"
    problems = [
        Problem(f"checkpoint {where} has no table {name!r} of this model", hint)
        for name in sorted(mine - its)
    ]
    problems += [
        Problem(f"table {name!r} of checkpoint {where} is not of this model", hint)
        for name in sorted(its - mine)
    ]
    if problems:
        raise UsageError.of(problems)


def _told(names: Iterable[str]) -> set[str]:
    return {name for name in names if not name.startswith("rec.") and not name.endswith(READY)}


def check_state(
    where: str,
    there: Mapping[str, tuple[int, ...]],
    here: Mapping[str, tuple[int, ...]],
    missing: str = "fail",
) -> None:
    """Raises UsageError with every parameter in which a saved model is not this one.

    there, here: the shape of each. missing: what of this model is not there fails, or else begins
    as it is (init) or with zeros (zero); what only the saved model has is then left.

    >>> check_state("m", {"fc.weight": (3, 4), "x": (1,)}, {"fc.weight": (4, 4)}, "init")
    Traceback (most recent call last):
    ...
    paddock.errors.UsageError: 'fc.weight' of m is of shape (3, 4), of this model (4, 4) \
(hint: is this the model that was trained?)
    """
    hint = "is this the model that was trained?"
    problems = [
        Problem(f"{name!r} of {where} is of shape {there[name]}, of this model {shape}", hint)
        for name, shape in here.items()
        if there.get(name, shape) != shape
    ]
    if missing == "fail":
        told = "warm_start_missing: init or zero goes on without; " + hint
        problems += [Problem(f"{where} has no {n!r}", told) for n in here if n not in there]
        problems += [
            Problem(f"this model has no {n!r}, {where} has", hint) for n in there if n not in here
        ]
    if problems:
        raise UsageError.of(problems)
