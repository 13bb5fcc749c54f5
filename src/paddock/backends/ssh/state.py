"""States of the hosts' parts -> the status of the job. Pure.

the hosts' states                                    the job is
---------------------------------------------------  -------------------------------------
some stopping                                        stopping
some running, or starting with ranks elsewhere       running
some starting                                        starting
none alive; the coordinator has told the verdict     succeeded, failed, cancelled: as it says
none alive; so many could not be asked that the job  unknown: it may go on there
may go on there, or did a short time ago
none alive; all succeeded                            succeeded
none alive; some cancelled                           cancelled
none alive; some failed                              failed
none alive; else                                     lost

The reason is the verdict's (root cause). Without a verdict it is the reason of a host in the job's
state, which is named; a job that was told to end has that reason, whichever host heard it first.

A host may be untrusted: its answer is used only where it has the right types (`checked`).
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from paddock.backends.common.news import with_news
from paddock.backends.common.recorded import VERDICTS, culprit_of, end_of, rank_of
from paddock.backends.ssh.command import Target
from paddock.backends.types import ALIVE, FINAL, JobStatus, NodeStatus, RankStatus, State, role_word
from paddock.errors import EXIT_SIGNAL_BASE
from paddock.watch.history import is_sound

ID = re.compile(r"[a-z0-9][-a-z0-9]{0,63}")
KNOWN = (*ALIVE, "succeeded", "failed", "cancelled", "lost", "unknown")
RANKS = ("starting", "running", "succeeded", "failed", "ended")
TOLD = "told to end"
ENDS = {"failed": "failed", "cancelled": "been told to end"}
OWN = ("succeeded", "failed", "cancelled")  # final states that a host reports of its own launcher
KILLED = EXIT_SIGNAL_BASE + 9
# What hosts answer, as `typed` takes it.
HOST = {"state": "unknown", "why": "", "code": None, "since": 0.0, "now": 0.0, "orphans": ""}
RANK = {"role": "", "rank": -1, "state": "unknown", "code": None}
NODE = {"node_rank": None, "ranks": [RANK], "note": ""}
WHOLE = {"at": 0.0, "attempt": 0, "waiting_for": "", "nodes": [NODE]}
CULPRIT = {"role": "", "rank": -1, "host": "", "code": 0, "cause": "", "tail": ""}
VERDICT = {"kind": "", "text": "", "code": None, "failed_at": 0.0, "culprit": CULPRIT}
JOB = {
    "id": "", "name": "", "command": "", "created_at": 0.0, "cwd": "", "parts": [""],
    "own_output": [0], "targets": [{"name": "", "user": "", "port": 0}],
}  # fmt: skip


def typed(found: object, like: Any) -> Any:
    """Return a value of an untrusted host if it has the type of `like`, else `like`.

    A dict has the keys of `like`, a list those elements that are of its type. None in `like` is an
    integer, or None; a float is finite.

    >>> typed({"code": "x", "since": 3, "more": 1}, {"code": None, "since": 0.0})
    {'code': None, 'since': 3.0}
    """
    if isinstance(like, dict):
        row = found if isinstance(found, dict) else {}
        return {name: typed(row.get(name), each) for name, each in like.items()}
    if isinstance(like, list):
        rows = found if isinstance(found, list) else []
        return [typed(row, like[0]) for row in rows if isinstance(row, type(like[0]))]
    if isinstance(like, float):
        number = float(str(found)) if type(found) in (int, float) else like
        return number if math.isfinite(number) else like
    return found if type(found) is (int if like is None else type(like)) else like


def checked(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a host's answer with the types that node_state gives; other values are dropped.

    >>> checked({"state": "\x1b[2J", "code": "x", "ranks": {"worker 0": 1}, "whole": 3})["state"]
    'unknown'
    """
    found: dict[str, Any] = typed(row, HOST)
    if row.get("state") not in KNOWN:
        found |= {"state": "unknown", "why": "it answers something that is no state"}
    ranks, whole = row.get("ranks"), row.get("whole")
    found["ranks"] = [str(name) for name in ranks] if isinstance(ranks, (dict, list)) else []
    news = row.get("news")
    found["news"] = [each for each in (news if isinstance(news, list) else ()) if is_sound(each)]
    found["whole"] = {}
    if isinstance(whole, dict) and whole:
        verdict, reported = whole.get("verdict"), typed(whole, WHOLE)
        reported["verdict"] = (
            typed(verdict, VERDICT) if isinstance(verdict, dict) and verdict else {}
        )
        for rank in (rank for node in reported["nodes"] for rank in node["ranks"]):
            rank["state"] = rank["state"] if rank["state"] in RANKS else "unknown"
        found["whole"] = reported
    return found


