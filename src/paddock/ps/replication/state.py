"""A server of a pair: primary or replica, its place in the common log, what it may acknowledge.

Pure: times and messages in, actions out. One rule: before a record is acknowledged, every server
that the witness would let serve next has it. It rests on the order of messages, not on clocks; the
lease only keeps a deposed primary from answering with old values.

    stage      event                                          next       does
    ---------  ---------------------------------------------  ---------  -------------------------
    ALONE      connected(session)                             ASKED      send Follow(end, history)
    ASKED      FollowAccepted of it, term not older          FOLLOWING  Truncate or Restore; Ack
    ASKED      FollowAccepted of an older term               ALONE      send FollowRefused
    FOLLOWING  Append of session and term, at its end        FOLLOWING  StoreRecord, then send Ack
    FOLLOWING  Append below its end                           FOLLOWING  send Ack (it has it)
    FOLLOWING  Append beyond its end                          ALONE      ConnectToPrimary, next tick
    replica    lost, a newer term                            ALONE      ConnectToPrimary, next tick
    replica    TAKE granted, term newer than any heard of    PRIMARY    BeginTerm (TERM record)
    PRIMARY    a newer term: witness, Follow, FollowRefused  ALONE      Deposed: refuse who waits
    PRIMARY    Follow                                         PRIMARY    send FollowAccepted(common)
    PRIMARY    Ack of a peer within `max_lag` records         PRIMARY    answers wait for its Acks
    PRIMARY    Ack of all that may have been acknowledged     PRIMARY    AskWitness ADD
    PRIMARY    in-sync candidate lost or silent               PRIMARY    AskWitness REMOVE
    PRIMARY    register without it, newer than the last ADD   PRIMARY    acknowledges alone

A term has one primary and begins with a TERM record of its own, so two logs agree up to
the shorter end of the last term they share; what a returning primary has beyond that was never
acknowledged, and it is truncated. A session is one connection of a replica: messages of an earlier
one are ignored. Positions are log sequence numbers; `end` is the one after the last record.

Source: van Renesse and Schneider, "Chain Replication", OSDI 2004 (acknowledge at the tail);
Kafka KIP-101 (the history of terms decides where a returning log is truncated).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, TypeVar

from paddock.errors import PaddockError
from paddock.ps.replication.lease import (
    TIMING,
    LeaseReply,
    LeaseRequest,
    LeaseVerb,
    Register,
    Timing,
)

NEAR_RECORDS = 64  # at most so many frames (of 4 MiB) are waited for when a replica joins
HISTORY_MAX = 100_000  # terms; one is added per failover
History = tuple[tuple[int, int], ...]  # (term, position of its first record), ascending


class ReplicaRole(Enum):
    """The role of a server, or its stage on the way to one."""

    REPLICA = "replica"
    PRIMARY = "primary"


class Stage(Enum):
    """How far a replica is with its primary."""

    ALONE = "alone"
    ASKED = "asked"
    FOLLOWING = "following"


@dataclass(frozen=True, slots=True)
class Follow:
    """Replica to primary, first message of a session: what its log is."""

    server: int
    session: int
    term: int
    end: int
    history: History


@dataclass(frozen=True, slots=True)
class FollowAccepted:
    """Primary to replica: records follow from `common` on; discard what is beyond.

    is_reset: the primary has no records so old, its snapshot (up to `common`) must be loaded.
    history: of the primary's log up to `common`.
    """

    session: int
    term: int
    common: int
    history: History
    is_reset: bool = False


@dataclass(frozen=True, slots=True)
class Append:
    """Primary to replica: one record. begins: the term, when it is a TERM record."""

    session: int
    term: int
    position: int
    record: object
    begins: int = 0


@dataclass(frozen=True, slots=True)
class Ack:
    """Replica to primary: it has logged and applied everything below `end`."""

    server: int
    session: int
    term: int
    end: int


@dataclass(frozen=True, slots=True)
class FollowRefused:
    """To a server of an older term, or to a replica that asked one that is not primary."""

    session: int
    term: int


Message = Follow | FollowAccepted | Append | Ack | FollowRefused


@dataclass(frozen=True, slots=True)
class AskWitness:
    """Action: send the request to the witness."""

    request: LeaseRequest


@dataclass(frozen=True, slots=True)
class SendMessage:
    """Action: send a message on the connection of the pair."""

    message: Message


@dataclass(frozen=True, slots=True)
class StoreRecord:
    """Action: log and apply a record, as the primary did. Before the next action."""

    position: int
    record: object


@dataclass(frozen=True, slots=True)
class Truncate:
    """Action: discard log, state and snapshots beyond `end`. Before the next action."""

    end: int


@dataclass(frozen=True, slots=True)
class Restore:
    """Action: discard everything, load the primary's snapshot, which reaches `end`."""

    end: int


