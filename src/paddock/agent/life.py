"""This node's place in a job: does it coordinate, or whom does it follow? Decides; no I/O.

Whoever elects says who coordinates: --master itself (an address is ours or it is not), etcd, or a
coordinator that leaves. This machine makes it so, one thing after the other: what this node runs
under one coordinator has ended before it has another. Where it goes when it has none, its
``Succession`` decides: that of etcd (etcd_succession.py), or of a majority of nodes (search.py).

    role       event                             next       orders
    ---------  --------------------------------  ---------  ---------------------------------------
    seeking    Elected, nothing runs             leading    Lead
    seeking    Following, nothing runs           following  Follow
    seeking    Elected, Following                seeking    Halt; the rest when Idle
    seeking    TimerFired: nobody was elected    ended      GiveUp(124)
    seeking    TimerFired: it searches           following  Follow the next
    following  Welcomed                          following  none: the run's uid is known
    following  Elected, Following                seeking    Unfollow, Halt, and as above
    following  LinkLost, no other can come       ended      Halt, GiveUp(125)
    following  LinkLost, elastic or etcd         seeking    Unfollow, Halt; then Follow it again
    following  LinkLost, HandOver; told to leave ended      Unfollow, Halt, GiveUp(128 + signal)
    following  Refused: nobody listens there     following  Unseat it (etcd)
    following  Unreachable, etcd                 seeking    Unfollow
    following  Unreachable, searching            following  Unfollow, Follow the next (search.py)
    following  Unreachable, it is our turn       leading    Unfollow, Lead
    following  Unreachable, for too long         ended      GiveUp(124)
    following  Unreachable, refused              ended      GiveUp
    following  Welcomed by another run, early    following  Unfollow, Follow the next
    following  both, while it may still run      seeking    Unfollow, SetTimer
    following  HandOver to us                    leading    Unfollow, Lead
    following  HandOver to another               following  Unfollow, Follow
    following  HandOver, etcd                    seeking    Unfollow; who comes next is elected
    leading    Deposed                           seeking    Abdicate, Halt in a hurry
    leading    HandOver: it gives way            leading    Halt in a hurry
    leading    CoordinatorEnded, gave way        following  Abdicate, Follow
    leading    CoordinatorEnded                  ended      none: our member is told what it means
    any        the job ended meanwhile           ended      GiveUp
    any        ElectionFailed                    ended      GiveUp
    any        Reelected, EtcdDown, EtcdBack     same       Say
    ended      anything                          ended      none
"""

from __future__ import annotations

from paddock.agent.election_words import Deposed, Elected, ElectionFailed, Following
from paddock.agent.life_words import (
    Abdicate,
    CoordinatorEnded,
    Follow,
    GiveUp,
    Halt,
    Lead,
    LinkLost,
    Say,
    SetTimer,
    TimerFired,
    Unfollow,
    Unreachable,
    Welcomed,
)
from paddock.core.endpoint import join_endpoint
from paddock.core.messages import HandOver
from paddock.errors import EXIT_SIGNAL_BASE, PaddockError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Literal, Protocol

    from paddock.agent.life_words import Event, Move, Now, Order, Target
    from paddock.core.job import Job

    Role = Literal["seeking", "leading", "following", "ended"]

    class Succession(Protocol):
        """Decides where a node goes when its leader changes.

        A Move replaces what the node was to do next, and makes it seek until nothing of it runs;
        a Move with GiveUp among its orders ends its part. uid: of the run it takes part in, or "".
        on_welcomed: a leader of the run ``joined`` let this node in; a Move leaves it again.
        on_leader_lost: text says so, for people; target: where it was.
        """

        def on_elected(self, event: Elected, uid: str, now: Now) -> Move: ...
        def on_following(self, event: Following) -> None: ...
        def on_stepped_down(self, now: Now) -> list[Order]: ...
        def on_leader_lost(self, event: LinkLost, text: str, target: Target, now: Now) -> Move: ...
        def on_hand_over(self, order: HandOver, now: Now, *, is_leading: bool) -> Move: ...
        def is_successor(self, order: HandOver, now: Now) -> bool: ...
        def on_unreachable(self, error: PaddockError, uid: str, now: Now) -> Move: ...
        def on_welcomed(self, uid: str, joined: str, now: Now) -> Move | None: ...
        def on_timer(self, now: Now) -> Move: ...
        def on_other(self, event: Event) -> list[Order]: ...


