"""The state of a job, as its coordinator knows it. Pure; it orders nothing.

    part          contents                                                  module
    ------------  --------------------------------------------------------  ---------------
    member_table  the nodes that are in, their node ranks, those awaited    member_table.py
    current       the members and exits of the attempt that runs            ../attempt
    quorum        the nodes whose votes the next attempt needs              quorum.py
    used_budget   the restarts used, the time left                          quorum.py

membership.py and the modules it asks decide what follows, and when.
"""

from __future__ import annotations

from paddock.core.attempt.attempt import Attempt, AttemptSummary
from paddock.core.plan import find_problems
from paddock.core.rendezvous.leader_conflict import describe_job
from paddock.core.rendezvous.leaving import goodbye
from paddock.core.rendezvous.member_table import MemberTable
from paddock.core.rendezvous.messages import LOSSES, LeaderConflict, Start
from paddock.core.rendezvous.quorum import Quorum, UsedBudget
from paddock.core.value import replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Literal

    from paddock.core.attempt.attempt import Why
    from paddock.core.attempt.exits import Exit
    from paddock.core.attempt.policy import Verdict
    from paddock.core.job import Job
    from paddock.core.rendezvous.member_table import MemberEntry
    from paddock.core.rendezvous.messages import Loss, Lost
    from paddock.core.rendezvous.quorum import LeaderHandoff

    Phase = Literal["gathering", "running", "stopping", "backoff", "ended"]


class MembershipState:
    """The state of one job under one coordinator. fingerprint: equal on every node."""

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
        self.asked = (0, "")  # the job was told to stop: the signal, and the text
        self.asked_by_loss = False  # by no signal: a node lost what it needs

    @property
    def has_votes(self) -> bool:
        """True when a majority of nodes decides who goes on; with etcd, etcd does."""
        return self.job.is_elastic and self.job.rendezvous.kind == "tcp"

    @property
    def can_grow(self) -> bool:
        """True when a newcomer is worth a restart: there is room, and no worker has finished."""
        job = self.job
        has_room = len(self.current.members) < job.nnodes_max
        is_range = job.is_elastic and job.nnodes_min != job.nnodes_max
        return is_range and has_room and self.current.workers_done == 0

    def find_misfit(self) -> str:
        """The reason why the hosts of the chosen members cannot run the job; "" when they can."""
        hosts = tuple(self.member_table.peers[i].host for i in self.member_table.chosen())
        problems = find_problems(self.job, hosts)
        return "; ".join(f"{p.message} ({p.hint})" if p.hint else p.message for p in problems)

    def begin(self, now: float) -> Start:
        """Begin an attempt with the chosen members; return their Start."""
        chosen = self.member_table.chosen()
        self.member_table.assign_ranks(chosen)
        self.member_table.is_first = False
        peers = [self.member_table.peers[member] for member in chosen]
        hosts = tuple(peer.host for peer in peers)
        lease_seconds = self.job.rendezvous.lease_seconds
        self.current = Attempt(self.attempt, chosen, hosts, now, lease_seconds)
        self.begun += 1
        self.used_budget.begin(now)
        keys, listen_ports = tuple(p.key for p in peers), tuple(p.listen_port for p in peers)
        own = self.member_table.own
        coordinator_key = own.key if own is not None else ""
        start = Start(
            self.attempt, hosts, keys, listen_ports, coordinator_key, self.used_budget.message(now)
        )
        if self.has_votes:
            start = replace(start, before=self.quorum.begin(start.voters[-1]))
        return start

    def add_exit(self, exit_: Exit) -> tuple[Why, str] | None:
        """Record an exit; return why the others have to stop, None if they need not."""
        self.current.add_exit(exit_)
        if exit_.failed:
            return "failure", f"{exit_.name} on {exit_.host} {exit_.how}"
        if self.current.has_done_its_work and self.job.role("ps") is not None:
            return "success", "all workers finished"
        return None

    def lose(self, lost: Lost) -> MemberEntry | None:
        """Remove a lost node from the job and its attempt; return its entry, None if not in."""
        peer = self.member_table.remove(lost.member)
        if peer is None:
            return None
        if lost.ending in ("closed", "cannot-run"):
            self.quorum.gone.add(peer.key)
        if lost.member in self.current.unstopped:
            self.member_table.mark_lost_until(peer.key, lost.gone_at)
            self.current.add_loss(peer, lost)
        self.current.remove(lost.member)
        return peer

    def let_go(self, member: int) -> Verdict:
        """Remove a node that leaves, or has to; its processes have ended. Return its verdict."""
        peer = self.member_table.peers[member]
        verdict = self.goodbye(peer)
        if peer.leaving:
            self.quorum.gone.add(peer.key)
        self.member_table.remove(member)
        self.current.members.pop(member, None)
        return verdict

    def goodbye(self, peer: MemberEntry) -> Verdict:
        return goodbye(self.summary(), peer, self.member_table.label(peer))

    def conflict_at(self, key: str, address: str, listen_port: int) -> LeaderConflict:
        """The claim of this leader, on the node with that key, against another of this job."""
        last = self.quorum.last
        return LeaderConflict(
            self.uid, last.attempt if last else -1, self.begun > 0, self.quorum.is_committed,
            key, address, listen_port, describe_job(self.job, self.member_table.fingerprint),
        )  # fmt: skip

    def ask(self, signal: int, who: str, lost: Loss) -> None:
        """Ask the job to stop: it was told to, or a node lost what it needs. The first counts."""
        if not self.asked[0]:
            end = "; an attached job ends without it" if lost in ("submitter", "caller") else ""
            self.asked = (signal, f"{who} {LOSSES[lost]}{end}")
            self.asked_by_loss = bool(lost)

    def summary(self, now: float = 0.0) -> AttemptSummary:
        """The summary of the attempt, by which attempt.py decides on a restart or a verdict."""
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
            attempt,
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
            futile=self.used_budget.futile,
        )
