"""Failover without etcd: where a node that lost its leader looks for a new leader. Pure.

It asks the nodes of the last attempt in turn, by node rank, for a leader, first at the address of
the one it lost; when its own turn comes, it leads. The quorum decides whether that leader may start
an attempt (core/rendezvous/quorum.py), and two leaders resolve their conflict
(core/rendezvous/leader_conflict.py); so nothing here has to be exact.

    since the loss                         it asks
    -------------------------------------  ----------------------------------------------------
    what the lost one may have started     the lost one only: it may be back, and what others
    with others may still run              start has to wait until that one's ranks have ended
    after that                             all nodes; it leads when its own turn comes
    two leases later                       a coordinator of another run too: that of the first
                                           address, which was started anew
    patience_seconds and two leases        none any more
"""

from __future__ import annotations

from paddock.agent.leadership.messages import (
    CUT_OFF_LEASES,
    GUARDIAN_SECONDS,
    Connect,
    Disconnect,
    GiveUp,
    Lead,
    Move,
    PrintLine,
    StopRanks,
    takes_over,
)
from paddock.core.endpoint import join_endpoint
from paddock.core.rendezvous.leader_conflict import succession_rank
from paddock.core.rendezvous.messages import Budget, SetTimer
from paddock.core.rendezvous.quorum import SHORT_GRACE_SECONDS, LeaderHandoff
from paddock.errors import EXIT_DEADLINE, EXIT_OWN_FAULT, PaddockError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from paddock.agent.etcd_election.messages import Elected, Following
    from paddock.agent.leadership.messages import Event, LinkLost, LocalState, Order, Target
    from paddock.core.job import Job
    from paddock.core.rendezvous.messages import HandOver, Voters

TURN_SECONDS = 1.0  # at each node,
TURN_SECONDS_MIN = 0.2  # in a large job less, so that
ROUNDS = 3  # so many rounds fit into a search
PAUSE_SECONDS = 0.1  # between two that turn us away at once


class LeaderSearch:
    """The search for a leader, from the loss of one on.

    lost: its address, if it has one. is_dead: its launcher has ended. safe_at: the monotonic second
    when nothing of it runs any more. order: the HandOver to it. before: the last search.
    """

    def __init__(
        self,
        job: Job,
        now: LocalState,
        lost: Target | None,
        safe_at: float,
        *,
        is_dead: bool,
        order: HandOver | None,
        before: LeaderSearch | None,
    ) -> None:
        self._lease_seconds = job.rendezvous.lease_seconds
        # As long as a coordinator waits for us, from when it misses us: a lease after we do.
        self.seconds = job.elastic.patience_seconds + 2 * self._lease_seconds
        self.lost = lost
        self.next_at = safe_at  # when the next may be asked
        self.until = now.at + self.seconds
        # The attempts that count, the latest last: as was handed over, or as ran here.
        self.voters = now.start.voters if now.start is not None else ()
        self.gone: tuple[str, ...] = ()
        if self.voters and is_dead and order is None and now.is_start_fresh:
            self.gone = (self.voters[-1].coordinator_key,)
        if order is not None and order.voters:
            self.voters, self.gone = order.voters, order.gone
        if before is not None and before.voters == self.voters and now.at < before.until:
            self.until = before.until  # that search was in vain
        self.reason = ""  # why no leader was found at the last node
        self._is_foreign_fine = order is not None
        self._foreign_at = safe_at + 2 * self._lease_seconds
        self._turns = _turns(now.key, self.voters[-1]) if self.voters else []
        count = len(self._turns) + 2
        self.turn_seconds = max(TURN_SECONDS_MIN, min(TURN_SECONDS, self.seconds / ROUNDS / count))
        self._next = 0 if lost is None else 1  # that one is asked until it is safe

    def takes_another_run(self, now: float) -> bool:
        """Return True if this node may join another run than the one it lost."""
        return self._is_foreign_fine or not self._turns or now >= self._foreign_at

    def step(self, first: Target | None, now: float) -> Target | None:
        """The address to ask next; None: this node's own turn. first: the rendezvous address."""
        known: list[Target | None] = [where for where in (self.lost, first) if where is not None]
        turns = list(dict.fromkeys([*known, *self._turns]))
        self._next += 1
        self.next_at = now + PAUSE_SECONDS
        return turns[(self._next - 1) % len(turns)] if turns else ("", 0)

    def takeover(self, now: LocalState) -> LeaderHandoff:
        """The handoff of the last attempt to this node, when it takes over."""
        last = self.voters[-1]
        lost = "" if last.coordinator_key == now.key else last.coordinator_key
        return LeaderHandoff(
            last.attempt + 1, last.keys, now.budget or Budget(), now.at + self._lease_seconds,
            lost, now.at, voters=self.voters, gone=self.gone,
        )  # fmt: skip

    @property
    def others(self) -> list[Target]:
        """The addresses of the other nodes that can lead."""
        return [where for where in self._turns if where is not None]


def _turns(key: str, last: Voters) -> list[Target | None]:
    """The addresses of the nodes that can lead, in order of succession; None for our own turn."""
    order = sorted(range(len(last.keys)), key=lambda i: succession_rank(last.keys[i], last))
    return [
        None if last.keys[i] == key else (last.addresses[i], last.listen_ports[i])
        for i in order
        if last.listen_ports[i]
    ]


