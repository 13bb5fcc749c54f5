"""This node's place in a job: does it coordinate, or whom does it follow? Decides; no I/O.

Whoever elects says who coordinates: --master itself (an address is ours or it is not), etcd
(election.py), or a coordinator that leaves. This machine makes it so, one thing after the other:
what this node runs under one coordinator has ended before it has another.

    role       event                             next       orders
    ---------  --------------------------------  ---------  ---------------------------------------
    seeking    Elected, nothing runs             leading    Lead
    seeking    Following, nothing runs           following  Follow
    seeking    Elected, Following                seeking    Halt; the rest when Idle
    seeking    TimerFired: nobody was elected    ended      GiveUp(124)
    following  Welcomed                          following  Learn the run's uid
    following  Elected, Following                seeking    Unfollow, Halt, and as above
    following  LinkLost, no other can come       ended      Halt, GiveUp(125)
    following  LinkLost, elastic or etcd         seeking    Unfollow, Halt; then Follow it again
    following  Refused: nobody listens there     following  Unseat it (etcd)
    following  Unreachable, etcd                 seeking    Unfollow
    following  Unreachable, refused              ended      GiveUp
    following  HandOver to us                    leading    Unfollow, Lead
    following  HandOver to another               following  Unfollow, Follow
    following  HandOver, etcd                    seeking    Unfollow; who comes next is elected
    leading    Deposed                           seeking    Abdicate, Halt in a hurry
    leading    CoordinatorEnded                  ended      none: our member is told what it means
    any        the job ended meanwhile           ended      GiveUp
    any        ElectionFailed                    ended      GiveUp
    any        Reelected, EtcdDown, EtcdBack     same       Say
    ended      anything                          ended      none

What survives the coordinator: the attempt's number, nodes and budget, from the election's record
or from this node's own last Start, whichever is later.
"""

from __future__ import annotations

from paddock.agent.election_values import (
    AttemptRecord,
    Deposed,
    Elected,
    ElectionFailed,
    EtcdBack,
    EtcdDown,
    Following,
)
from paddock.agent.life_words import (
    SHORT_GRACE_SECONDS,
    Abdicate,
    CoordinatorEnded,
    Follow,
    GiveUp,
    Halt,
    Lead,
    Learn,
    LinkLost,
    Refused,
    Say,
    SetTimer,
    TimerFired,
    Unfollow,
    Unreachable,
    Unseat,
    Welcomed,
)
from paddock.core.membership import Inherited
from paddock.core.messages import Budget, HandOver
from paddock.core.plan import join_endpoint
from paddock.core.value import replace
from paddock.errors import EXIT_DEADLINE, EXIT_OWN_FAULT, PaddockError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Literal

    from paddock.agent.life_words import Event, Now, Order
    from paddock.core.job import Job

    Role = Literal["seeking", "leading", "following", "ended"]

# A leader's key in etcd lives this long after its last word.
TTL_SECONDS = 3
# A coordinator that was cut off misses its members after so many leases, and ends its processes.
CUT_OFF_LEASES = 1.25
# A launcher that died has had its processes ended by its guardian after this time.
GUARDIAN_SECONDS = 1.5


