"""The rendezvous: are enough nodes in (min_nodes, max_nodes), or how long to wait? Pure.

    nodes that are in                may start
    -------------------------------  -------------------------------------------------------
    the maximum; for the first       at once
    attempt, those that are wanted
    at least the minimum (a range)   when no node came for --elastic-timeout; after takeover
                                     as soon as all nodes of the attempt before are back
    fewer, or no majority of the     never; given up after --join-timeout, or in an elastic
    last attempt (quorum.py)         job that had begun after Elastic.patience_seconds

No attempt starts while processes of a lost node may be alive (MemberTable.lost_until).
"""

from __future__ import annotations

from paddock.core.value import value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from paddock.core.rendezvous.member_table import MemberTable
    from paddock.core.rendezvous.quorum import Quorum, UsedBudget

# Beyond this many members not every joining is worth a line at every node: 1,024 nodes would
# cause a million lines. The latest state is printed at most once a second, and always at the end.
NOTES_MEMBERS = 8
NOTE_SECONDS = 1.0


@value
class StartDecision:
    """Start, give up, or look again at wake_at. text: a line for people, "" for none.

    is_over: no time is left for the job.
    """

    starts: bool = False
    gives_up: bool = False
    is_over: bool = False
    wake_at: float = 0.0
    text: str = ""


class RendezvousWait:
    """The wait for nodes before each attempt."""

    def __init__(
        self, member_table: MemberTable, quorum: Quorum, used_budget: UsedBudget, now: float
    ) -> None:
        self.job = member_table.job
        self._member_table = member_table
        self._quorum = quorum
        self._used_budget = used_budget
        self._since = now
        self._changed_at = now
        self._noted_at = -NOTE_SECONDS

    def begin(self, now: float) -> None:
        self._since = self._changed_at = now
        self._member_table.awaited.clear()

    def change(self, now: float) -> None:
        """Note that a node joined or left: --elastic-timeout counts anew."""
        self._changed_at = now

    @property
    def has_quorum(self) -> bool:
        """True when the nodes that are in have a majority, and may go on without the others."""
        return self._quorum.holds(self._member_table.keys)

    def look(self, now: float, before: str) -> StartDecision:
        """Decide whether the attempt has enough nodes and starts, is given up, or waits.

        before: the reason why the attempt before stopped.
        """
        used_budget = self._used_budget
        if used_budget.is_over(now):
            return StartDecision(is_over=True, text=used_budget.over_text)
        limit_at = self._since + self.limit_seconds
        start_at = self._start_at(limit_at) if self.has_quorum else None
        if start_at is not None and now >= start_at:
            return StartDecision(starts=True)
        if start_at is None and now >= limit_at:
            return StartDecision(gives_up=True, text=self.given_up_text(before))
        wake_at = used_budget.until(limit_at if start_at is None else start_at)
        if len(self._member_table) > NOTES_MEMBERS and now < self._noted_at + NOTE_SECONDS:
            return StartDecision(wake_at=min(wake_at, self._noted_at + NOTE_SECONDS))
        self._noted_at = now
        text = self.waiting_text()
        if start_at is not None and start_at == self._member_table.lost_until:
            text = f"waiting {start_at - now:.1f} s until the lease of the lost node is over"
        return StartDecision(wake_at=wake_at, text=text)

    @property
    def limit_seconds(self) -> float:
        """The seconds to wait with too few nodes before giving up."""
        if self._member_table.is_first:
            return self.job.rendezvous.join_timeout_seconds
        return self.job.elastic.patience_seconds

    def _start_at(self, limit_at: float) -> float | None:
        """The monotonic second at which the nodes that are in may start; None: they are too few."""
        job, member_table = self.job, self._member_table
        if len(member_table) >= ((member_table.is_first and job.elastic.wanted) or job.nnodes_max):
            return member_table.lost_until
        if len(member_table) < job.nnodes_min or job.nnodes_min == job.nnodes_max:
            return None
        return max(member_table.lost_until, min(self._minimum_at(), limit_at))

    def _minimum_at(self) -> float:
        """The monotonic second at which a job with its minimum may start without its maximum."""
        if self._member_table.is_first:
            return self._changed_at + self.job.elastic.timeout_seconds
        if not self._member_table.awaited:
            return self._since
        return self._since + self.job.elastic.timeout_seconds

    def waiting_text(self) -> str:
        job = self.job
        wanted = (
            str(job.nnodes_max)
            if job.nnodes_min == job.nnodes_max
            else f"{job.nnodes_min}:{job.nnodes_max}"
        )
        if self._member_table.is_first and 0 < job.elastic.wanted < job.nnodes_max:
            wanted = f"{job.elastic.wanted} wanted ({wanted})"
        members = self._member_table
        text = f"waiting for nodes: {len(members)} of {wanted} joined ({members.names()})"
        if not self.has_quorum:
            text += ", no majority of the last attempt: the others may go on without them"
        missing = self._member_table.missing()
        return f"{text}; missing {missing}" if missing else text

    def given_up_text(self, before: str) -> str:
        flag = "--join-timeout" if self._member_table.is_first else "--elastic-timeout"
        before = f"{before}; " if before else ""
        return f"{before}{self.waiting_text()}; gave up after {self.limit_seconds:g} s ({flag})"
