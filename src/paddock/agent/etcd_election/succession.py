"""Failover with etcd: a node waits for the election; a new leader takes over the handoff. Pure.

What survives a leader: the attempt's number, nodes and budget, from the record in etcd or from this
node's own last Start, whichever is later.
"""

from __future__ import annotations

from paddock.agent.etcd_election.messages import EtcdBack, EtcdDown, Reelected
from paddock.agent.leadership.messages import (
    CUT_OFF_LEASES,
    GUARDIAN_SECONDS,
    Connect,
    Disconnect,
    GiveUp,
    Lead,
    Move,
    PrintLine,
    Refused,
    RevokeLeader,
    StopRanks,
    takes_over,
)
from paddock.core.rendezvous.messages import Budget, SetTimer
from paddock.core.rendezvous.quorum import SHORT_GRACE_SECONDS, LeaderHandoff
from paddock.core.value import replace
from paddock.errors import EXIT_DEADLINE, PaddockError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from paddock.agent.etcd_election.messages import AttemptRecord, Elected, Following
    from paddock.agent.leadership.messages import Event, LinkLost, LocalState, Order, Target
    from paddock.core.job import Job
    from paddock.core.rendezvous.messages import HandOver

# The lease of a leader's key in etcd, in seconds.
TTL_SECONDS = 3


