"""What the coordinator of a job knows, and what can be told from it. Pure; it orders nothing.

    part     what it knows                                             module
    -------  --------------------------------------------------------  ------------
    roster   who is in, in what order they sit, who is awaited         roster.py
    now      who takes part in the attempt that runs, what has ended   attempt.py
    quorum   whose votes the next attempt needs                        quorum.py
    spent    the restarts used, the time left                          inherited.py

When it is time, and what follows, is membership.py's to say, and of those it asks.
"""

from __future__ import annotations

from paddock.core.attempt import Attempt
from paddock.core.inherited import Spent
from paddock.core.judging import Case
from paddock.core.messages import LOSSES, Start
from paddock.core.plan import find_problems
from paddock.core.quorum import Quorum
from paddock.core.roster import Roster
from paddock.core.value import replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Literal

    from paddock.core.attempt import Why
    from paddock.core.exits import Exit
    from paddock.core.inherited import Inherited
    from paddock.core.job import Job
    from paddock.core.messages import Loss, Lost
    from paddock.core.roster import Peer

    Phase = Literal["gathering", "running", "stopping", "backoff", "ended"]


class State:
    """Of one job, under one coordinator. shape: what must be equal on every node."""

    def __init__(
        self, job: Job, now: float, uid: str, shape: tuple[tuple[str, str], ...], before: Inherited
    ) -> None:
        self.job = job
        self.uid = uid
        self.attempt = before.attempt
        self.begun = 0  # attempts that were started here
        self.roster = Roster(job, shape)
        self.roster.inherit(before)
        self.now = Attempt()  # the attempt that runs, or did last
        self.quorum = Quorum(before.voters, before.gone)
        self.spent = Spent(job.timeout_seconds, before.budget, now)
        self.warnings: tuple[tuple[str, str], ...] = ()  # host and text
        self.asked = (0, "")  # the job was told to stop: the signal and how
        self.asked_by_loss = False  # by nobody: a node lost what it needs

    @property
    def has_quorum(self) -> bool:
        """Whether those that are in may go on without the others."""
        return self.quorum.holds({p.key for p in self.roster.peers.values()})

    @property
    def has_votes(self) -> bool:
        """Whether a majority says who goes on; with etcd that does."""
        return self.job.is_elastic and self.job.rendezvous.kind == "tcp"

    @property
    def can_grow(self) -> bool:
        """Whether a newcomer is worth a restart: there is room, and nobody has finished."""
        job = self.job
        has_room = len(self.now.members) < job.nnodes_max
        is_range = job.is_elastic and job.nnodes_min != job.nnodes_max
        return is_range and has_room and self.now.workers_done == 0

    def find_misfit(self) -> str:
        """Why the hosts of those that have a seat cannot run the job; "" when they can."""
        hosts = tuple(self.roster.peers[i].host for i in self.roster.chosen())
        problems = find_problems(self.job, hosts)
        return "; ".join(f"{p.message} ({p.hint})" if p.hint else p.message for p in problems)

    def begin(self, now: float) -> Start:
        """An attempt with those that have a seat; what they are told."""
        chosen = self.roster.chosen()
        self.roster.seat(chosen)
        self.roster.is_first = False
        peers = [self.roster.peers[member] for member in chosen]
        hosts = tuple(peer.host for peer in peers)
        self.now = Attempt(chosen, hosts, now)
        self.begun += 1
        self.spent.begin(now)
        keys, doors = tuple(p.key for p in peers), tuple(p.door for p in peers)
        own = self.roster.own
        by = own.key if own is not None else ""
        start = Start(self.attempt, hosts, keys, doors, by, self.spent.told(now))
        if self.has_votes:
            start = replace(start, before=self.quorum.begin(start.voters[-1]))
        return start

    def add_exit(self, exit_: Exit) -> tuple[Why, str] | None:
        """A process has ended; why the others have to, None if they need not."""
        self.now.add_exit(exit_)
        if exit_.failed:
            return "failure", f"{exit_.name} on {exit_.host} {exit_.how}"
        if self.now.has_done_its_work and self.job.role("ps") is not None:
            return "success", "all workers finished"
        return None

    def lose(self, lost: Lost) -> Peer | None:
        """A node is out, and so is its part in the attempt; None when it was not in."""
        peer = self.roster.remove(lost.member)
        if peer is None:
            return None
        if lost.ending in ("closed", "cannot-run"):
            self.quorum.gone.add(peer.key)
        if lost.member in self.now.unstopped:
            self.roster.haunt(peer.key, lost.gone_at)
            self.add_loss(peer, lost)
        self.now.remove(lost.member)
        return peer

    def add_loss(self, peer: Peer, lost: Lost) -> None:
        """The attempt fails by a node, whose part in it had not ended."""
        self.now.add_loss(peer, lost, self.attempt, self.job.rendezvous.lease_seconds)

    def ask(self, signal: int, who: str, lost: Loss) -> None:
        """The job has to stop: it was told to, or a node lost what it needs. The first counts."""
        if not self.asked[0]:
            end = "; an attached job ends without it" if lost == "submitter" else ""
            self.asked = (signal, f"{who} {LOSSES[lost]}{end}")
            self.asked_by_loss = bool(lost)

    def case(self, now: float = 0.0) -> Case:
        """The attempt, to be judged."""
        leavers = [p for p in self.roster.peers.values() if p.leaving]
        if leavers and not self.asked[0] and not self.roster.can_go_on:  # the others were lost
            first = self.roster.own_leaver or leavers[0]
            self.ask(first.leaving, f"node {self.roster.label(first)}", first.loss)
        attempt = self.now
        return Case(
            self.job,
            self.attempt,
            attempt.why,
            attempt.reason,
            attempt.exits,
            attempt.workers,
            self.spent.used_restarts,
            self.spent.total_restarts,
            now - attempt.started_at,
            asked_signal=self.asked[0],
            asked_reason=self.asked[1],
            asked_by_loss=self.asked_by_loss,
            warnings=tuple(f"{host}: {text}" for host, text in self.warnings),
            leaving=tuple((p.place, p.leaving) for p in leavers if p.place is not None),
            expellable=self.roster.expellable,
        )