class MajoritySuccession:
    """A Succession: this node asks the others in turn, and leads when it is its turn."""

    def __init__(self, job: Job) -> None:
        self.search: LeaderSearch | None = None  # the latest
        self._job = job
        self._is_searching = False
        self._is_dead = False  # the launcher of the leader that was lost has ended
        # What a leader that lost us started with others has ended after this time.
        self._safe_seconds = job.rendezvous.lease_seconds * CUT_OFF_LEASES + SHORT_GRACE_SECONDS

    def on_elected(self, _event: Elected, _uid: str, _now: LocalState) -> Move:
        """Lead: --master is an address of this host."""
        return Move((), Lead())

    def on_following(self, _event: Following) -> None:
        """Do nothing: --master is another host's address."""

    def on_stepped_down(self, now: LocalState) -> list[Order]:
        """Wait first until ranks that other nodes started under this leader have ended."""
        self._begin(now, None, now.at + self._safe_seconds)
        return [SetTimer(now.at + self._safe_seconds)]

    def on_leader_lost(self, event: LinkLost, text: str, target: Target, now: LocalState) -> Move:
        """Search for the lost leader or the next; a job that is not elastic gives up."""
        job = self._job
        # Only a launcher, or its kernel when it died, closes a connection in order.
        self._is_dead = event.ending == "closed"
        grace = min(SHORT_GRACE_SECONDS, event.left_seconds, job.grace_seconds)
        if not job.is_elastic:
            # With restarts, a coordinator that lives on may replace this node soon.
            halt = StopRanks(text, event.is_silent, grace if job.may_begin_again else None)
            return Move((Disconnect(), halt, GiveUp(_lost(text, is_silent=event.is_silent))))
        # What it may have started with others ends first; and it waits for us, if it is back.
        safe_at = now.at + (GUARDIAN_SECONDS if self._is_dead else self._safe_seconds)
        search = self._begin(now, target, safe_at)
        orders = (
            PrintLine("WARNING", f"{text}; looking for it, or the next, for {search.seconds:g} s"),
            Disconnect(),
            StopRanks(text, event.is_silent, grace),
        )
        seconds = max(TURN_SECONDS, safe_at - now.at)
        return Move(orders, Connect(target, seconds, is_search=True))

    def on_hand_over(self, order: HandOver, now: LocalState, *, is_leading: bool) -> Move:
        """Lead, if the HandOver names this node, else follow the node that it names."""
        if not is_leading and self.is_successor(order, now):
            text = "the coordinator leaves; this node goes on for it"
            return Move(
                (Disconnect(), PrintLine("INFO", text)),
                Lead(handoff=LeaderHandoff.of(order, now.at)),
            )
        target = (order.address, order.listen_port)
        where = join_endpoint(*target)
        self._begin(now, target, now.at, order)
        reason, text = "the coordinator changes", f"the job is coordinated at {where} from now on"
        if is_leading:
            reason = "another node coordinates"
            text = f"another node coordinates this job, at {where}"
        orders: tuple[Order, ...] = () if is_leading else (Disconnect(),)
        orders += (PrintLine("INFO", text),)
        orders += (StopRanks(reason, force=True),) if now.is_running else ()
        # It is on its way up.
        return Move(orders, Connect(target, 2 * TURN_SECONDS, is_search=True))

    def is_successor(self, order: HandOver, now: LocalState) -> bool:
        """Return True if the HandOver names this node first."""
        return order.keys[0] == now.key

    def on_unreachable(self, error: PaddockError, _uid: str, now: LocalState) -> Move:
        """Ask the next node, where there is one."""
        if self.search is None or not self._is_searching:
            return Move((Disconnect(), GiveUp(error)))
        self.search.reason = error.message
        return self.on_timer(now)

    def on_welcomed(self, uid: str, joined: str, now: LocalState) -> Move | None:
        """Leave a leader of another run again, until the lost run can be given up."""
        search = self.search if self._is_searching and joined != uid else None
        if search is not None and not search.takes_another_run(now.at):
            return self.on_timer(now)
        self._is_dead = self._is_searching = False
        return None

    def on_timer(self, now: LocalState) -> Move:
        """Ask the next node, or lead when it is our turn (following -> following | leading)."""
        search = self.search
        assert search is not None
        if now.at >= search.until:
            return Move((Disconnect(), GiveUp(_not_found(search))))
        if now.at < search.next_at:
            return Move((Disconnect(), SetTimer(search.next_at)))
        where = search.step(now.first, now.at)
        if where is not None:
            return Move((Disconnect(),), Connect(where, search.turn_seconds, is_search=True))
        handoff = search.takeover(now)
        return Move((Disconnect(), takes_over(handoff)), Lead(handoff=handoff))

    def on_other(self, _event: Event) -> list[Order]:
        """Do nothing: a node that refuses connections is asked again when its turn comes."""
        return []

    def _begin(
        self, now: LocalState, lost: Target | None, safe_at: float, order: HandOver | None = None
    ) -> LeaderSearch:
        self._is_searching = True
        self.search = LeaderSearch(
            self._job, now, lost, safe_at, is_dead=self._is_dead, order=order, before=self.search
        )
        return self.search


def _lost(text: str, *, is_silent: bool) -> PaddockError:
    """The error of a job whose leader is lost, and no other can take over."""
    hint = (
        "the network between the nodes, or one of the two hosts, stood still"
        if is_silent
        else "look there: its launcher or its host ended"
    )
    return PaddockError(text, hint=hint, exit_code=EXIT_OWN_FAULT, retryable=True)


def _not_found(search: LeaderSearch) -> PaddockError:
    """The error of a search: neither the lost leader nor another answers."""
    return PaddockError(
        f"no coordinator was found for {search.seconds:g} s (--elastic-timeout): {search.reason}",
        hint="a majority of the last attempt's nodes has to be there to go on without it",
        exit_code=EXIT_DEADLINE,
    )