@dataclass(frozen=True, slots=True)
class BeginTerm:
    """Action: log the TERM record of a term, report it with `appended`, then serve."""

    term: int


@dataclass(frozen=True, slots=True)
class ConnectToPrimary:
    """Action: connect to the primary there and report it with `connected`."""

    endpoint: str


@dataclass(frozen=True, slots=True)
class Deposed:
    """Action: refuse all that waits for an acknowledgement, and say who serves now."""

    term: int
    endpoint: str


# What a member knows of an in-sync candidate, when there is none.
NO_CANDIDATE: dict[str, Any] = {
    "in_sync_candidate": 0, "candidate_since": -1, "is_removing": False, "match_lsn": 0,
}  # fmt: skip
Action = (
    AskWitness
    | SendMessage
    | StoreRecord
    | Truncate
    | Restore
    | BeginTerm
    | ConnectToPrimary
    | Deposed
)
M = TypeVar("M", bound="ReplicaState")


@dataclass(frozen=True, slots=True)
class ReplicaState:
    """A server of a pair. Every method gives the member after the event, and what to do in order.

    server: identity of its log, not 0. term: the newest heard of; older messages are refused.
    end, history: of its log. register: as last seen.
    held_until: its lease, on its own clock.
    in_sync_candidate: the replica without whose acknowledgement nothing is acknowledged; 0: none.
    candidate_since: version of the register that the last ADD for it named; -1 before any.
    match_lsn: below it the candidate has everything. high_watermark: below it all may be
    acknowledged. max_lag: a replica at most so many records behind becomes the candidate.
    """

    server: int
    endpoint: str = ""
    is_first: bool = False
    timing: Timing = TIMING
    max_lag: int = NEAR_RECORDS
    role: ReplicaRole = ReplicaRole.REPLICA
    stage: Stage = Stage.ALONE
    term: int = 0
    end: int = 0
    history: History = ()
    register: Register = field(default_factory=Register)
    held_until: float = float("-inf")
    session: int = 0
    peer: int = 0
    in_sync_candidate: int = 0
    candidate_since: int = -1
    is_removing: bool = False
    match_lsn: int = 0
    high_watermark: int = 0
    asked_at: float = float("-inf")
    heard_at: float = float("-inf")

    # ------------------------------------------------------------------------- what it may do

    def may_serve(self, *, now: float) -> bool:
        """True when it answers pulls and takes pushes; asked again before each acknowledgement."""
        return self.role is ReplicaRole.PRIMARY and now < self.held_until

    def acknowledges(self, end: int, *, now: float) -> bool:
        """True when an answer that rests on the records below `end` may go out.

        For a push: the end of the log after its record. For a repeat of a push: the end of the
        log when the repeat came, since the first copy may still wait for the replica.
        """
        is_serving = self.role is ReplicaRole.PRIMARY and now < self.held_until
        return is_serving and end <= self.high_watermark

    @property
    def keep_from(self) -> int:
        """Records from here on must stay in the log, whatever snapshots there are."""
        return self.match_lsn if self.in_sync_candidate else self.end

    def wish(self, *, now: float) -> LeaseRequest:
        """The request that this server would send to the witness now."""
        ask, peer = LeaseVerb.TAKE, 0
        if self.role is ReplicaRole.PRIMARY:
            ask = LeaseVerb.RENEW
            if self.is_removing:
                ask, peer = LeaseVerb.REMOVE, self.in_sync_candidate
            elif self.wants_to_add():
                ask, peer = LeaseVerb.ADD, self.in_sync_candidate
        return LeaseRequest(
            ask, self.server, self.term, self.register.version, now, peer, self.endpoint,
            self.is_first,
        )  # fmt: skip

    def wants_to_add(self) -> bool:
        """True when the in-sync candidate has all that was acknowledged, and may be put in sync."""
        is_new = self.in_sync_candidate != 0 and self.in_sync_candidate not in self.register.in_sync
        return (
            is_new and self.in_sync_candidate == self.peer and self.match_lsn >= self.high_watermark
        )

    # ------------------------------------------------------------------------------ its clock

    def tick(self: M, *, now: float) -> tuple[M, list[Action]]:
        """To be called every 0.1 s or so."""
        if self.is_replica_silent(now=now):
            return self.lost(self.session, now=now)
        hurried = self.role is ReplicaRole.REPLICA or self.is_removing or self.wants_to_add()
        pause = self.timing.retry_seconds if hurried else self.timing.renew_seconds
        if now < self.asked_at + pause:
            return self, []
        after, actions = self.seek(now=now)
        endpoint = self.register.endpoint
        is_alone = self.role is ReplicaRole.REPLICA and self.stage is Stage.ALONE
        if is_alone and endpoint and self.register.holder != self.server:
            actions.append(ConnectToPrimary(endpoint))
        return after, actions

    def seek(self: M, *, now: float) -> tuple[M, list[Action]]:
        """Asks the witness, whatever was asked before."""
        request = self.wish(now=now)
        since = request.version if request.ask is LeaseVerb.ADD else self.candidate_since
        return replace(self, asked_at=now, candidate_since=since), [AskWitness(request)]

    def is_replica_silent(self, *, now: float) -> bool:
        """True when the in-sync candidate owes an acknowledgement for too long."""
        owes = self.peer != 0 and self.peer == self.in_sync_candidate and self.match_lsn < self.end
        return owes and now > self.heard_at + self.timing.silence_seconds

    # ---------------------------------------------------------------------------- the witness

    def replied(self: M, reply: LeaseReply, *, now: float) -> tuple[M, list[Action]]:
        """The witness answered. Late and repeated answers are harmless."""
        seen = reply.register
        is_mine = reply.ask is LeaseVerb.TAKE and reply.granted and seen.holder == self.server
        if self.role is ReplicaRole.REPLICA and is_mine and seen.term > self.term:
            return self._promoted(reply)
        newer = seen.version > self.register.version
        register = seen if newer else self.register
        if self.role is ReplicaRole.PRIMARY:
            if seen.term > self.term:  # PRIMARY -> REPLICA
                return replace(self, register=register)._deposed(seen.term)
            until = self.held_until
            if seen.holder == self.server and seen.term == self.term:
                # Counted from when the request left, which was before the witness's now.
                until = max(until, reply.sent + self.timing.held_seconds)
            return replace(self, register=register, held_until=until)._settled(), []
        if seen.term <= self.term:
            return replace(self, register=register), []
        # A primary of an older term is no longer listened to.
        return replace(self, register=register, term=seen.term, stage=Stage.ALONE), []

    def _promoted(self: M, reply: LeaseReply) -> tuple[M, list[Action]]:
        """A replica is promoted to primary (leader election): whatever its log has is the log."""
        assert len(self.history) < HISTORY_MAX
        term = reply.register.term
        after = replace(
            self, role=ReplicaRole.PRIMARY, stage=Stage.ALONE, term=term, register=reply.register,
            history=(*self.history, (term, self.end)), high_watermark=self.end,
            held_until=reply.sent + self.timing.held_seconds,
        )  # fmt: skip
        return after, [BeginTerm(term)]

    def _deposed(self: M, term: int) -> tuple[M, list[Action]]:
        after = replace(
            self, role=ReplicaRole.REPLICA, stage=Stage.ALONE, term=term,
            held_until=float("-inf"), peer=0, **NO_CANDIDATE,
        )  # fmt: skip
        is_known = self.register.term == term
        return after, [Deposed(term, self.register.endpoint if is_known else "")]

    def _settled(self: M) -> M:
        """Drops the in-sync candidate once no request under way can put it, or keep it, in sync."""
        is_out = self.in_sync_candidate not in self.register.in_sync
        if self.is_removing and is_out and self.register.version > self.candidate_since:
            return replace(self, high_watermark=self.end, **NO_CANDIDATE)
        return self

    def release(self: M, *, now: float) -> tuple[M, list[Action]]:
        """Gives the lease up before an orderly end, so that the replica takes over at once."""
        if self.role is not ReplicaRole.PRIMARY:
            return self, []
        request = replace(self.wish(now=now), ask=LeaseVerb.RELEASE, peer=0)
        after, actions = self._deposed(self.term)  # PRIMARY -> REPLICA, before the witness knows
        return after, [*actions, AskWitness(request)]

    # ------------------------------------------------------------------------------- primary

    def appended(self: M, *, now: float) -> tuple[M, list[Action]]:
        """The primary logged one record at its end. Streaming reads it from the log."""
        assert self.role is ReplicaRole.PRIMARY
        end = self.end + 1
        heard_at = now if self.match_lsn == self.end else self.heard_at
        high_watermark = end if self.in_sync_candidate == 0 else self.high_watermark
        return replace(self, end=end, high_watermark=high_watermark, heard_at=heard_at), []

    def followed(self: M, message: Follow, *, first: int, now: float) -> tuple[M, list[Action]]:
        """A replica asks for the log. first: the oldest position that can be read from it."""
        if message.term > self.term and self.role is ReplicaRole.PRIMARY:
            return self._deposed(message.term)
        if self.role is not ReplicaRole.PRIMARY:
            return self, [SendMessage(FollowRefused(message.session, self.term))]
        common = common_end(self.history, self.end, message.history, message.end)
        is_reset = common < first
        common = max(common, first)
        # One that comes again and again, and never gets further, is silent all the same.
        owes = self.in_sync_candidate == message.server and self.match_lsn < self.end
        heard_at = self.heard_at if owes else now
        after = replace(self, peer=message.server, session=message.session, heard_at=heard_at)
        actions: list[Action] = []
        if self.in_sync_candidate not in (0, message.server):
            after, actions = after._given_up(now=now)
        history = tuple(one for one in self.history if one[1] < common)
        start = FollowAccepted(message.session, self.term, common, history, is_reset)
        return after, [SendMessage(start), *actions]

    def acknowledged(self: M, message: Ack, *, now: float) -> tuple[M, list[Action]]:
        """The replica has everything below `message.end`."""
        if self.role is not ReplicaRole.PRIMARY or not self.is_current(
            message.session, message.term
        ):
            return self, []
        is_same = (
            self.in_sync_candidate == message.server and message.end <= self.match_lsn < self.end
        )
        after = self if is_same else replace(self, heard_at=now)
        if self.in_sync_candidate == 0 and message.end + self.max_lag >= self.end:
            # From here on acknowledgements wait for it; those given before are below `safe`.
            after = replace(
                after, in_sync_candidate=message.server, candidate_since=-1, match_lsn=message.end
            )
        elif self.in_sync_candidate != message.server:
            return after, []
        match_lsn = max(after.match_lsn, message.end)
        after = replace(
            after, match_lsn=match_lsn, high_watermark=max(after.high_watermark, match_lsn)
        )
        if after.wants_to_add() and after.candidate_since < after.register.version:
            return after.seek(now=now)
        return after, []

    def lost(self: M, session: int, *, now: float) -> tuple[M, list[Action]]:
        """The connection of a session ended, or the replica is silent on it."""
        if session != self.session:
            return self, []
        if self.role is ReplicaRole.REPLICA:
            return replace(self, stage=Stage.ALONE), []
        after = replace(self, peer=0)
        return after._given_up(now=now) if after.in_sync_candidate else (after, [])

    def _given_up(self: M, *, now: float) -> tuple[M, list[Action]]:
        """The in-sync candidate is asked out of sync; until that is granted, nothing changes."""
        if self.candidate_since < 0 and self.in_sync_candidate not in self.register.in_sync:
            return replace(self, high_watermark=self.end, **NO_CANDIDATE), []  # never asked in
        return replace(self, is_removing=True).seek(now=now)

    # ------------------------------------------------------------------------------- replica

    def connected(self: M, session: int) -> tuple[M, list[Action]]:
        """A connection to the primary is open. session: never used before, by this log."""
        if self.role is not ReplicaRole.REPLICA:
            return self, []
        after = replace(self, session=session, stage=Stage.ASKED)
        return after, [SendMessage(Follow(self.server, session, self.term, self.end, self.history))]

    def started(self: M, message: FollowAccepted) -> tuple[M, list[Action]]:
        """The primary says from where its log continues this one.

        Raises:
            PaddockError: that would discard what this server acknowledged as a primary.
        """
        if self.stage is not Stage.ASKED or message.session != self.session:
            return self, []
        if self.is_older(message.term):
            return replace(self, stage=Stage.ALONE), [
                SendMessage(FollowRefused(message.session, self.term))
            ]
        if message.common < self.high_watermark:
            raise PaddockError(
                f"the primary's log joins this one at record {message.common}, but this server "
                f"acknowledged up to {self.high_watermark}",
                hint="the primary lacks acknowledged pushes: keep both data directories",
            )
        actions: list[Action] = []
        if message.is_reset:
            actions.append(Restore(message.common))
        elif message.common < self.end:
            actions.append(Truncate(message.common))
        after = replace(
            self, stage=Stage.FOLLOWING, term=message.term, end=message.common,
            history=message.history,
        )  # fmt: skip
        return after, [*actions, SendMessage(after._ack())]

    def stored(self: M, message: Append) -> tuple[M, list[Action]]:
        """A record from the primary."""
        if self.is_older(message.term):
            return self, [SendMessage(FollowRefused(message.session, self.term))]
        if self.stage is not Stage.FOLLOWING or not self.is_current(message.session, message.term):
            return self, []
        if message.position > self.end:  # FOLLOWING -> ALONE
            return replace(self, stage=Stage.ALONE), []
        if message.position < self.end:
            return self, [SendMessage(self._ack())]
        history = self.history
        if message.begins:
            history = (*history, (message.begins, message.position))
        after = replace(self, end=message.position + 1, history=history)
        return after, [StoreRecord(message.position, message.record), SendMessage(after._ack())]

    def refused(self: M, message: FollowRefused) -> tuple[M, list[Action]]:
        """The other side knows a newer term, or is no primary."""
        if message.session != self.session:
            return self, []
        if self.role is ReplicaRole.PRIMARY:
            return self._deposed(message.term) if message.term > self.term else (self, [])
        return replace(self, stage=Stage.ALONE), []

    def _ack(self) -> Ack:
        return Ack(self.server, self.session, self.term, self.end)

    # ---------------------------------------------------------------------------- the fences

    def is_older(self, term: int) -> bool:
        """True when a message comes from a primary that is one no longer."""
        return term < self.term

    def is_current(self, session: int, term: int) -> bool:
        """True when a message belongs to the present connection and term."""
        return session == self.session and term == self.term


def recovered(member: M, *, end: int, history: History) -> M:
    """A server's member after its log was read: a replica, whatever it was before.

    >>> recovered(ReplicaState(7), end=4, history=((1, 0), (3, 2))).term
    3
    """
    return replace(member, end=end, history=history, term=history[-1][0] if history else 0)


def common_end(mine: History, my_end: int, theirs: History, their_end: int) -> int:
    """Up to where two logs have the same records.

    >>> common_end(((1, 0), (2, 5)), 8, ((1, 0),), 9)
    5
    >>> common_end(((1, 0),), 8, ((1, 0),), 6)
    6
    """
    own = _spans(mine, my_end)
    for span, stop in reversed(_spans(theirs, their_end).items()):
        if span in own:
            return min(stop, own[span])
    return 0


def _spans(history: History, end: int) -> dict[tuple[int, int], int]:
    """(term, first position) to the position after its last record."""
    stops = [start for _, start in history[1:]] + [end]
    return dict(zip(history, stops, strict=False))