class Life:
    """One launcher's place. ``handle`` takes an event, returns orders."""

    def __init__(self, job: Job, succession: Succession) -> None:
        self.job = job
        self.role: Role = "seeking"
        self.uid = ""
        self._succession = succession
        self._target = ("", 0)
        self._next: Lead | Follow | None = None

    def handle(self, event: Event, now: Now) -> list[Order]:
        """Take one event; return what to do, in order."""
        if self.role == "ended":
            return []
        orders = self._take(event, now)
        if self._next is not None and not now.is_running and self.role == "seeking":
            orders.append(self._become(self._next))
        return orders

    def _become(self, what: Lead | Follow) -> Order:
        self._next = None
        if isinstance(what, Follow):
            self.role = "following"  # seeking -> following
            self._target = what.target
        else:
            self.role = "leading"  # seeking -> leading
            self.uid = what.uid
        return what

    def _take(self, event: Event, now: Now) -> list[Order]:
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
            return self._leave_for(Follow(target), now, "the coordinator changes")
        if isinstance(event, Deposed):
            return self._on_deposed(event.reason, now)
        if isinstance(event, LinkLost) and is_following:
            text = f"the coordinator at {self._where_it_was()} is lost: {event.why}"
            return self._move(succession.on_leader_lost(event, text, self._target, now))
        if isinstance(event, HandOver):
            return self._on_hand_over(event, now)
        if isinstance(event, Unreachable):
            return self._move(succession.on_unreachable(event.error, self.uid, now))
        if isinstance(event, Welcomed):
            back = succession.on_welcomed(self.uid, event.uid, now)
            if back is not None:
                return self._move(back)
            self.uid = event.uid
            return [SetTimer(None)]
        if isinstance(event, CoordinatorEnded):
            self.role = "ended" if self._next is None else "seeking"  # leading -> either
            return [SetTimer(None)] if self._next is None else [Abdicate()]
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

    def _of_our_run(self, what: Lead | Follow | None) -> Lead | Follow | None:
        """A node that takes over leads the run in which it was."""
        if isinstance(what, Lead) and what.inherited and not what.inherited.is_new_run:
            return Lead(self.uid, what.inherited)
        return what

    def _on_deposed(self, reason: str, now: Now) -> list[Order]:
        self._next = None
        was_leading, self.role = self.role == "leading", "seeking"  # leading -> seeking
        if not was_leading:
            return []
        return [
            Say("WARNING", f"this node coordinates no longer: {reason}"),
            Abdicate(),
            Halt(reason, hurry=True),
            *self._succession.on_stepped_down(now),
        ]

    def _leave_for(self, what: Lead | Follow, now: Now, reason: str) -> list[Order]:
        """following, seeking -> seeking, and on from there when nothing runs."""
        orders: list[Order] = [SetTimer(None)] if isinstance(what, Lead) else []
        if self.role == "following":
            orders.append(Unfollow(breaks=True))
        elif self.role == "leading":
            orders.append(Abdicate())
        self.role = "seeking"
        self._next = self._of_our_run(what)
        if now.is_running:
            orders.append(Halt(reason))
        return orders

    def _where_it_was(self) -> str:
        """Its address, and its name where it was given one: pods, and their addresses, pass."""
        name = "" if self.job.is_elastic else self.job.rendezvous.host
        where = join_endpoint(*self._target)
        return where if name in ("", self._target[0]) else f"{where} ({name})"

    def _on_hand_over(self, order: HandOver, now: Now) -> list[Order]:
        """Planned: nothing runs, and who comes next is known, or elected in a moment."""
        role = self.role
        if role not in ("leading", "following"):
            return []
        orders = self._move(self._succession.on_hand_over(order, now, is_leading=role == "leading"))
        if role == "leading":
            self.role = role  # until everybody has heard it: CoordinatorEnded
        return orders

    # ------------------------------------------------------------- told to leave

    def _is_farewell(self, event: Event, now: Now) -> bool:
        """There is nobody to tell any more, and nobody waits for us; unless we are the next."""
        if isinstance(event, HandOver):
            return not self._succession.is_successor(event, now)
        return isinstance(event, LinkLost)

    def _leave(self, event: Event, now: Now) -> list[Order]:
        is_silent = isinstance(event, LinkLost) and event.ending == "silent"
        text = (
            "told to stop while the coordinator was being lost: "
            "this node ends, the others hear of it"
        )
        error = PaddockError(text, exit_code=EXIT_SIGNAL_BASE + now.signal)
        return [Unfollow(), Halt("told to stop", hurry=is_silent), self._end(error)]

    def _end(self, error: PaddockError) -> GiveUp:
        self.role = "ended"
        return GiveUp(error)
