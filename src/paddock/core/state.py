"""What the coordinator of a job knows, and what can be told from it. Pure; it orders nothing.

    part     what it knows                                             module
    -------  --------------------------------------------------------  ------------
    roster   who is in, in what order they sit, who is awaited         member_table.py
    current  who takes part in the attempt that runs, what has ended   attempt.py
    quorum   whose votes the next attempt needs                        quorum.py
    spent    the restarts used, the time left                          handoff.py

When it is time, and what follows, is membership.py's to say, and of those it asks.
"""

from __future__ import annotations

from paddock.core.attempt import Attempt
from paddock.core.handoff import UsedBudget
from paddock.core.judging import AttemptSummary
from paddock.core.member_table import MemberTable
from paddock.core.messages import LOSSES, Start
from paddock.core.plan import find_problems
from paddock.core.quorum import Quorum
from paddock.core.value import replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Literal

    from paddock.core.attempt import Why
    from paddock.core.exits import Exit
    from paddock.core.handoff import LeaderHandoff
    from paddock.core.job import Job
    from paddock.core.member_table import MemberEntry
    from paddock.core.messages import Loss, Lost

    Phase = Literal["gathering", "running", "stopping", "backoff", "ended"]


class MembershipState:
    """Of one job, under one coordinator. shape: what must be equal on every node."""

    def __init__(
        self,
        job: Job,
        now: float,
        uid: str,
        fingerprint: tuple[tuple[str, str], ...],
        before: LeaderHandoff,
    ) -> None:
        self.job = job
        self.uid = uid
        self.attempt = before.attempt
        self.begun = 0  # attempts that were started here
        self.member_table = MemberTable(job, fingerprint)
        self.member_table.inherit(before)
        self.current = Attempt()  # the attempt that runs, or did last
        self.quorum = Quorum(before.voters, before.gone)
        self.used_budget = UsedBudget(job.timeout_seconds, before.budget, now)
        self.warnings: tuple[tuple[str, str], ...] = ()  # host and text
        self.asked = (0, "")  # the job was told to stop: the signal and how
        self.asked_by_loss = False  # by nobody: a node lost what it needs

    @property
    def has_quorum(self) -> bool:
        """Whether those that are in may go on without the others."""
        return self.quorum.holds({p.key for p in self.member_table.peers.values()})

    @property
    def has_votes(self) -> bool:
        """Whether a majority says who goes on; with etcd that does."""
        return self.job.is_elastic and self.job.rendezvous.kind == "tcp"

    @property
    def can_grow(self) -> bool:
        """Whether a newcomer is worth a restart: there is room, and nobody has finished."""
        job = self.job
        has_room = len(self.current.members) < job.nnodes_max
        is_range = job.is_elastic and job.nnodes_min != job.nnodes_max
        return is_range and has_room and self.current.workers_done == 0

    def find_misfit(self) -> str:
        """Why the hosts of those that have a seat cannot run the job; "" when they can."""
        hosts = tuple(self.member_table.peers[i].host for i in self.member_table.chosen())
        problems = find_problems(self.job, hosts)
        return "; ".join(f"{p.message} ({p.hint})" if p.hint else p.message for p in problems)

    def begin(self, now: float) -> Start:
        """An attempt with those that have a seat; what they are told."""
        chosen = self.member_table.chosen()
        self.member_table.seat(chosen)
        self.member_table.is_first = False
        peers = [self.member_table.peers[member] for member in chosen]
        hosts = tuple(peer.host for peer in peers)
        self.current = Attempt(chosen, hosts, now)
        self.begun += 1
        self.used_budget.begin(now)
        keys, listen_ports = tuple(p.key for p in peers), tuple(p.listen_port for p in peers)
        own = self.member_table.own
        coordinator_key = own.key if own is not None else ""
        start = Start(
            self.attempt, hosts, keys, listen_ports, coordinator_key, self.used_budget.told(now)
        )
        if self.has_votes:
            start = replace(start, before=self.quorum.begin(start.voters[-1]))
        return start

    def add_exit(self, exit_: Exit) -> tuple[Why, str] | None:
        """A process has ended; why the others have to, None if they need not."""
        self.current.add_exit(exit_)
        if exit_.failed:
            return "failure", f"{exit_.name} on {exit_.host} {exit_.how}"
        if self.current.has_done_its_work and self.job.role("ps") is not None:
            return "success", "all workers finished"
        return None

    def lose(self, lost: Lost) -> MemberEntry | None:
        """A node is out, and so is its part in the attempt; None when it was not in."""
        peer = self.member_table.remove(lost.member)
        if peer is None:
            return None
        if lost.ending in ("closed", "cannot-run"):
            self.quorum.gone.add(peer.key)
        if lost.member in self.current.unstopped:
            self.member_table.mark_lost_until(peer.key, lost.gone_at)
            self.add_loss(peer, lost)
        self.current.remove(lost.member)
        return peer

    def add_loss(self, peer: MemberEntry, lost: Lost) -> None:
        """The attempt fails by a node, whose part in it had not ended."""
        self.current.add_loss(peer, lost, self.attempt, self.job.rendezvous.lease_seconds)

    def ask(self, signal: int, who: str, lost: Loss) -> None:
        """The job has to stop: it was told to, or a node lost what it needs. The first counts."""
        if not self.asked[0]:
            end = "; an attached job ends without it" if lost == "submitter" else ""
            self.asked = (signal, f"{who} {LOSSES[lost]}{end}")
            self.asked_by_loss = bool(lost)

    def summary(self, now: float = 0.0) -> AttemptSummary:
        """The attempt, to be judged."""
        leavers = [p for p in self.member_table.peers.values() if p.leaving]
        if (
            leavers and not self.asked[0] and not self.member_table.can_take_over
        ):  # the others were lost
            first = self.member_table.own_leaver or leavers[0]
            self.ask(first.leaving, f"node {self.member_table.label(first)}", first.loss)
        attempt = self.current
        return AttemptSummary(
            self.job,
            self.attempt,
            attempt.why,
            attempt.reason,
            attempt.exits,
            attempt.workers,
            self.used_budget.used_restarts,
            self.used_budget.total_restarts,
            now - attempt.started_at,
            asked_signal=self.asked[0],
            asked_reason=self.asked[1],
            asked_by_loss=self.asked_by_loss,
            warnings=tuple(f"{host}: {text}" for host, text in self.warnings),
            leaving=tuple(
                (p.assigned_rank, p.leaving) for p in leavers if p.assigned_rank is not None
            ),
            expellable=self.member_table.expellable,
        )
