"""``paddock top stacks bill``: what the ranks of a run do now, and what its time was spent on."""

from __future__ import annotations

import json
from typing import Any

from paddock.backends.backend import find_backend
from paddock.backends.status import one_of, shown_name
from paddock.backends.text import clean
from paddock.cli.family import JSON, CliCommand, Operand, ParsedCommand
from paddock.command_line import flag
from paddock.errors import UsageError
from paddock.local.report.text import count
from paddock.local.report.width import fitted, say, terminal_width
from paddock.watch.bill import Bill, bill_line, bill_of
from paddock.watch.history import VERSION, HistoryRows, read_history
from paddock.watch.slow import slow_text
from paddock.watch.stacks import (
    SHOWN_RANKS,
    RankStack,
    StackGroup,
    blame_text,
    differing,
    group,
    groups_text,
    missing_hint,
    ranks_text,
    stack_of,
    stack_row,
    suspects,
    with_ranks,
)

HOUR_MS = 3_600_000
NO_RANKS = "no ranks run here now"


def _bill(given: ParsedCommand) -> int:
    """Print what the rank-seconds of a run were spent on."""
    run = one_of(given.jobs)
    history = read_history(find_backend(run.handle.backend).history(run))
    bill = bill_of(history)
    if bill is None:
        hint = "a run of less than a second has none, nor has one of an older Paddock"
        raise UsageError(f"{shown_name(run)} has no history", hint=hint)
    if given.json:
        print(json.dumps(bill_row(run.run_id, bill, history)))
        return 0
    told = "" if bill.is_over else ", so far"
    steps = "" if bill.steps is None else f" · {count(bill.steps, 'step')}"
    print(f"{shown_name(run)}{told}: {bill_line(bill)}")
    print(f"{count(bill.attempts, 'attempt')}{steps}\n", *bill_lines(bill), sep="\n")
    if slow := slow_text(history):
        print(f"\n{clean(slow)}")
    if history.skipped:
        say(f"warning: {count(history.skipped, 'damaged row')} of the history skipped")
    if history.newest > VERSION:
        say("warning: a newer Paddock has written this history: some of it may be missing here")
    return 0


def bill_lines(bill: Bill) -> list[str]:
    """The bill as a table, the largest first; the sum is the wall time times the ranks."""
    rows = [(kind, ms) for kind, ms in sorted(bill.spent_ms, key=lambda pair: -pair[1]) if ms]
    total = bill.wall_ms * bill.ranks
    lines = [f"{'spent on':12}{'rank-seconds':>14}{'rank-hours':>12}{'per cent':>10}"]
    for kind, ms in [*rows, ("all", total)]:
        share = 100 * ms / (total or 1)
        lines.append(f"{bill.name_of(kind):12}{ms / 1000:14.1f}{ms / HOUR_MS:12.4f}{share:10.1f}")
    return lines


def bill_row(run_id: str, bill: Bill, history: HistoryRows) -> dict[str, Any]:
    """The bill as JSON; see docs/reference/json.md."""
    return {
        "id": run_id,
        "wall_seconds": bill.wall_ms / 1000,
        "ranks": bill.ranks,
        "rank_hours": round(bill.wall_ms * bill.ranks / HOUR_MS, 6),
        "attempts": bill.attempts,
        "steps": bill.steps,
        "is_over": bill.is_over,
        "skipped": history.skipped,
        "spent": [
            {"kind": kind, "rank_seconds": ms / 1000, "share": round(bill.share(kind), 6)}
            for kind, ms in bill.spent_ms
        ],
    }


