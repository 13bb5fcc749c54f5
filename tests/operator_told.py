"""What one look did, in a few lines that people read. No decision is made here."""

from __future__ import annotations

from typing import TYPE_CHECKING

import yaml

from paddock.operator.decision import Create, Delete
from paddock.operator.status import read_status

if TYPE_CHECKING:
    from collections.abc import Sequence

    from operator_world import Look
    from paddock.operator.decision import Action

NAMES_MAX = 8  # of one line; more are counted
STATES = ("pending", "starting", "running", "unknown", "failed", "succeeded")
COUNTS = ("restarts", "disruptions", "countedFailures", "hostPort", "elastic")


def shown(look: Look) -> list[str]:
    """One look in a few lines; those after the first are indented."""
    first, *more = shown_status(look)
    more += shown_actions(look.taken)
    more += [f"(was there, gets its label: {' '.join(look.taken_back)})"] * bool(look.taken_back)
    more += [f"refused: {line}" for line in look.refused]
    more += [f"event {n.type} {n.reason}: {n.message}" for n in look.decision.notes]
    more += ["(killed before it acts)"] * look.is_killed
    return [first, *(f"  {line}" for line in more)]


def shown_status(look: Look) -> list[str]:
    """The phase, and below it what else of the status has changed."""
    old, new = look.before, look.after
    if old == new:
        return ["(same status)"]
    roles = [
        f"{role} " + " ".join(f"{s} {new[role][s]}" for s in STATES if s in new[role])
        for role in ("ps", "worker", "heter")
        if new.get(role) and any(s in new[role] for s in STATES)
    ]
    first = f"{new['phase']} {new.get('mode', '-')} {new.get('ready', '')}".rstrip()
    first += f", attempt {new['attempt']}" if new.get("attempt") else ""
    lines = [first + (f" ({'; '.join(roles)})" if roles else "")]
    because = new.get("message") or (new["reason"] if new.get("reason") != new["phase"] else "")
    was = old.get("message") or old.get("reason")
    if because and because != was:
        lines.append(f"because: {because}")
    before = {type_: (str(c.status), c.reason) for type_, c in read_status(old).conditions.items()}
    conditions = [
        f"{c['type']}={c['status']} {c['reason']}"
        for c in new.get("conditions", ())
        if (c["status"], c["reason"]) != before.get(c["type"])
    ]
    if conditions:
        lines.append("conditions: " + ", ".join(conditions))
    counts = [
        f"{name} {new[name]}" for name in COUNTS if new.get(name) and new.get(name) != old.get(name)
    ]
    if counts:
        lines.append(", ".join(counts))
    return lines


def shown_actions(actions: Sequence[Action]) -> list[str]:
    """Actions of one kind and reason on one line."""
    groups: dict[tuple[str, str], list[str]] = {}
    for action in actions:
        after = ""
        verb = type(action).__name__.lower()
        if isinstance(action, Create) and action.dry_run:
            verb = "ask for"
        if isinstance(action, Delete):
            force = "by force, " if action.grace_seconds == 0 else ""
            after = f" ({force}{action.why})" if action.why else ""
        elif not isinstance(action, Create):
            steps = action.change if isinstance(action.change, tuple) else [action.change]
            after = "".join(f" {flow(step)}" for step in steps)
        groups.setdefault((f"{verb} {action.kind}", after), []).append(action.name)
    lines = []
    for (what, after), found in groups.items():
        shown = " ".join(found)
        if len(found) > NAMES_MAX:
            shown = f"{found[0]} ... {found[-1]}, {len(found)} in all"
        lines.append(f"{what} {shown}{after}")
    return lines


def flow(value: object) -> str:
    """YAML on one line."""
    return yaml.safe_dump(value, default_flow_style=True, width=10_000).strip()
