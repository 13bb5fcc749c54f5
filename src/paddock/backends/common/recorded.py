"""The record of a job's launchers (status.json) -> its hosts. Pure.

The slurm, mpi and script backends read it from a shared directory: their launchers run on other
hosts, where no control socket can be reached.

How a host has ended, on every backend whose launchers tell of ranks (docs/guide/submit.md):

    the job      its ranks on the host                 the host is
    -----------  ------------------------------------  -----------------------------------
    any          all succeeded                         succeeded
    failed       one failed                            failed
    failed       none failed, the host was lost        lost
    failed       else: they were ended because of it   cancelled
    otherwise    -                                     as the job: cancelled, lost, succeeded
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from paddock.backends.types import Culprit, NodeStatus, RankStatus, State, role_word
from paddock.errors import EXIT_SIGNAL_BASE

VERDICTS: dict[str, State] = {"succeed": "succeeded", "fail": "failed", "cancel": "cancelled"}
EXIT_CANCELLED = EXIT_SIGNAL_BASE + 15
STANDS_BY = "stands by"  # the note of a host that is not needed (agent/view.py)


def nodes_of(whole: Mapping[str, Any]) -> tuple[NodeStatus, ...]:
    """Return the hosts of a running job; () if the record is damaged."""
    try:
        return tuple(_node(each) for each in whole.get("nodes") or ())
    except (ValueError, TypeError, LookupError, AttributeError, OverflowError):
        return ()


def ended(nodes: Iterable[NodeStatus], job: State) -> tuple[NodeStatus, ...]:
    """Return the hosts of a job that has ended; ranks still running count as ended by us."""
    found = []
    for node in nodes:
        ranks = [replace(r, state="ended") if r.state == "running" else r for r in node.ranks]
        state = end_of(job, ranks, node.note)
        found.append(replace(node, state=state, ranks=tuple(ranks)))
    return tuple(found)


def rank_of(row: Mapping[str, Any]) -> RankStatus:
    """Return the status of a process, as launchers record it."""
    return RankStatus(
        role_word(str(row["role"])), int(row["rank"]), str(row["state"]), row.get("code")
    )


def culprit_of(verdict: object) -> Culprit | None:
    """Return the rank that failed first, from the row of a verdict; None without one."""
    row = verdict.get("culprit") if isinstance(verdict, Mapping) else None
    try:
        return None if not row or not row["role"] else Culprit(
            role_word(str(row["role"])), int(row["rank"]), str(row["host"]), int(row["code"]),
            str(row["cause"]), str(row["tail"]),
        )  # fmt: skip
    except (ValueError, TypeError, LookupError, OverflowError):
        return None  # it is damaged


def _node(row: Mapping[str, Any]) -> NodeStatus:
    ranks = tuple(map(rank_of, row.get("ranks") or ()))
    is_up = any(rank.state == "running" for rank in ranks)
    return NodeStatus(
        str(row.get("host", "")), "running" if is_up else "starting", ranks,
        note=str(row.get("note") or ""),
    )  # fmt: skip


def end_of(job: State, ranks: Sequence[RankStatus], note: str = "") -> State:
    """Return how a host has ended, by the table above. note: of the launchers, on the host.

    >>> end_of("failed", [RankStatus("worker", 0, "ended")])
    'cancelled'
    """
    states = {rank.state for rank in ranks}
    if states == {"succeeded"}:
        return "succeeded"
    if job != "failed":
        return job
    if "failed" in states:
        return "failed"
    return "lost" if note not in ("", STANDS_BY) else "cancelled"
