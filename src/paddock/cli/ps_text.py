"""The texts of ``paddock ps`` about servers and trainers, for people."""

from __future__ import annotations

from paddock.backends.node.store import size_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from paddock.ps.client.admin import MovedShard, ServerStatus

STATUS = (
    *("server", "endpoint", "role", "job", "up", "tables", "rows", "bytes"),
    *("connections", "ack", "lsn"),
)


def status_text(seen: Sequence[ServerStatus]) -> str:
    """A line for each server, and the group coordinator's text about the trainers."""
    rows = []
    for one in seen:
        facts = one.facts
        if facts is None:
            state = "refused" if getattr(one.problem, "code", "") else "unreachable"
            rows.append([str(one.server), one.endpoint, state])
            continue
        shown = {
            **facts,
            "endpoint": one.endpoint,
            "up": f"{facts['seconds']:.0f} s",
            "tables": len(facts["tables"]),
            "bytes": size_text(facts["bytes"]),
        }
        rows.append([str(shown[name]) for name in STATUS])
    lines = [aligned([STATUS, *rows], left=(1, 2, 3, 9))]
    chiefs = [one.facts["trainers"] for one in seen if one.facts and one.facts.get("trainers")]
    lines.extend(trainers_text(one) for one in chiefs[:1])
    return "".join(lines)


def trainers_text(facts: dict[str, Any]) -> str:
    """The trainers, the step of each, and those that are waited for.

    >>> member = {"trainer": 0, "step": 4, "arrived": 5, "leaving": False}
    >>> facts = {"strategy": "sync", "staleness": 0, "expected": 1, "gathering": False,
    ...          "step": 4, "members": [member], "asking": [], "waiting_for": [1],
    ...          "failure": "", "barriers": {"end": [0]}}
    >>> print(trainers_text(facts), end="")
    sync, step 4, 1 trainer:
      trainer 0: step 4, arrived at 5
    waiting for trainer 1
    barrier 'end': reached by 0
    >>> trainers_text({**facts, "members": [], "gathering": True}).splitlines()[1]
    'all trainers have left; waiting for 1 trainer to join'
    """
    name = facts["strategy"]
    name += f" (staleness {facts['staleness']})" if name == "staleness" else ""
    count = len(facts["members"])
    counts = facts["strategy"] in ("sync", "staleness")  # The others' trainers count no steps.
    step = f"step {facts['step']}, " if counts else ""
    lines = [f"{name}, {step}{count} trainer{'s' * (count != 1)}:"]
    for one in facts["members"]:
        text = f"  trainer {one['trainer']}" + (f": step {one['step']}" if counts else "")
        text += "" if one["arrived"] is None else f", arrived at {one['arrived']}"
        lines.append(text + (", leaving" if one["leaving"] else ""))
    if facts["gathering"]:
        missing = facts["expected"] - count
        left = "all trainers have left; " if facts["step"] and not count else ""
        lines.append(f"{left}waiting for {missing} trainer{'s' * (missing != 1)} to join")
    for trainer in facts["asking"]:
        lines.append(f"trainer {trainer} asks to join")
    if facts["waiting_for"]:
        lines.append("waiting for trainer " + ", ".join(map(str, facts["waiting_for"])))
    for barrier, reached in facts["barriers"].items():
        lines.append(f"barrier {barrier!r}: reached by " + ", ".join(map(str, reached)))
    if facts["failure"]:
        lines.append(f"failed: {facts['failure']}")
    return "\n".join(lines) + "\n"


def moved_text(moves: Sequence[MovedShard], table: str) -> str:
    """The results of shard moves, a line for each."""
    lines = [
        f"{table}: shard {one.shard} from server {one.source} to {one.to}, "
        f"{size_text(one.bytes)}, pushes waited {one.seconds:.3f} s"
        for one in moves
        if one.source != one.to
    ]
    return "\n".join(lines) or f"{table}: nothing to move"


def aligned(rows: Sequence[Sequence[str]], left: Sequence[int] = ()) -> str:
    """Lines with columns one under another; those of `left` begin together, others end so.

    >>> print(aligned([["name", "rows"], ["a", "12"], ["bcdef", "3"]], left=(0,)), end="")
    name   rows
    a        12
    bcdef     3
    """
    count = max(len(row) for row in rows)
    widths = [max(len(row[i]) for row in rows if i < len(row)) for i in range(count)]
    lines = []
    for row in rows:
        cells = [
            text.ljust(width) if i in left else text.rjust(width)
            for i, (text, width) in enumerate(zip(row, widths, strict=False))
        ]
        lines.append("  ".join(cells).rstrip() + "\n")
    return "".join(lines)