def _by_our_clock(at: float, row: Mapping[str, Any], as_of: float) -> float:
    """Return a host's time by our clock; its clock said `now` when ours said as_of; 0.0 stays."""
    return at - (row["now"] - as_of) if at and row["now"] else at


def found_jobs(answer: Mapping[str, Any], targets: Sequence[Target]) -> list[dict[str, Any]]:
    """Return the jobs that a host reports, as entries of the registry.

    Addresses of hosts come from the site alone: a host that could set them could have commands
    executed here. A job with hosts that are not the site's is left out.
    """
    known = {(target.login, target.port): asdict(target) for target in targets}
    found = []
    for job in typed(answer, {"jobs": [JOB]})["jobs"]:
        hosts = [(Target(t["name"], t["user"]).login, t["port"]) for t in job.pop("targets")]
        names = job["id"], job["name"]
        if not (all(map(ID.fullmatch, names)) and hosts and known.keys() >= {*hosts}):
            continue
        details = {name: job.pop(name) for name in ("cwd", "parts", "own_output")}
        details |= {"root": str(answer.get("root")), "id": job["id"]}
        details["targets"] = [known[host] for host in hosts]
        found.append({**job, "nnodes": len(hosts), "details": details})
    return found


def status_of(
    names: Sequence[str],
    rows: Sequence[Mapping[str, Any]],
    as_of: float,
    nnodes_min: int = 0,
    patience_seconds: float = math.inf,
) -> JobStatus:
    """Return the job's status.

    rows: node_state (node/jobdir.py) of the hosts, in the order of the nodes. The first row is
    enough while the job goes on, if the coordinator there reports the whole job. Times come by the
    hosts' clocks, and are converted to ours. nnodes_min: a job does not go on with fewer; 0 if
    unknown. patience_seconds: after the end of the others, fewer nodes have ended as well.
    """
    rows = [checked(row) for row in rows]
    teller = max((row for row in rows if row["whole"]), key=lambda r: r["whole"]["at"], default={})
    whole = teller.get("whole") or {**typed({}, WHOLE), "verdict": {}}
    reported = {node["node_rank"]: node for node in whole["nodes"]}
    nodes = [
        _node(name, rows[i] if i < len(rows) else None, reported.get(i) or typed({}, NODE))
        for i, name in enumerate(names)
    ]
    verdict = whole["verdict"]
    states = [node.state for node in nodes]
    since = max((_by_our_clock(row["since"], row, as_of) for row in rows), default=0.0)
    is_over = states.count("unknown") < nnodes_min and 0 < since < as_of - patience_seconds
    state = _state(states, verdict.get("kind", ""), is_over=is_over)
    why, code = verdict.get("text", ""), verdict.get("code")
    if state in ALIVE:
        why, code = _orphans(names, rows) or whole["waiting_for"], None
    elif not verdict:
        why, code = _reason(names, rows, state)
        if is_over:  # what keeps the end of these from being known
            silent = [str(row["why"]) for row in rows if row["state"] == "unknown"]
            why = "; ".join([*silent, why] if why else silent)
    if state in FINAL:  # each host knows only that its own launcher failed
        nodes = [
            replace(n, state=end_of(state, n.ranks, _loss(rows[i], reported[i], verdict)))
            if n.state in OWN and i in reported
            else n
            for i, n in enumerate(nodes)
        ]
    if state == "cancelled" and any(row["state"] == "cancelled" for row in rows):
        why = TOLD
    status = JobStatus(
        state,
        as_of,
        why="" if state == "succeeded" else why,
        code=code,
        since=since,
        failed_at=_by_our_clock(verdict.get("failed_at", 0.0), teller, as_of),
        culprit=culprit_of(verdict),
        attempt=whole["attempt"],
        nodes=tuple(nodes),
    )
    news = [
        (name, [{**one, "at": _by_our_clock(one["at"], row, as_of)} for one in row["news"]])
        for name, row in zip(names if len(names) > 1 else [""], rows, strict=False)
    ]
    return with_news(status, news)


