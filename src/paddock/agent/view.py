"""The state of the job as this node knows it: rows of status.json and verdict.json.

The node that coordinates knows every rank. Any other node knows the plan, and its own ranks.
"""

from __future__ import annotations

from paddock.core.plan import make_plan
from paddock.core.value import value
from paddock.local.report.text import recorded_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Protocol

    from paddock.agent.coordinator import Coordinator
    from paddock.agent.member import Member
    from paddock.core.attempt.exits import Exit
    from paddock.core.attempt.policy import Verdict
    from paddock.core.hosts import Host
    from paddock.core.job import Job
    from paddock.core.plan import Proc
    from paddock.core.rendezvous.membership import Membership
    from paddock.core.rendezvous.state import Phase
    from paddock.local.loop import Loop

    class Viewed(Protocol):
        """The parts of a launcher that a view reads (launcher.py)."""

        job: Job
        loop: Loop
        member: Member
        coordinator: Coordinator | None
        verdict: Verdict | None


LOST = "node-lost"
STATES = {"succeed": "succeeded", "fail": "failed", "cancel": "cancelled"}
AS_PLANNED = "as planned: this node knows its own ranks only"


class JobView:
    """The job's state as this node knows it. on_change: called after every change, in the loop."""

    def __init__(self, launcher: Viewed) -> None:
        self.on_change: list[Callable[[], None]] = []
        self._launcher = launcher
        self._failed_at: float | None = None
        self._rows = StatusRows(launcher.job)

    @property
    def verdict(self) -> Verdict | None:
        """The verdict of the job, or of this node's part."""
        return self._launcher.verdict

    def changed(self) -> None:
        if self.verdict is not None and self._failed_at is None:
            self._failed_at = failure_time(self.verdict, self._launcher.loop)
        for call in self.on_change:
            call()

    def state(self) -> str:
        """The state of this launcher: starting, running or stopping."""
        member = self._launcher.member
        if self.verdict is not None or member.stop_signal:
            return "stopping"
        return "starting" if member.start is None else "running"

    def facts(self) -> JobSnapshot:
        coordinator = self._launcher.coordinator
        if coordinator is not None:
            return take(coordinator.machine)
        member = self._launcher.member
        attempt = max(0, member.attempt)
        if member.start is None:
            hosts: tuple[Host, ...] = ()
            waiting = "" if member.is_linked else "the coordinator"
        else:
            hosts, waiting = member.start.hosts, ""
        phase: Phase = "running" if member.is_running else "backoff" if hosts else "gathering"
        return JobSnapshot(
            member.uid, attempt, phase, attempt, hosts, (), tuple(member.exits), "",
            waiting or ("" if hosts else "the other nodes"),
        )  # fmt: skip

    def row(self) -> Callable[[], dict[str, object]]:
        """Return a call that makes the row of status.json for now; another thread may call it."""
        facts, verdict, failed_at = self.facts(), self.verdict, self._failed_at
        state, pids = self.state(), self._launcher.member.pids()
        is_coordinator = self._launcher.coordinator is not None
        own = self._launcher.member.key.rpartition("/")[0]

        def make() -> dict[str, object]:
            return {
                "state": state, "is_coordinator": is_coordinator,
                **self._rows.make(facts, "" if is_coordinator else own), "pids": pids,
                "verdict": verdict_row(verdict, failed_at) if verdict is not None else None,
            }  # fmt: skip

        return make


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


class StatusRows:
    """Makes the rows of status.json, without the time and the verdict."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._latest: tuple[tuple[Host, ...], tuple[Proc, ...]] = ((), ())

    def make(self, facts: JobSnapshot, only: str = "") -> dict[str, object]:
        """The row; the processes are planned anew only where the hosts have changed.

        only: the host of which alone the ends are known, "" for all.
        """
        if self._latest[0] is not facts.hosts:
            procs: tuple[Proc, ...] = ()
            if facts.hosts:
                procs = make_plan(self._job, facts.hosts, facts.attempt, facts.uid).procs
            self._latest = (facts.hosts, procs)
        ends = {(e.role, e.rank): e for e in facts.exits if e.cause != LOST}
        lost = {e.node_rank: e for e in facts.exits if e.cause == LOST}
        ranks: list[list[dict[str, object]]] = [[] for _ in facts.hosts]
        for proc in self._latest[1]:
            end = ends.get((proc.role, proc.rank)) or lost.get(proc.node_rank)
            ranks[proc.node_rank].append(_rank_row(proc, end))
        nodes = []
        for number, host in enumerate(facts.hosts):
            notes = [lost[number].how] if number in lost else []
            notes += [text for name, text in facts.warnings if name == host.name]
            if not notes and only not in ("", host.name) and len(facts.hosts) > 1:
                notes = [AS_PLANNED]
            nodes.append(_node_row(host, number, ranks[number], "; ".join(notes)))
        nodes += [_node_row(host, None, [], "stands by" if nodes else "") for host in facts.others]
        return {
            "uid": facts.uid, "attempt": facts.attempt, "phase": facts.phase,
            "restarts": facts.restarts, "nodes": nodes, "why": facts.why,
            "waiting_for": facts.waiting_for,
        }  # fmt: skip


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


def verdict_row(verdict: Verdict, failed_at: float | None = None) -> dict[str, object]:
    """The row of the verdict. failed_at: when the root cause ended, in seconds since 1970."""
    row: dict[str, object] = {
        "kind": verdict.kind, "code": verdict.exit_code, "text": recorded_text(verdict),
    }  # fmt: skip
    if verdict.kind == "cancel":
        row["is_clean"] = verdict.clean  # every process has saved, and exited with 0
    if failed_at is not None:
        row["failed_at"] = failed_at
    if (end := verdict.culprit) is not None:
        row["culprit"] = {
            "role": end.role, "rank": end.rank, "host": end.host, "code": end.exit_code,
            "cause": end.cause, "tail": end.tail,
        }  # fmt: skip
    return row


def failure_time(verdict: Verdict, loop: Loop) -> float | None:
    """The time at which the root cause ended, in seconds since 1970; None without one."""
    if verdict.culprit is None:
        return None
    return loop.wall() - (loop.now_ns() - verdict.culprit.at_ns) / 1e9
