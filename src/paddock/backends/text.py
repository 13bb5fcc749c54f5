"""The text that people read of plans and statuses. Pure; text from hosts is made harmless here."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from paddock.backends.types import (
    JobStatus,
    RankStatus,
    State,
    SubmissionPlan,
    process_name,
)
from paddock.local.report.width import fitted, reflowed

COLOURS: dict[State, str] = {
    "running": "32", "succeeded": "32", "pending": "33", "starting": "33", "stopping": "33",
    "failed": "31", "lost": "31", "cancelled": "36", "unknown": "35",
}  # fmt: skip
UNITS = ((86400, "d"), (3600, "h"), (60, "m"), (1, "s"))
RANKS_SHOWN = 16
STEPS_FROM = {  # by the profile of rows of progress, where that is not the library of log lines
    "plain": "read from the log", "paddock.report": "reported by the script",
    "tensorboard": "read from event files of TensorBoard",
    "visualdl": "read from event files of VisualDL",
}  # fmt: skip
ONLY_THERE = {  # variables in steps for values that only the hosts know
    "$PADDOCK": "the launcher, which is sent along",
    "$ADDRESS_": "where that host is reached by the others: its address in the site, else asked",
    "$PORT_0": "a port that is free there",
    "$JOB": "the job's directory",
    "$NAMESPACE": "the namespace of your kubeconfig's context; --namespace names another",
}


def clean(text: str) -> str:
    """Return the text of an untrusted host without control characters, on one line.

    >>> clean("a\\x1b[31mb\\nc")
    'a?[31mb?c'
    """
    return text if text.isprintable() else "".join(c if c.isprintable() else "?" for c in text)


def age(seconds: float) -> str:
    """Return a duration in the largest unit that fits, and the next.

    >>> age(3725), age(59), age(0.2)
    ('1h2m', '59s', '0s')
    """
    left = max(0, int(seconds))
    parts: list[str] = []
    for size, name in UNITS:
        if left >= size or (parts and name != "s"):
            parts.append(f"{left // size}{name}")
            left %= size
    return "".join([p for p in parts[:2] if not p.startswith("0")]) or "0s"


def word_of(state: str) -> str:
    """Return a state as people read it: "stopped" for cancelled; programs read the state.

    >>> word_of("cancelled"), word_of("failed")
    ('stopped', 'failed')
    """
    return "stopped" if state == "cancelled" else state


def coloured(state: State, *, is_coloured: bool) -> str:
    """Return the state's word, in its colour if is_coloured."""
    return f"\x1b[{COLOURS[state]}m{word_of(state)}\x1b[0m" if is_coloured else word_of(state)


def list_lines(rows: Sequence[Sequence[str]], width: int | None = None) -> list[str]:
    """Return the table of runs under its head.

    Last in a row: the command, and the reason of its state, or "". The line fits the width; the
    command is cut before the reason.

    >>> row = ("train-3f2a", "failed", "-", "9s", "launch", "train.py --lr 0.1", "rank 1 was lost")
    >>> print(*list_lines([row], 80), sep="\\n")
    id          state   ranks  age  backend  what
    train-3f2a  failed  -      9s   launch   train.py --lr 0.1: rank 1 was lost
    >>> print(list_lines([row], 70)[1])
    train-3f2a  failed  -      9s   launch   train.py --…: rank 1 was lost
    """
    head = ("id", "state", "ranks", "age", "backend", "what")
    ends = ["", *(f": {row[-1]}" if row[-1] else "" for row in rows)]
    return fitted([head, *(row[:-1] for row in rows)], width, ends)


def plan_lines(plan: SubmissionPlan) -> list[str]:
    """Return the whole plan: the table, every step, every file, each line with its reason."""
    lines = fitted([("node", "host", "processes", "devices"), *plan.rows], None)
    lines += [f"warning: {sentence}" for sentence in plan.cannot]
    for step in plan.steps:
        lines += ["", f"{step.where}: {step.what}"]
        if step.argv:
            lines.append(f"  {shlex.join(step.argv)}")
    words = "\n".join(word for step in plan.steps for word in step.argv)
    known = [f"{name.rstrip('_')}: {what}" for name, what in ONLY_THERE.items() if name in words]
    lines += ["", *known] if known else []
    for path, text in plan.files.items():
        lines += ["", f"--- {path}"]
        for line in text.splitlines():
            reason = plan.why.get(line.strip(), "")
            lines.append(f"{line}    # {reason}" if reason else line)
    return lines


def status_lines(
    name: str, status: JobStatus, now: float, *, is_coloured: bool = False, width: int | None = None
) -> list[str]:
    """Return the status of a job, host by host.

    now: as time.time(), to tell how long ago a job ended.
    """
    head = f"{clean(name)}: {coloured(status.state, is_coloured=is_coloured)}"
    if status.code is not None:
        head += f", exit code {status.code}"
    if status.attempt:
        head += f", attempt {status.attempt}"
    if status.since:
        passed = age((now if status.is_final else status.as_of) - status.since)
        head += f", {passed} ago" if status.is_final else f", for {passed}"
    lines = [head]
    if status.why:
        lines += reflowed(f"  {clean(status.why)}", width)
    rows = [("host", "state", "ranks", "")]
    for node in status.nodes:
        rows.append((clean(node.name), word_of(node.state), _ranks(node.ranks), clean(node.note)))
    if status.nodes:
        found = fitted(rows, None if width is None else width - 2)
        lines += ["  " + line.replace("\n", "\n  ") for line in found]
    return lines + [f"  {text}" for text in news_lines(status)]


def news_lines(status: JobStatus) -> list[str]:
    """Return where steps are read from, and the pages of trackers."""
    steps = [("steps", steps_text(status.profile))] if status.profile else []
    return [clean(f"{name}: {text}") for name, text in (*steps, *status.trackers)]


def steps_text(profile: str) -> str:
    """Return where steps are read from, for people. profile: as in rows of progress.

    >>> steps_text("plain"), steps_text("tqdm")
    ('read from the log', 'read from the log, lines as of tqdm')
    """
    return STEPS_FROM.get(profile, f"read from the log, lines as of {profile}")


def _ranks(ranks: Sequence[RankStatus]) -> str:
    found = []
    for rank in ranks:
        text = process_name(rank.role, rank.rank)
        if rank.state != "running":
            text += f" {word_of(rank.state)}" + (f" ({rank.code})" if rank.code else "")
        found.append(clean(text))
    if len(found) > RANKS_SHOWN:
        found = [*found[:RANKS_SHOWN], f"and {len(found) - RANKS_SHOWN} more"]
    return ", ".join(found)
