"""The leadership state machine: does this node lead the job, or follow a leader? No I/O.

--master itself (its address is ours or not), etcd, or a leader that leaves names the leader. This
machine carries that out in order: the processes of this node under one leader have ended before it
has another. ``Succession`` decides where it goes without a leader: that of etcd
(etcd_election/succession.py), or of a majority of nodes (leadership/succession.py).

    role       event                              next       orders
    ---------  ---------------------------------  ---------  ---------------------------------------
    seeking    Elected, nothing runs              leading    Lead
    seeking    Following, nothing runs            following  Connect
    seeking    Elected, Following                 seeking    StopRanks; the rest when Idle
    seeking    TimerFired: nobody was elected     ended      GiveUp(124)
    seeking    TimerFired: it searches            following  Connect the next
    following  Joined                             following  none: the run's uid is known
    following  Elected, Following                 seeking    Disconnect, StopRanks, and as above
    following  LinkLost, no other can come        ended      StopRanks, GiveUp(125)
    following  LinkLost, elastic or etcd          seeking    Disconnect, StopRanks; Connect it again
    following  LinkLost, HandOver; told to leave  ended      Disconnect, StopRanks, GiveUp(128 + n)
    following  Refused: nobody listens there      following  RevokeLeader it (etcd)
    following  Unreachable, etcd                  seeking    Disconnect
    following  Unreachable, searching             following  Disconnect, Connect the next
    following  Unreachable, it is our turn        leading    Disconnect, Lead
    following  Unreachable, for too long          ended      GiveUp(124)
    following  Unreachable, refused               ended      GiveUp
    following  Joined by another run, early       following  Disconnect, Connect the next
    following  both, while it may still run       seeking    Disconnect, SetTimer
    following  HandOver to us                     leading    Disconnect, Lead
    following  HandOver to another                following  Disconnect, Connect
    following  HandOver, etcd                     seeking    Disconnect; who comes next is elected
    leading    SteppedDown                        seeking    StepDown, StopRanks by force
    leading    HandOver: it gives way             leading    StopRanks by force
    leading    CoordinatorEnded, gave way         following  StepDown, Connect
    leading    CoordinatorEnded                   ended      none: our member is told what it means
    any        the job ended meanwhile            ended      GiveUp
    any        ElectionFailed                     ended      GiveUp
    any        Reelected, EtcdDown, EtcdBack      same       PrintLine
    ended      anything                           ended      none
"""

from __future__ import annotations

from paddock.agent.etcd_election.messages import Elected, ElectionFailed, Following, SteppedDown
from paddock.agent.leadership.messages import (
    Connect,
    CoordinatorEnded,
    Disconnect,
    GiveUp,
    Joined,
    Lead,
    LinkLost,
    PrintLine,
    StepDown,
    StopRanks,
    Unreachable,
)
from paddock.core.endpoint import join_endpoint
from paddock.core.rendezvous.messages import HandOver, SetTimer, TimerFired
from paddock.errors import EXIT_SIGNAL_BASE, PaddockError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Literal, Protocol

    from paddock.agent.leadership.messages import Event, LocalState, Move, Order, Target
    from paddock.core.job import Job

    Role = Literal["seeking", "leading", "following", "ended"]

    class Succession(Protocol):
        """Decides where a node goes when its leader changes.

        A Move replaces what the node was to do next, and makes it seek until nothing of it runs;
        a Move with GiveUp among its orders ends its part. uid: of the run it takes part in, or "".
        on_welcomed: a leader of the run ``joined`` let this node in; a Move leaves it again.
        on_leader_lost: text says so, for people; target: where it was.
        """

        def on_elected(self, event: Elected, uid: str, now: LocalState) -> Move: ...
        def on_following(self, event: Following) -> None: ...
        def on_stepped_down(self, now: LocalState) -> list[Order]: ...
        def on_leader_lost(
            self, event: LinkLost, text: str, target: Target, now: LocalState
        ) -> Move: ...
        def on_hand_over(self, order: HandOver, now: LocalState, *, is_leading: bool) -> Move: ...
        def is_successor(self, order: HandOver, now: LocalState) -> bool: ...
        def on_unreachable(self, error: PaddockError, uid: str, now: LocalState) -> Move: ...
        def on_welcomed(self, uid: str, joined: str, now: LocalState) -> Move | None: ...
        def on_timer(self, now: LocalState) -> Move: ...
        def on_other(self, event: Event) -> list[Order]: ...