def _orphans(names: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> str:
    """Return which hosts have ranks without a launcher."""
    pairs = [(name, row["orphans"]) for name, row in zip(names, rows, strict=False)]
    return "; ".join(f"{name}: {text}" if len(names) > 1 else text for name, text in pairs if text)


def _loss(row: Mapping[str, Any], reported: Mapping[str, Any], verdict: Mapping[str, Any]) -> str:
    """Return how a host was lost; for a launcher killed with the coordinator, only its code."""
    killed = row["why"] or "killed" if not verdict and row["code"] == KILLED else ""
    return str(reported["note"] or killed)


def _state(states: Sequence[str], verdict: str, *, is_over: bool) -> State:
    """Return the job's state. is_over: it does not go on at hosts that could not be asked."""
    if "stopping" in states:
        return "stopping"
    if "running" in states:
        return "running"
    if "starting" in states:
        return "starting"
    if verdict in VERDICTS:
        return VERDICTS[verdict]
    if is_over:
        states = [state for state in states if state != "unknown"]
    if "unknown" in states:
        return "unknown"
    if states and all(state == "succeeded" for state in states):
        return "succeeded"
    for state in ("cancelled", "failed"):
        if state in states:
            return state
    return "lost"


def _reason(
    names: Sequence[str], rows: Sequence[Mapping[str, Any]], state: State
) -> tuple[str, int | None]:
    """Return reason and exit code without a coordinator's verdict; an unknown job has no code."""
    found, codes = [], []
    for name, row in zip(names, rows, strict=False):
        why = str(row["why"])
        if row["state"] == state:
            codes.append(row["code"])
            is_named = len(names) == 1 or why.startswith(f"{name}: ")
            found += [why if is_named else f"{name}: {why}"] if why else []
        elif state == "unknown" and row["state"] in ("failed", "cancelled"):
            found.append(f"{name} has {ENDS[row['state']]}" + (f": {why}" if why else ""))
    known = [] if state == "unknown" else [code for code in codes if code is not None]
    code = next((each for each in known if each), known[0] if known else None)
    return "; ".join(found if state == "unknown" else found[:1]), code


def _node(name: str, row: Mapping[str, Any] | None, reported: Mapping[str, Any]) -> NodeStatus:
    """Return the status of a host, from its own answer and the coordinator's report of ranks."""
    ranks = [rank_of(each) for each in reported["ranks"]]
    is_up = any(rank.state == "running" for rank in ranks)
    note = reported["note"]
    if row is None:
        state: State = "lost" if note else "running" if is_up else "starting"
        return NodeStatus(name, state, tuple(ranks), note)
    if not ranks:
        for each in row["ranks"]:
            role, _, rank = each.partition(" ")
            number = int(rank) if rank.isdecimal() and len(rank) < 10 else -1
            ranks.append(RankStatus(role_word(role), number, "running"))
        ranks.sort(key=lambda rank: (rank.role, rank.rank))
    if row["state"] not in ALIVE:  # whatever was reported before
        ranks = [replace(r, state="ended") if r.state == "running" else r for r in ranks]
    return NodeStatus(name, row["state"], tuple(ranks), row["why"] or note)