class Life:
    """One launcher's place. ``handle`` takes an event, returns orders."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.role: Role = "seeking"
        self.uid = ""
        self.generation = 0
        self.leader = ""  # the nonce of the record of whom we follow
        self._is_etcd = job.rendezvous.kind == "etcd"
        self._target = ("", 0)
        self._next: Lead | Follow | None = None
        self._limit_seconds = 0.0
        self._is_dead = False  # the coordinator we followed last: its launcher has ended
        self._dead = ""  # its nonce
        self._handed: Inherited | None = None  # what the coordinator said when it left

    def handle(self, event: Event, now: Now) -> list[Order]:
        """Take one event; return what to do, in order."""
        if self.role == "ended":
            return []
        orders = self._take(event, now)
        if self._next is not None and not now.is_running and self.role == "seeking":
            orders.append(self._become(self._next))
        return orders

    def begin(self, now: Now) -> list[Order]:
        """Somebody has to be elected within --join-timeout."""
        return [self._limit(now, self.job.rendezvous.join_timeout_seconds)]

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
        if isinstance(event, Elected):
            return self._on_elected(event, now)
        if isinstance(event, Following):
            self.leader = event.record.nonce
            return self._leave_for(
                Follow((event.record.host, event.record.port)), now, "the coordinator changes"
            )
        if isinstance(event, Deposed):
            return self._on_deposed(event.reason, now)
        if isinstance(event, LinkLost) and self.role == "following":
            return self._on_link_lost(event, now)
        if isinstance(event, HandOver) and self.role == "following":
            return self._on_hand_over(event, now)
        if isinstance(event, Unreachable):
            return self._on_unreachable(event.error, now)
        if isinstance(event, Welcomed):
            self.uid, self._is_dead, self._handed = event.uid, False, None
            return [SetTimer(None), Learn(event.uid)]
        if isinstance(event, Refused):
            # A refusal alone is no proof: it may be on its way up, or behind a rule.
            is_dead = self._is_etcd and self._dead == self.leader != ""
            return [Unseat(self.leader)] if is_dead else []
        if isinstance(event, CoordinatorEnded):
            self.role = "ended"  # leading -> ended
            return [SetTimer(None)]
        if isinstance(event, TimerFired):
            return [self._end(self._nobody())]
        if isinstance(event, ElectionFailed):
            return [self._end(event.error)]
        return self._on_etcd(event)

    def _on_etcd(self, event: Event) -> list[Order]:
        if isinstance(event, EtcdDown):
            text = (
                f"etcd does not answer for {event.seconds:.0f} s ({event.reason}); "
                "what runs goes on, no new attempt can start"
            )
            return [Say("WARNING", text)]
        if isinstance(event, EtcdBack):
            return [Say("INFO", "etcd answers again")]
        self.generation = getattr(event, "generation", self.generation)  # Reelected
        return []

    # ---------------------------------------------------------------- elections

    def _on_elected(self, event: Elected, now: Now) -> list[Order]:
        self.generation = event.generation
        record = event.previous
        is_ours = record is not None and bool(self.uid) and record.uid == self.uid
        if record is not None and is_ours and record.ended:
            return [self._end(PaddockError("the job ended while this node was cut off from it"))]
        is_alone = record is None and now.start is not None  # etcd lost its record, but not we
        if not (is_ours or is_alone):
            lead = Lead()
            if record is not None and not record.ended:
                # Another run, that crashed; or that goes on, and we came too late to know it.
                gone_at = now.at + self.job.rendezvous.lease_seconds * CUT_OFF_LEASES
                lead = Lead(inherited=Inherited(
                    record.attempt + 1, record.members, gone_at=gone_at, is_new_run=True
                ))  # fmt: skip
            return self._leave_for(lead, now, "this node coordinates")
        inherited = self._inherit(record, now)
        names = len(inherited.keys)
        text = f"this node coordinates from now on; the attempt before ran on {names} nodes"
        return [
            Say("WARNING", text),
            *self._leave_for(Lead(self.uid, inherited), now, "this node coordinates"),
        ]

    def _inherit(self, record: AttemptRecord | None, now: Now) -> Inherited:
        """What is known of the attempt before: the record's word, or our own if it is later."""
        lease = self.job.rendezvous.lease_seconds
        gone_at = now.at + lease
        # Its death was seen, or it fell silent: it may be cut off, and run on for a while.
        lost_at = now.at + (GUARDIAN_SECONDS if self._is_dead else lease * CUT_OFF_LEASES)
        own = now.start
        handed, self._handed = self._handed, None
        if handed is not None and (record is None or handed.attempt > record.attempt):
            return handed
        if record is None or (own is not None and own.attempt >= record.attempt):
            assert own is not None
            found = Inherited(own.attempt + 1, own.keys, now.budget or Budget(), gone_at, own.by)
        else:
            left = max(0.0, record.deadline - now.wall) if record.deadline else None
            budget = Budget(record.used_restarts, record.total_restarts, left)
            found = Inherited(record.attempt + 1, record.members, budget, gone_at, record.by)
        return replace(
            found, lost="" if found.lost == now.key else found.lost, lost_gone_at=lost_at
        )

    def _on_deposed(self, reason: str, now: Now) -> list[Order]:
        self._next = None
        was_leading, self.role = self.role == "leading", "seeking"  # leading -> seeking
        if not was_leading:
            return []
        return [
            Say("WARNING", f"this node coordinates no longer: {reason}"),
            Abdicate(),
            Halt(reason, hurry=True),
            self._limit(now, self._election_seconds),
        ]

    def _leave_for(self, what: Lead | Follow, now: Now, reason: str) -> list[Order]:
        """following, seeking -> seeking, and on from there when nothing runs."""
        orders: list[Order] = [SetTimer(None)] if isinstance(what, Lead) else []
        if self.role == "following":
            orders.append(Unfollow())
        elif self.role == "leading":
            orders.append(Abdicate())
        self.role = "seeking"
        self._next = what
        if now.is_running:
            orders.append(Halt(reason))
        return orders

    # --------------------------------------------------------------------- loss

    def _on_link_lost(self, event: LinkLost, now: Now) -> list[Order]:
        """Our processes end; if another coordinator may come, or this one again, we look for it."""
        is_silent = event.ending == "silent" or event.left_seconds <= 0
        short = min(SHORT_GRACE_SECONDS, event.left_seconds)
        # Nobody but a launcher, or its kernel when it died, closes a connection in order.
        self._is_dead = event.ending == "closed"
        self._dead = self.leader if self._is_dead else ""
        job = self.job
        where = join_endpoint(*self._target)
        text = f"the coordinator at {where} is lost: {event.why}"
        if self._is_etcd:
            self._next = Follow(self._target)
            self.role = "seeking"  # following -> seeking
            return [
                Say("WARNING", f"{text}; a new one is being elected"),
                Unfollow(),
                # The others may take us for dead: then our processes must be gone before.
                Halt(event.why, hurry=is_silent, grace_seconds=short),
                self._limit(now, self._election_seconds),
            ]
        if not job.is_elastic:
            # With restarts, a coordinator that lives on may replace this node soon.
            is_short = job.restart.max_restarts > 0
            grace = min(job.grace_seconds, short) if is_short else None
            halt = Halt(text, hurry=is_silent, grace_seconds=grace)
            return [Unfollow(), halt, self._end(self._lost(text, is_silent))]
        # It waits for us so long, from when it misses us: a lease later, or after a cut has healed.
        limit = job.elastic.timeout_seconds + 2 * job.rendezvous.lease_seconds
        self._next = Follow(self._target, limit)
        self.role = "seeking"  # following -> seeking
        grace = min(job.grace_seconds, short)
        return [
            Say("WARNING", f"{text}; trying to reach it again for {limit:g} s"),
            Unfollow(),
            Halt(text, hurry=is_silent, grace_seconds=grace),
        ]

    def _on_hand_over(self, order: HandOver, now: Now) -> list[Order]:
        """Planned: nothing runs, and who comes next is known, or elected in a moment."""
        limit = self.job.elastic.timeout_seconds
        self.role = "seeking"  # following -> seeking
        gone_at = now.at + order.wait_seconds
        inherited = Inherited(
            order.attempt, order.keys, order.budget, lost="earlier", lost_gone_at=gone_at
        )
        if self._is_etcd:
            self._handed = inherited
            return [
                Say("INFO", "the coordinator leaves; another is being elected"),
                Unfollow(),
                self._limit(now, self._election_seconds),
            ]
        if order.keys[0] == now.key:
            self._next = Lead(self.uid, inherited)
            return [Unfollow(), Say("INFO", "the coordinator leaves; this node goes on for it")]
        self._next = Follow((order.address, order.door), limit)
        where = join_endpoint(order.address, order.door)
        return [Unfollow(), Say("INFO", f"the coordinator leaves; it goes on at {where}")]

    def _on_unreachable(self, error: PaddockError, now: Now) -> list[Order]:
        if self._is_etcd and error.exit_code == EXIT_DEADLINE:
            # It died before we reached it; the election names another, or the deadline ends us.
            self.role = "seeking"  # following -> seeking
            again = [self._limit(now, self._election_seconds)] if self.uid else []
            return [Unfollow(), *again]
        return [Unfollow(), self._end(error)]

    def _lost(self, text: str, is_silent: bool) -> PaddockError:
        hint = (
            "the network between the nodes, or one of the two hosts, stood still"
            if is_silent
            else "look there: its launcher or its host ended"
        )
        return PaddockError(text, hint=hint, exit_code=EXIT_OWN_FAULT, retryable=True)

    def _nobody(self) -> PaddockError:
        endpoints = ",".join(self.job.rendezvous.etcd)
        return PaddockError(
            f"no coordinator was elected within {self._limit_seconds:g} s",
            hint=f"is etcd at {endpoints} up and reachable?",
            exit_code=EXIT_DEADLINE,
        )

    @property
    def _election_seconds(self) -> float:
        """How long nobody may coordinate, with etcd."""
        return self.job.elastic.timeout_seconds + 2 * TTL_SECONDS

    def _limit(self, now: Now, seconds: float) -> SetTimer:
        self._limit_seconds = seconds
        return SetTimer(now.at + seconds)

    def _end(self, error: PaddockError) -> GiveUp:
        self.role = "ended"
        return GiveUp(error)