class EtcdSuccession:
    """A Succession (leadership_state.py): this node waits until etcd has elected a leader."""

    def __init__(self, job: Job) -> None:
        self.generation = 0  # of the latest election of this node
        self.leader = ""  # the nonce of the leader that this node follows, as its record has it
        self._rendezvous = job.rendezvous
        self._election_seconds = job.elastic.timeout_seconds + 2 * TTL_SECONDS
        self._limit_seconds = 0.0
        self._dead: str | None = None  # the nonce of the leader whose launcher has ended
        self._handed: LeaderHandoff | None = None  # of the leader that left

    def begin(self, now: LocalState) -> SetTimer:
        return self._limit(now, self._rendezvous.join_timeout_seconds)

    def on_elected(self, event: Elected, uid: str, now: LocalState) -> Move:
        """Lead; or end, where the run has ended meanwhile."""
        self.generation = event.generation
        record = event.previous
        is_ours = record is not None and bool(uid) and record.uid == uid
        if record is not None and is_ours and record.ended:
            error = PaddockError("the job ended while this node was cut off from it")
            return Move((GiveUp(error),))
        is_alone = record is None and now.start is not None  # etcd lost its record, but not we
        if is_ours or is_alone:
            handoff = self._inherit(record, now)
            return Move((takes_over(handoff),), Lead(handoff=handoff))
        if record is None or record.ended:
            return Move((), Lead())
        # Another run, that crashed; or that goes on, and we came too late to know it.
        gone_at = now.at + self._rendezvous.lease_seconds * CUT_OFF_LEASES
        before = LeaderHandoff(record.attempt + 1, record.members, gone_at=gone_at, is_new_run=True)
        return Move((), Lead(handoff=before))

    def _inherit(self, record: AttemptRecord | None, now: LocalState) -> LeaderHandoff:
        """The handoff of the attempt before: from etcd's record, or our own Start if later."""
        lease = self._rendezvous.lease_seconds
        gone_at = now.at + lease
        # Its death was seen, or it fell silent: it may be cut off, and run on for a while.
        is_dead = self._dead is not None
        lost_at = now.at + (GUARDIAN_SECONDS if is_dead else lease * CUT_OFF_LEASES)
        own = now.start
        handed, self._handed = self._handed, None
        if handed is not None and (record is None or handed.attempt > record.attempt):
            return handed
        if record is None or (own is not None and own.attempt >= record.attempt):
            assert own is not None
            found = LeaderHandoff(
                own.attempt + 1, own.keys, now.budget or Budget(), gone_at, own.coordinator_key
            )
        else:
            left = max(0.0, record.deadline - now.wall) if record.deadline else None
            budget = Budget(record.used_restarts, record.total_restarts, left)
            found = LeaderHandoff(record.attempt + 1, record.members, budget, gone_at, record.by)
        return replace(
            found, lost="" if found.lost == now.key else found.lost, lost_gone_at=lost_at
        )

    def on_following(self, event: Following) -> None:
        """Keep the leader's nonce, to revoke its key if it dies."""
        self.leader = event.record.nonce

    def on_stepped_down(self, now: LocalState) -> list[Order]:
        return [self._limit(now, self._election_seconds)]

    def on_leader_lost(self, event: LinkLost, text: str, target: Target, now: LocalState) -> Move:
        """Wait for an election; connect to the lost leader again: it may be back in a moment."""
        # Only a launcher, or its kernel when it died, closes a connection in order.
        self._dead = self.leader if event.ending == "closed" else None
        orders = (
            PrintLine("WARNING", f"{text}; a new one is being elected"),
            Disconnect(),
            # The others may take us for dead: then our processes must be gone before.
            StopRanks(
                event.why,
                force=event.is_silent,
                grace_seconds=min(SHORT_GRACE_SECONDS, event.left_seconds),
            ),
            self._limit(now, self._election_seconds),
        )
        return Move(orders, Connect(target))

    def on_hand_over(self, order: HandOver, now: LocalState, *, is_leading: bool) -> Move:
        """Keep the handoff, should etcd elect this node, and wait for the election."""
        if is_leading:  # a launcher without etcd has claimed this job
            target = (order.address, order.listen_port)
            return Move((StopRanks("another node coordinates", force=True),), Connect(target))
        self._handed = LeaderHandoff.of(order, now.at)
        text = "the coordinator leaves; another is being elected"
        return Move(
            (PrintLine("INFO", text), Disconnect(), self._limit(now, self._election_seconds))
        )

    def is_successor(self, _order: HandOver, _now: LocalState) -> bool:
        """Return False: etcd elects the successor."""
        return False

    def on_unreachable(self, error: PaddockError, uid: str, now: LocalState) -> Move:
        """Wait: the leader died before we reached it; another is elected before the deadline."""
        if error.exit_code != EXIT_DEADLINE:
            return Move((Disconnect(), GiveUp(error)))
        again = (self._limit(now, self._election_seconds),) if uid else ()
        return Move((Disconnect(), *again))

    def on_welcomed(self, _uid: str, _joined: str, _now: LocalState) -> None:
        """Forget the leader before: the elected one let this node in."""
        self._dead = self._handed = None

    def on_timer(self, _now: LocalState) -> Move:
        """Give up: no leader was elected in time."""
        error = PaddockError(
            f"no coordinator was elected within {self._limit_seconds:g} s",
            hint=f"is etcd at {','.join(self._rendezvous.etcd)} up and reachable?",
            exit_code=EXIT_DEADLINE,
        )
        return Move((GiveUp(error),))

    def on_other(self, event: Event) -> list[Order]:
        """Take etcd's outages, and a leader at whose address no process listens."""
        if isinstance(event, Refused):
            # A refusal alone is no proof: it may be on its way up, or behind a rule.
            return [RevokeLeader(self.leader)] if self._dead == self.leader != "" else []
        if isinstance(event, EtcdDown):
            text = (
                f"etcd does not answer for {event.seconds:.0f} s ({event.reason}); "
                "what runs goes on, no new attempt can start"
            )
            return [PrintLine("WARNING", text)]
        if isinstance(event, EtcdBack):
            return [PrintLine("INFO", "etcd answers again")]
        if isinstance(event, Reelected):
            self.generation = event.generation
        return []

    def _limit(self, now: LocalState, seconds: float) -> SetTimer:
        self._limit_seconds = seconds
        return SetTimer(now.at + seconds)