class LeadershipState:
    """The leadership of one launcher. ``handle`` takes an event, returns orders."""

    def __init__(self, job: Job, succession: Succession) -> None:
        self.job = job
        self.role: Role = "seeking"
        self.uid = ""
        self._succession = succession
        self._target = ("", 0)
        self._next: Lead | Connect | None = None

    def handle(self, event: Event, now: LocalState) -> list[Order]:
        if self.role == "ended":
            return []
        orders = self._take(event, now)
        if self._next is not None and not now.is_running and self.role == "seeking":
            orders.append(self._become(self._next))
        return orders

    def _become(self, what: Lead | Connect) -> Order:
        self._next = None
        if isinstance(what, Connect):
            self.role = "following"  # seeking -> following
            self._target = what.target
        else:
            self.role = "leading"  # seeking -> leading
            self.uid = what.uid
        return what

    def _take(self, event: Event, now: LocalState) -> list[Order]:
        succession = self._succession
        is_following = self.role == "following"
        if now.signal and is_following and self._is_farewell(event, now):
            return self._leave(event, now)
        if isinstance(event, Elected):
            move = succession.on_elected(event, self.uid, now)
            if move.next is None:
                return self._move(move)
            return [*move.orders, *self._leave_for(move.next, now, "this node coordinates")]
        if isinstance(event, Following):
            succession.on_following(event)
            target = (event.record.host, event.record.port)
            return self._leave_for(Connect(target), now, "the coordinator changes")
        if isinstance(event, SteppedDown):
            return self._on_stepped_down(event.reason, now)
        if isinstance(event, LinkLost) and is_following:
            text = f"the coordinator at {self._where_it_was()} is lost: {event.why}"
            return self._move(succession.on_leader_lost(event, text, self._target, now))
        if isinstance(event, HandOver):
            return self._on_hand_over(event, now)
        if isinstance(event, Unreachable):
            return self._move(succession.on_unreachable(event.error, self.uid, now))
        if isinstance(event, Joined):
            back = succession.on_welcomed(self.uid, event.uid, now)
            if back is not None:
                return self._move(back)
            self.uid = event.uid
            return [SetTimer(None)]
        if isinstance(event, CoordinatorEnded):
            self.role = "ended" if self._next is None else "seeking"  # leading -> either
            return [SetTimer(None)] if self._next is None else [StepDown()]
        if isinstance(event, TimerFired):
            return self._move(succession.on_timer(now))
        if isinstance(event, ElectionFailed):
            return [self._end(event.error)]
        return succession.on_other(event)

    def _move(self, move: Move) -> list[Order]:
        """Any role -> seeking, ended."""
        is_over = any(isinstance(order, GiveUp) for order in move.orders)
        self.role = "ended" if is_over else "seeking"
        self._next = self._of_our_run(move.next)
        return list(move.orders)

    def _of_our_run(self, what: Lead | Connect | None) -> Lead | Connect | None:
        """Return the order with our run's uid: a node that takes over leads the run it was in."""
        if isinstance(what, Lead) and what.handoff and not what.handoff.is_new_run:
            return Lead(self.uid, what.handoff)
        return what

    def _on_stepped_down(self, reason: str, now: LocalState) -> list[Order]:
        """Stop the ranks of a fenced leader: another one may start an attempt."""
        self._next = None
        was_leading, self.role = self.role == "leading", "seeking"  # leading -> seeking
        if not was_leading:
            return []
        return [
            PrintLine("WARNING", f"this node coordinates no longer: {reason}"),
            StepDown(),
            StopRanks(reason, force=True),
            *self._succession.on_stepped_down(now),
        ]

    def _leave_for(self, what: Lead | Connect, now: LocalState, reason: str) -> list[Order]:
        """following, seeking -> seeking, and on from there when nothing runs."""
        orders: list[Order] = [SetTimer(None)] if isinstance(what, Lead) else []
        if self.role == "following":
            orders.append(Disconnect(breaks=True))
        elif self.role == "leading":
            orders.append(StepDown())
        self.role = "seeking"
        self._next = self._of_our_run(what)
        if now.is_running:
            orders.append(StopRanks(reason))
        return orders

    def _where_it_was(self) -> str:
        """The lost leader's address, with the name given by --master: addresses of pods change."""
        name = "" if self.job.is_elastic else self.job.rendezvous.host
        where = join_endpoint(*self._target)
        return where if name in ("", self._target[0]) else f"{where} ({name})"

    def _on_hand_over(self, order: HandOver, now: LocalState) -> list[Order]:
        """Take a planned hand-over: nothing runs, the next leader is known or elected soon."""
        role = self.role
        if role not in ("leading", "following"):
            return []
        orders = self._move(self._succession.on_hand_over(order, now, is_leading=role == "leading"))
        if role == "leading":
            self.role = role  # until all members have heard it: CoordinatorEnded
        return orders

    # ------------------------------------------------------------- told to leave

    def _is_farewell(self, event: Event, now: LocalState) -> bool:
        """Return True if this node, told to leave, can go: no leader waits for it."""
        if isinstance(event, HandOver):
            return not self._succession.is_successor(event, now)
        return isinstance(event, LinkLost)

    def _leave(self, event: Event, now: LocalState) -> list[Order]:
        is_silent = isinstance(event, LinkLost) and event.ending == "silent"
        text = (
            "told to stop while the coordinator was being lost: "
            "this node ends, the others hear of it"
        )
        error = PaddockError(text, exit_code=EXIT_SIGNAL_BASE + now.signal)
        return [Disconnect(), StopRanks("told to stop", force=is_silent), self._end(error)]

    def _end(self, error: PaddockError) -> GiveUp:
        self.role = "ended"
        return GiveUp(error)