def _stacks(given: ParsedCommand) -> int:
    """Print where every rank is, alike ones as one."""
    run = one_of(given.jobs)
    if run.has_ended:
        hint = "stacks that were taken before its end are in the page of paddock report"
        raise UsageError(f"{shown_name(run)} has ended", hint=hint)
    answers = find_backend(run.handle.backend).stacks(run, native=given.native)
    stacks = read_stacks(answers)
    problems = [f"{a['host']}: {a['problem']}" for a in answers if a.get("problem")]
    if given.json:
        groups = group(stacks)
        row = {
            "id": run.run_id, "suspects": list(suspects(groups)),
            "differing": list(differing(groups)), "problems": problems,
            "groups": [{"ranks": list(g.ranks), "place": g.place, "collective": g.collective}
                       for g in groups],
            "ranks": [stack_row(stack) for stack in stacks],
        }  # fmt: skip
        print(json.dumps(row))
        return 0
    for problem in problems:
        say(f"warning: {clean(problem)}")
    if not stacks:
        say(NO_RANKS)
        return 1
    print("\n".join(stack_lines(stacks)))
    if hint := missing_hint(stacks):
        say(hint)
    return 0


def read_stacks(answers: list[dict[str, Any]]) -> list[RankStack]:
    """The stacks in the launchers' answers, by rank; rows that are none are left out."""
    found: list[RankStack] = []
    ends: dict[str, int] = {}
    for answer in answers:
        ends.update(answer.get("ends") or {})
        for row in answer.get("stacks") or ():
            try:
                found.append(stack_of(row))
            except (LookupError, TypeError, ValueError):
                continue  # of another version
    return sorted(with_ranks(found, ends), key=lambda stack: stack.rank)


def stack_lines(stacks: list[RankStack]) -> list[str]:
    """The stacks of ranks as text: alike ones as one, that of the suspects first."""
    groups = group(stacks)
    blamed, few = suspects(groups), differing(groups)
    lines = [f"{count(len(stacks), 'rank')}: {groups_text(groups)}"]
    lines += filter(None, [blame_text(groups, blamed, few)])
    for each in sorted(groups, key=lambda g: (g.ranks != (blamed or few), len(g.ranks))):
        lines += ["", *_group_lines(each, stacks)]
    return [clean(line) for line in lines]


def _group_lines(group: StackGroup, stacks: list[RankStack]) -> list[str]:
    """A group as text: its ranks, and the stack of the first, innermost call first."""
    first = next(stack for stack in stacks if stack.rank == group.ranks[0])
    by = f", by {first.by}" if first.by else ""
    lines = [f"{ranks_text(group.ranks)}: {group.place}{by}"]
    frames = [(f"  {f.function}", f"{f.path}:{f.line}" if f.line else f.path) for f in first.frames]
    lines += fitted(frames, terminal_width())
    if first.on:
        lines.append(f"  waits in {first.on}")
    elif first.wait and not first.frames:
        lines.append(f"  waits in the kernel: {first.wait}")
    unread = sorted({at for s in stacks if s.rank in group.ranks for at in s.waits.unread})
    if unread:
        lines.append(f"  bytes that it sent are not read by {', '.join(unread[:SHOWN_RANKS])}")
    if first.problem:
        lines.append(f"  no stack: {first.problem}")
    return lines


def _top(given: ParsedCommand) -> int:
    """Show the live board."""
    from paddock.cli.top import run_top

    return run_top(given.jobs, is_plain=given.plain, seconds=given.every)


# fmt: off
_JOBS = (Operand("jobs", "RUN", "an id or its beginning, a name, a handle, pid N or last", "job",
                 (), 0, 0),)
_VERBS = (
    CliCommand("top", "watch runs live in the terminal: ranks, steps, rates, what they wait for", (
        flag("plain", "", "redraw a plain table, also where textual is installed"),
        flag("every", "DURATION", "between two looks", default="1s"),
    ), _top, _JOBS, notes="A pipe gets the table once."),
    CliCommand("stacks", "show where in its code every rank is now, alike ones as one", (
        flag("native", "", "the frames of C and C++, too; the ranks stand still for a second each"),
        JSON,
    ), _stacks, _JOBS),
    CliCommand("bill", "show what the time of a run was spent on", (JSON,), _bill, _JOBS),
)
# fmt: on
COMMANDS = {verb.name: verb for verb in _VERBS}
