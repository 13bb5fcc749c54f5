"""This node's view of the job's state: for the control socket and the record of the run.

The node that coordinates knows every rank. Any other node knows the plan, and its own ranks.
"""

from __future__ import annotations

from paddock.agent.record import JobSnapshot, PlannedRanks, status_row, take, verdict_row
from paddock.local.report.text import verdict_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Protocol

    from paddock.agent.coordinator import Coordinator
    from paddock.agent.member import Member
    from paddock.core.attempt.policy import Verdict
    from paddock.core.hosts import Host
    from paddock.core.job import Job
    from paddock.core.rendezvous.state import Phase
    from paddock.local.loop import Loop

    class Viewed(Protocol):
        """The parts of a launcher that a view reads (launcher.py)."""

        job: Job
        loop: Loop
        member: Member
        coordinator: Coordinator | None
        verdict: Verdict | None


STATES = {"succeed": "succeeded", "fail": "failed", "cancel": "cancelled"}
OF_START = "as planned: this node knows its own ranks only"


class JobView:
    """The job's state as this node knows it. on_change: called after every change, in the loop."""

    def __init__(self, launcher: Viewed) -> None:
        self.on_change: list[Callable[[], None]] = []
        self._launcher = launcher
        self._failed_at: float | None = None
        self._planned = PlannedRanks(launcher.job)

    @property
    def verdict(self) -> Verdict | None:
        """The verdict of the job, or of this node's part."""
        return self._launcher.verdict

    def changed(self) -> None:
        """Note a change, and call on_change."""
        verdict, loop = self.verdict, self._launcher.loop
        if verdict is not None and verdict.culprit is not None and self._failed_at is None:
            self._failed_at = loop.wall() - (loop.now_ns() - verdict.culprit.at_ns) / 1e9
        for call in self.on_change:
            call()

    def state(self) -> str:
        """The state of this launcher: starting, running or stopping."""
        member = self._launcher.member
        if self.verdict is not None or member.told_signal:
            return "stopping"
        return "starting" if member.start is None else "running"

    def facts(self) -> JobSnapshot:
        """A snapshot of the job, quickly taken."""
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
        own = (
            self._launcher.member.key.rpartition("/")[0]
            if self._launcher.coordinator is None
            else None
        )

        def make() -> dict[str, object]:
            row = status_row(facts, self._planned.procs(facts))
            if own is not None and len(facts.hosts) > 1:
                nodes: list[Mapping[str, object]] = row["nodes"]  # type: ignore[assignment]  # as status_row makes it
                row["nodes"] = [
                    {**node, "note": node["note"] or (OF_START if node["host"] != own else "")}
                    for node in nodes
                ]
            told = None
            if verdict is not None:
                told = verdict_row(verdict, verdict_text(verdict), failed_at)
            is_coordinator = own is None
            return {
                "state": state, "is_coordinator": is_coordinator, **row, "pids": pids,
                "verdict": told,
            }  # fmt: skip

        return make
