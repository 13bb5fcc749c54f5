"""Output of a site's commands -> job id and state, by the site's regular expressions. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, get_args

from paddock.backends.common.recorded import EXIT_CANCELLED, culprit_of, ended, nodes_of
from paddock.backends.types import FINAL, JobStatus, State
from paddock.command_line import nearest
from paddock.errors import Problem

STATES = tuple(state for state in get_args(State) if state != "unknown")
PLACE = re.compile(r"\{\{(\w+)\}\}|(?<!\$)\{(\w+)\}")


def find_id(said: str, pattern: str) -> str:
    """Return the job id in the output of the submitting command; "" where there is none.

    Without a pattern, the id is the last word.

    >>> find_id("1234.server\\n", ""), find_id("job 77 is queued", r"job (\\d+)")
    ('1234.server', '77')
    """
    if not pattern:
        return said.split()[-1] if said.split() else ""
    found = re.search(pattern, said)
    if found is None:
        return ""
    return str(found[1] if found.re.groups else found[0]).strip()


def find_state(said: str, states: Mapping[str, str]) -> State | None:
    """Return the first state whose pattern is in the text, in the order of the profile.

    >>> find_state("job_state = R", {"pending": "state = Q", "running": "state = R"})
    'running'
    """
    for state, pattern in states.items():
        if re.search(pattern, said):
            return state  # type: ignore[return-value]  # checked by pattern_problems
    return None


def pattern_problems(job_id: str, states: Mapping[str, object]) -> Iterator[Problem]:
    """Yield a problem for each invalid expression and unknown state of a site."""
    for name, pattern in {"job_id": job_id, **states}.items():
        if name != "job_id" and name not in STATES:
            yield Problem(f"states: there is no state '{name}'", nearest(name, STATES))
        try:
            re.compile(str(pattern))
        except re.error as error:
            yield Problem(f"{name} = {pattern!r} is no regular expression: {error}")


def status_of(
    told: State | None,
    own: Mapping[str, Any],
    as_of: float,
    *,
    is_asked: bool,
    whole: Mapping[str, Any] | None = None,
) -> JobStatus | None:
    """Return the job's status; None where it is unknown.

    told: the state by the site's command. own: the job's state.json, which knows the end better
    than the command. is_asked: the job was told to end. whole: the launchers' record.

    >>> status_of("lost", {"code": 3}, 1.0, is_asked=False).state
    'failed'
    """
    code = own.get("code")
    end: State | None = None
    if code is not None:
        end = "succeeded" if code == 0 else "failed"
    nodes = nodes_of(whole or {})
    if told is not None and told not in FINAL:
        return JobStatus("stopping" if is_asked or end else told, as_of, nodes=nodes)
    state = end or told
    if state is None:
        return None
    if is_asked and state != "succeeded":
        state = "cancelled"
    if code is None:
        code = {"succeeded": 0, "cancelled": EXIT_CANCELLED}.get(state)
    why = "" if state == "succeeded" else str(own.get("why") or "")
    since = float(own.get("at") or 0.0)
    return JobStatus(
        state, as_of, why=why, code=code, since=since, nodes=ended(nodes, state),
        culprit=culprit_of(own),
    )  # fmt: skip
