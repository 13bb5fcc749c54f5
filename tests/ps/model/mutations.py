"""The rules of a pair, each switched off alone: what the explorer must find."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from paddock.ps.replication.lease import LeaseReply, LeaseRequest, Register
from paddock.ps.replication.state import Action, FollowAccepted, ReplicaState
from paddock.ps.wire.windows import SequenceStatus, Windows
from ps.model.world import Bounds, Rules

if TYPE_CHECKING:
    from typing import TypeVar

    M = TypeVar("M", bound=ReplicaState)


class NoDedupe(Windows):
    """Every push is new."""

    def check(self, trainer: int, incarnation: int, sequence: int) -> SequenceStatus:
        return SequenceStatus.FRESH


class OldIncarnations(Windows):
    """A push of an older incarnation is judged as if it were of the newest."""

    def check(self, trainer: int, incarnation: int, sequence: int) -> SequenceStatus:
        verdict = super().check(trainer, incarnation, sequence)
        return SequenceStatus.FRESH if verdict is SequenceStatus.STALE else verdict


class AnyoneTakes(Register):
    """A server that lacks records may be promoted."""

    __slots__ = ()

    def may_take(self, request: LeaseRequest, *, now: float) -> bool:
        return self.version == 0 or (self.is_current(request) and now >= self.expiry)


class LateChanges(Register):
    """A request that was made for an earlier register still counts."""

    __slots__ = ()

    def is_current(self, request: LeaseRequest) -> bool:
        return True


class HastyTakes(Register):
    """The lease is given away before it expired."""

    __slots__ = ()

    def may_take(self, request: LeaseRequest, *, now: float) -> bool:
        return self.version == 0 or (self.is_current(request) and request.server in self.in_sync)


class NoFence(ReplicaState):
    """Messages of an older term or connection count."""

    __slots__ = ()

    def is_older(self, term: int) -> bool:
        return False

    def is_current(self, session: int, term: int) -> bool:
        return True


class NoWait(ReplicaState):
    """The primary acknowledges what only it has."""

    __slots__ = ()

    def acknowledges(self, end: int, *, now: float) -> bool:
        return self.may_serve(now=now)


class NoRemoval(ReplicaState):
    """A lost replica is forgotten without asking the witness."""

    __slots__ = ()

    def _given_up(self: M, *, now: float) -> tuple[M, list[Action]]:
        return replace(self, in_sync_candidate=0, match_lsn=0, high_watermark=self.end), []


class EarlyRemoval(ReplicaState):
    """A lost replica is forgotten while the witness is being asked."""

    __slots__ = ()

    def acknowledges(self, end: int, *, now: float) -> bool:
        return self.may_serve(now=now) and (self.is_removing or end <= self.high_watermark)


class EarlyAdd(ReplicaState):
    """A replica is put in sync while it still catches up."""

    __slots__ = ()

    def wants_to_add(self) -> bool:
        return (
            self.in_sync_candidate not in (0, *self.register.in_sync)
            and self.in_sync_candidate == self.peer
        )


class NoTruncation(ReplicaState):
    """A returning primary keeps what the promoted one does not have."""

    __slots__ = ()

    def started(self: M, message: FollowAccepted) -> tuple[M, list[Action]]:
        return ReplicaState.started(self, replace(message, common=max(message.common, self.end)))


class LateLease(ReplicaState):
    """The lease is counted from when its grant came, not from when it was asked for."""

    __slots__ = ()

    def replied(self: M, reply: LeaseReply, *, now: float) -> tuple[M, list[Action]]:
        return ReplicaState.replied(self, replace(reply, sent=now), now=now)


class NoLease(ReplicaState):
    """A primary serves until it hears that it is deposed."""

    __slots__ = ()

    def may_serve(self, *, now: float) -> bool:
        return self.role.value == "primary"


ONE = Bounds(pushes=1)
TIMED = Bounds(pushes=1, crashes=0, cuts=1, now_max=5, terms=2)
# Two records at the primary, the second under way for ever; the replica takes over, the old primary
# follows it and takes over again, and the replica follows anew with a log that record would fit.
TWICE_OVER = (
    "push (0, 1, 1) to 0", "push (0, 1, 2) to 0", "slow record 1 of 0", "lose Append",
    "slow record 2 of 0", "ask 1 take", "expire", "ask 1 take", "ask 0 renew", "connect 0 at once",
    "expire", "ask 0 take", "ask 0 take", "ask 1 renew",
)  # fmt: skip
# Rule that is off: the mutated rules, the bounds in which it must be found, what happens before.
MUTATIONS: dict[str, tuple[Rules, Bounds, tuple[str, ...]]] = {
    "dedupe": (Rules(windows=NoDedupe), ONE, ()),
    "old incarnations refused": (Rules(windows=OldIncarnations), Bounds(client_restarts=1), ()),
    "log before the answer": (Rules(logs_first=False), ONE, ()),
    "replica logs before its Ack": (Rules(replica_logs_first=False), ONE, ()),
    "promotion only in sync": (Rules(register=AnyoneTakes), ONE, ()),
    "requests name a version": (
        Rules(register=LateChanges), Bounds(pushes=1, cuts=2), ("cut 0", "kill 1", "restart 1"),
    ),
    "wait for the replica": (Rules(member=NoWait), ONE, ()),
    "removal through the witness": (Rules(member=NoRemoval), ONE, ()),
    "removal before the answer": (Rules(member=EarlyRemoval), ONE, ()),
    "caught up before added": (Rules(member=EarlyAdd), ONE, ()),
    "truncation on return": (
        Rules(member=NoTruncation), Bounds(pushes=1, crashes=0, cuts=0, delayed=0), (),
    ),
    "fences": (
        Rules(member=NoFence), Bounds(pushes=2, crashes=0, cuts=0, sessions=3, delayed=1),
        TWICE_OVER,
    ),
    "repeats wait": (Rules(repeats_wait=False), ONE, ()),
    "lease from sending": (Rules(member=LateLease), TIMED, ("slow answer 0", "ask 1")),
    "lease at the holder": (Rules(member=NoLease), TIMED, ()),
    "lease at the witness": (Rules(register=HastyTakes), TIMED, ()),
    "witness waits after restart": (
        Rules(restart_waits=False), replace(TIMED, witness_restarts=1), (),
    ),
}  # fmt: skip
