"""The state of a job as its coordinator knows it: rows of status.json and verdict.json. Pure."""

from __future__ import annotations

from paddock.core.plan import make_plan
from paddock.core.value import value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from paddock.core.attempt.exits import Exit
    from paddock.core.attempt.policy import Verdict
    from paddock.core.hosts import Host
    from paddock.core.job import Job
    from paddock.core.plan import Proc
    from paddock.core.rendezvous.membership import Membership
    from paddock.core.rendezvous.state import Phase

LOST = "node-lost"


@value
class JobSnapshot:
    """A snapshot of a job's state: taken quickly, written elsewhere.

    hosts: of the attempt that runs, or ran last, in node-rank order. others: nodes that are in
    without a part in it. why: what made the attempt stop. warnings: host and text.
    """

    uid: str
    attempt: int
    phase: Phase
    restarts: int
    hosts: tuple[Host, ...]
    others: tuple[Host, ...]
    exits: tuple[Exit, ...]
    why: str
    waiting_for: str
    warnings: tuple[tuple[str, str], ...] = ()


def take(machine: Membership) -> JobSnapshot:
    """Take a snapshot of the job."""
    state = machine.state
    is_gathering = machine.phase == "gathering" or not state.begun
    peers = state.member_table.peers.values()
    return JobSnapshot(
        state.uid,
        state.attempt,
        machine.phase,
        state.used_budget.total_restarts,
        () if is_gathering else state.current.hosts,
        tuple(p.host for p in peers if is_gathering or p.assigned_rank is None),
        () if is_gathering else tuple(state.current.exits),
        state.current.reason,
        waiting_text(machine) if machine.phase == "gathering" else "",
        state.warnings,
    )


def waiting_text(machine: Membership) -> str:
    """ "2 of 3 nodes", and the missing ones where they are known."""
    job, member_table = machine.state.job, machine.state.member_table
    low, high = job.nnodes_min, job.nnodes_max
    missing = member_table.missing()
    text = f"{len(member_table)} of {high if low == high else f'{low}:{high}'} nodes"
    return f"{text}; missing {missing}" if missing else text


class PlannedRanks:
    """The processes of the latest attempt, as every node has planned them."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._latest: tuple[tuple[Host, ...], tuple[Proc, ...]] = ((), ())

    def procs(self, facts: JobSnapshot) -> tuple[Proc, ...]:
        """The processes of that attempt; planned anew only where the hosts have changed."""
        hosts = facts.hosts
        if self._latest[0] is not hosts:
            procs = make_plan(self._job, hosts, facts.attempt, facts.uid).procs if hosts else ()
            self._latest = (hosts, procs)
        return self._latest[1]


def status_row(facts: JobSnapshot, procs: tuple[Proc, ...]) -> dict[str, object]:
    """status.json, without the time and the verdict."""
    ends = {(e.role, e.rank): e for e in facts.exits if e.cause != LOST}
    lost = {e.node_rank: e for e in facts.exits if e.cause == LOST}
    ranks: list[list[dict[str, object]]] = [[] for _ in facts.hosts]
    for proc in procs:
        end = ends.get((proc.role, proc.rank)) or lost.get(proc.node_rank)
        ranks[proc.node_rank].append(_rank_row(proc, end))
    nodes = []
    for number, host in enumerate(facts.hosts):
        notes = [lost[number].how] if number in lost else []
        notes += [text for name, text in facts.warnings if name == host.name]
        nodes.append(_node_row(host, number, ranks[number], "; ".join(notes)))
    nodes += [_node_row(host, None, [], "stands by" if nodes else "") for host in facts.others]
    return {
        "uid": facts.uid,
        "attempt": facts.attempt,
        "phase": facts.phase,
        "restarts": facts.restarts,
        "nodes": nodes,
        "why": facts.why,
        "waiting_for": facts.waiting_for,
    }


def _node_row(
    host: Host, number: int | None, ranks: list[dict[str, object]], note: str
) -> dict[str, object]:
    return {
        "host": host.name, "address": host.address, "node_rank": number, "ranks": ranks,
        "note": note,
    }  # fmt: skip


def _rank_row(proc: Proc, end: Exit | None) -> dict[str, object]:
    """The row of a rank. end: its exit, or the loss of its node, which leaves its own unknown."""
    row: dict[str, object] = {
        "role": proc.role, "rank": proc.rank, "local_rank": proc.local_rank, "state": "running",
        "code": None,
    }  # fmt: skip
    if end is not None and end.cause == LOST:
        row["state"] = "ended"
    elif end is not None:
        row["state"] = "ended" if end.by_us else "succeeded" if end.ok else "failed"
        row["code"] = end.exit_code
    return row


def verdict_row(verdict: Verdict, text: str, failed_at: float | None = None) -> dict[str, object]:
    """The row of the verdict. failed_at: when the root cause ended, in seconds since 1970."""
    row: dict[str, object] = {"kind": verdict.kind, "code": verdict.exit_code, "text": text}
    if failed_at is not None:
        row["failed_at"] = failed_at
    return row
