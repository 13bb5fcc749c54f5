"""What holds for every decision about every job, whatever came before. Raises AssertionError."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from paddock.operator import names
from paddock.operator.decision import Create, Delete
from paddock.operator.read_spec import read_spec
from paddock.operator.runtime.executor import canonical
from paddock.operator.schema import PHASES
from paddock.operator.status import MESSAGE_MAX, has_ended, read_status

if TYPE_CHECKING:
    from paddock.operator.decision import Decision, ObservedState


def check_same(first: Decision, second: Decision) -> None:
    """The same facts give the same decision, to the byte. Raises AssertionError."""
    assert first == second
    status, again = (None if d.status is None else dict(d.status) for d in (first, second))
    assert json.dumps(status) == json.dumps(again), "the same facts, other bytes"


def check_rules(observed: ObservedState, decision: Decision) -> None:
    """What holds for every decision about every job. Raises AssertionError."""
    job, previous = observed.job, read_status(observed.job.status)
    present = {(type_of(p), p.metadata.name) for p in (*observed.pods, *observed.services)}
    made = [a for a in decision.actions if isinstance(a, Create) and not a.dry_run]
    assert len({(a.kind, a.name) for a in made}) == len(made), "made twice"
    assert not [a.name for a in made if (a.kind, a.name) in present], "it is there already"
    uids = {o.metadata.uid for o in (*observed.pods, *observed.services, *observed.config_maps,
                                     *observed.pod_groups)} | {job.metadata.uid}  # fmt: skip
    assert all(a.uid in uids for a in decision.actions if not isinstance(a, Create)), "not ours"
    is_suspended = isinstance(job.spec, dict) and job.spec.get("suspend") is True
    is_over = has_ended(previous.phase, previous.reason)
    if job.metadata.deletionTimestamp or is_over or is_suspended:
        assert made == []
    else:
        check_unread(observed, decision)
    if decision.status is None:
        return
    assert decision.status["phase"] in PHASES
    if has_ended(previous.phase, previous.reason) and not job.metadata.deletionTimestamp:
        assert decision.status["phase"] == previous.phase, "the end is the end"
    after = read_status(canonical(decision.status))
    step = after.state.attempt - previous.state.attempt
    made_for = [
        o.metadata.label(names.LABEL_ATTEMPT) for o in (*observed.pods, *observed.config_maps)
    ]
    latest = max((int(text) for text in made_for if text.isdigit()), default=0)
    assert 0 <= step <= 1 or after.state.attempt in (latest, latest + 1), "attempts were skipped"
    assert len(str(decision.status.get("message", ""))) <= MESSAGE_MAX


def check_unread(observed: ObservedState, decision: Decision) -> None:
    """A spec that nobody can read ends no pod that runs. Raises AssertionError."""
    job = observed.job
    if read_spec(job.metadata.name, job.spec)[0] is not None:
        return
    attempts = [read_status(job.status).state.attempt, *map(names.attempt_of, observed.pods)]
    at_work = {
        p.metadata.uid for p in observed.pods
        if p.status.phase == "Running" and names.attempt_of(p) == max(attempts)
    }  # fmt: skip
    ended = [a.name for a in decision.actions if isinstance(a, Delete) and a.uid in at_work]
    assert ended == [], "ended by an edit"


def type_of(found: Any) -> str:
    """ "Pod" or "Service"."""
    return "Pod" if type(found).__name__ == "Pod" else "Service"
