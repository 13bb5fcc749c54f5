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
    seeking    TimerFired: it searches           following  Follow the next
    following  Welcomed                          following  Learn the run's uid
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

What survives the coordinator: the attempt's number, nodes and budget, from the election's record
or from this node's own last Start, whichever is later.
"""

from __future__ import annotations

from paddock.agent import election_words as e
from paddock.agent import life_errors as errors
from paddock.agent import life_words as w
from paddock.agent.search import TURN_SECONDS, Search
from paddock.core.endpoint import join_endpoint
from paddock.core.inherited import SHORT_GRACE_SECONDS, Inherited
from paddock.core.messages import Budget, HandOver
from paddock.core.value import replace
from paddock.errors import EXIT_DEADLINE, PaddockError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Literal

    from paddock.agent.search import Target
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
        self._next: w.Lead | w.Follow | None = None
        self._limit_seconds = 0.0
        self._is_dead = False  # the coordinator we followed last: its launcher has ended
        self._dead = ""  # its nonce
        self._handed: Inherited | None = None  # what the coordinator said when it left
        self.search: Search | None = None  # the latest, without etcd
        self._is_searching = False

    def handle(self, event: w.Event, now: w.Now) -> list[w.Order]:
        """Take one event; return what to do, in order."""
        if self.role == "ended":
            return []
        orders = self._take(event, now)
        if self._next is not None and not now.is_running and self.role == "seeking":
            orders.append(self._become(self._next))
        return orders

    def begin(self, now: w.Now) -> list[w.Order]:
        """Somebody has to be elected within --join-timeout."""
        return [self._limit(now, self.job.rendezvous.join_timeout_seconds)]

    def _become(self, what: w.Lead | w.Follow) -> w.Order:
        self._next = None
        if isinstance(what, w.Follow):
            self.role = "following"  # seeking -> following
            self._target = what.target
        else:
            self.role = "leading"  # seeking -> leading
            self.uid = what.uid
        return what

    def _take(self, event: w.Event, now: w.Now) -> list[w.Order]:
        if now.signal and self.role == "following" and self._is_farewell(event, now):
            return self._leave(event, now)
        if isinstance(event, e.Elected):
            return self._on_elected(event, now)
        if isinstance(event, e.Following):
            self.leader = event.record.nonce
            return self._leave_for(
                w.Follow((event.record.host, event.record.port)), now, "the coordinator changes"
            )
        if isinstance(event, e.Deposed):
            return self._on_deposed(event.reason, now)
        if isinstance(event, w.LinkLost) and self.role == "following":
            return self._on_link_lost(event, now)
        if isinstance(event, HandOver):
            return self._on_hand_over(event, now)
        if isinstance(event, w.Unreachable):
            return self._on_unreachable(event.error, now)
        if isinstance(event, w.Welcomed):
            return self._on_welcomed(event.uid, now)
        if isinstance(event, w.Refused):
            # A refusal alone is no proof: it may be on its way up, or behind a rule.
            is_dead = self._is_etcd and self._dead == self.leader != ""
            return [w.Unseat(self.leader)] if is_dead else []
        if isinstance(event, w.CoordinatorEnded):
            self.role = "ended" if self._next is None else "seeking"  # leading -> either
            return [w.SetTimer(None)] if self._next is None else [w.Abdicate()]
        if isinstance(event, w.TimerFired):
            if self._is_searching:
                return self._look_on(now)
            return [self._end(errors.nobody_elected(self._limit_seconds, self.job.rendezvous))]
        if isinstance(event, e.ElectionFailed):
            return [self._end(event.error)]
        return self._on_etcd(event)

    def _on_etcd(self, event: w.Event) -> list[w.Order]:
        if isinstance(event, e.EtcdDown):
            text = (
                f"etcd does not answer for {event.seconds:.0f} s ({event.reason}); "
                "what runs goes on, no new attempt can start"
            )
            return [w.Say("WARNING", text)]
        if isinstance(event, e.EtcdBack):
            return [w.Say("INFO", "etcd answers again")]
        self.generation = getattr(event, "generation", self.generation)  # Reelected
        return []

    # ---------------------------------------------------------------- elections

    def _on_elected(self, event: e.Elected, now: w.Now) -> list[w.Order]:
        self.generation = event.generation
        record = event.previous
        is_ours = record is not None and bool(self.uid) and record.uid == self.uid
        if record is not None and is_ours and record.ended:
            return [self._end(PaddockError("the job ended while this node was cut off from it"))]
        is_alone = record is None and now.start is not None  # etcd lost its record, but not we
        if not (is_ours or is_alone):
            lead = w.Lead()
            if record is not None and not record.ended:
                # Another run, that crashed; or that goes on, and we came too late to know it.
                gone_at = now.at + self.job.rendezvous.lease_seconds * CUT_OFF_LEASES
                lead = w.Lead(inherited=Inherited(
                    record.attempt + 1, record.members, gone_at=gone_at, is_new_run=True
                ))  # fmt: skip
            return self._leave_for(lead, now, "this node coordinates")
        inherited = self._inherit(record, now)
        return [
            _takes_over(inherited),
            *self._leave_for(w.Lead(self.uid, inherited), now, "this node coordinates"),
        ]

    def _inherit(self, record: e.AttemptRecord | None, now: w.Now) -> Inherited:
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

    def _on_deposed(self, reason: str, now: w.Now) -> list[w.Order]:
        self._next = None
        was_leading, self.role = self.role == "leading", "seeking"  # leading -> seeking
        if not was_leading:
            return []
        orders: list[w.Order] = [
            w.Say("WARNING", f"this node coordinates no longer: {reason}"),
            w.Abdicate(),
            w.Halt(reason, hurry=True),
        ]
        if self._is_etcd:
            return [*orders, self._limit(now, self._election_seconds)]
        self._begin_search(now, None, now.at + self._safe_seconds)
        return [*orders, w.SetTimer(now.at + self._safe_seconds)]

    def _leave_for(self, what: w.Lead | w.Follow, now: w.Now, reason: str) -> list[w.Order]:
        """following, seeking -> seeking, and on from there when nothing runs."""
        orders: list[w.Order] = [w.SetTimer(None)] if isinstance(what, w.Lead) else []
        if self.role == "following":
            orders.append(w.Unfollow(breaks=True))
        elif self.role == "leading":
            orders.append(w.Abdicate())
        self.role = "seeking"
        self._next = what
        if now.is_running:
            orders.append(w.Halt(reason))
        return orders

    # --------------------------------------------------------------------- loss

    def _on_link_lost(self, event: w.LinkLost, now: w.Now) -> list[w.Order]:
        """Our processes end; if another coordinator may come, or this one again, we look for it."""
        is_silent = event.ending == "silent" or event.left_seconds <= 0
        short = min(SHORT_GRACE_SECONDS, event.left_seconds)
        # Nobody but a launcher, or its kernel when it died, closes a connection in order.
        self._is_dead = event.ending == "closed"
        self._dead = self.leader if self._is_dead else ""
        job = self.job
        text = f"the coordinator at {self._where_it_was()} is lost: {event.why}"
        if self._is_etcd:
            self._next = w.Follow(self._target)
            self.role = "seeking"  # following -> seeking
            return [
                w.Say("WARNING", f"{text}; a new one is being elected"),
                w.Unfollow(),
                # The others may take us for dead: then our processes must be gone before.
                w.Halt(event.why, hurry=is_silent, grace_seconds=short),
                self._limit(now, self._election_seconds),
            ]
        if not job.is_elastic:
            # With restarts, a coordinator that lives on may replace this node soon.
            is_short = job.restart.max_restarts > 0
            grace = min(job.grace_seconds, short) if is_short else None
            halt = w.Halt(text, hurry=is_silent, grace_seconds=grace)
            return [w.Unfollow(), halt, self._end(errors.lost(text, is_silent=is_silent))]
        # What it may have started with others ends first; and it waits for us, if it is back.
        safe_at = now.at + (GUARDIAN_SECONDS if self._is_dead else self._safe_seconds)
        search = self._begin_search(now, self._target, safe_at)
        self.role = "seeking"  # following -> seeking
        grace = min(job.grace_seconds, short)
        return [
            w.Say("WARNING", f"{text}; looking for it, or the next, for {search.seconds:g} s"),
            w.Unfollow(),
            w.Halt(text, hurry=is_silent, grace_seconds=grace),
        ]

    def _where_it_was(self) -> str:
        """Its address, and its name where it was given one: pods, and their addresses, pass."""
        name = "" if self.job.is_elastic else self.job.rendezvous.host
        where = join_endpoint(*self._target)
        return where if name in ("", self._target[0]) else f"{where} ({name})"

    def _on_hand_over(self, order: HandOver, now: w.Now) -> list[w.Order]:
        """Planned: nothing runs, and who comes next is known, or elected in a moment."""
        gone_at = now.at + order.wait_seconds
        inherited = Inherited(
            order.attempt, order.keys, order.budget, lost="earlier", lost_gone_at=gone_at,
            voters=order.voters, gone=order.gone,
        )  # fmt: skip
        if self.role == "leading":
            return self._give_way(order, now)
        if self.role != "following":
            return []
        self.role = "seeking"  # following -> seeking
        if self._is_etcd:
            self._handed = inherited
            return [
                w.Say("INFO", "the coordinator leaves; another is being elected"),
                w.Unfollow(),
                self._limit(now, self._election_seconds),
            ]
        if order.keys[0] == now.key:
            self._next = w.Lead(self.uid, inherited)
            return [w.Unfollow(), w.Say("INFO", "the coordinator leaves; this node goes on for it")]
        where = self._go_to(order, now)
        halt = [w.Halt("the coordinator changes", hurry=True)] if now.is_running else []
        text = f"the job is coordinated at {where} from now on"
        return [w.Unfollow(), w.Say("INFO", text), *halt]

    def _give_way(self, order: HandOver, now: w.Now) -> list[w.Order]:
        """Our own coordinator tells everybody; when they have heard it, we follow, too."""
        where = self._go_to(order, now)
        halt = [w.Halt("another node coordinates", hurry=True)] if now.is_running else []
        return [w.Say("INFO", f"another node coordinates this job, at {where}"), *halt]

    def _go_to(self, order: HandOver, now: w.Now) -> str:
        target = (order.address, order.door)
        self._begin_search(now, target, now.at, order)
        self._next = w.Follow(target, 2 * TURN_SECONDS, is_search=True)  # it is on its way up
        return join_endpoint(*target)

    # ------------------------------------------------------------- the search

    def _begin_search(
        self, now: w.Now, lost: Target | None, safe_at: float, order: HandOver | None = None
    ) -> Search:
        self._is_searching = True
        self.search = Search(
            self.job, now, lost, safe_at, is_dead=self._is_dead, order=order, before=self.search
        )
        if lost is not None:
            self._next = w.Follow(lost, max(TURN_SECONDS, safe_at - now.at), is_search=True)
        return self.search

    def _look_on(self, now: w.Now) -> list[w.Order]:
        """following -> following | leading: the next place to ask."""
        search = self.search
        assert search is not None
        if now.at >= search.until:
            return [w.Unfollow(), self._end(errors.not_found(search))]
        self.role = "seeking"
        if now.at < search.next_at:
            return [w.Unfollow(), w.SetTimer(search.next_at)]
        where = search.step(now.first, now.at)
        if where is not None:
            self._next = w.Follow(where, search.turn_seconds, is_search=True)
            return [w.Unfollow()]
        inherited = search.takeover(now)
        self._next = w.Lead(self.uid, inherited)
        return [w.Unfollow(), _takes_over(inherited)]

    def _on_welcomed(self, uid: str, now: w.Now) -> list[w.Order]:
        search = self.search if self._is_searching and uid != self.uid else None
        if search is not None and not search.takes_another_run(now.at):
            return self._look_on(now)
        self.uid, self._is_dead, self._handed, self._is_searching = uid, False, None, False
        return [w.SetTimer(None), w.Learn(uid)]

    @property
    def _safe_seconds(self) -> float:
        """What a coordinator that lost us started with others has ended after this time."""
        return self.job.rendezvous.lease_seconds * CUT_OFF_LEASES + SHORT_GRACE_SECONDS

    # ------------------------------------------------------------- told to leave

    def _is_farewell(self, event: w.Event, now: w.Now) -> bool:
        """There is nobody to tell any more, and nobody waits for us; unless we are the next."""
        is_next = isinstance(event, HandOver) and not self._is_etcd and event.keys[0] == now.key
        return isinstance(event, (w.LinkLost, HandOver)) and not is_next

    def _leave(self, event: w.Event, now: w.Now) -> list[w.Order]:
        is_silent = isinstance(event, w.LinkLost) and event.ending == "silent"
        return [
            w.Unfollow(),
            w.Halt("told to stop", hurry=is_silent),
            self._end(errors.told_to_stop(now.signal)),
        ]

    def _on_unreachable(self, error: PaddockError, now: w.Now) -> list[w.Order]:
        if self._is_etcd and error.exit_code == EXIT_DEADLINE:
            # It died before we reached it; the election names another, or the deadline ends us.
            self.role = "seeking"  # following -> seeking
            again = [self._limit(now, self._election_seconds)] if self.uid else []
            return [w.Unfollow(), *again]
        if self.search is not None and self._is_searching:
            self.search.reason = error.message
            return self._look_on(now)
        return [w.Unfollow(), self._end(error)]

    @property
    def _election_seconds(self) -> float:
        """How long nobody may coordinate, with etcd."""
        return self.job.elastic.timeout_seconds + 2 * TTL_SECONDS

    def _limit(self, now: w.Now, seconds: float) -> w.SetTimer:
        self._limit_seconds = seconds
        return w.SetTimer(now.at + seconds)

    def _end(self, error: PaddockError) -> w.GiveUp:
        self.role = "ended"
        return w.GiveUp(error)


def _takes_over(inherited: Inherited) -> w.Say:
    nodes = len(inherited.keys)
    text = f"this node coordinates from now on; the attempt before ran on {nodes} nodes"
    return w.Say("WARNING", text)
