"""Leader election without etcd: the nodes vote, and two leaders of one job find each other.

MajorityElector  an Elector (leadership.py): of jobs whose nodes vote
LeaderConflicts  a node that took over looks for other leaders of the job, and resolves that
Redirector       at the rendezvous address, while another node leads: sends newcomers there
"""

from __future__ import annotations

from paddock.agent.leadership.succession import MajoritySuccession
from paddock.agent.transport.client import ClientEvents
from paddock.agent.transport.server import CoordinatorServer
from paddock.core.rendezvous.messages import Envelope, HandOver, Join, LeaderConflict, sent_on
from paddock.errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from paddock.agent.coordinator import MemberLink
    from paddock.agent.leadership.leadership import Leadership
    from paddock.agent.leadership.messages import Lead, Target
    from paddock.agent.transport.client import CoordinatorClient
    from paddock.agent.transport.sockets import Listener
    from paddock.core.rendezvous.messages import Ending, Start

CLAIM_SECONDS = 1.0  # between two rounds, and for one answer
REFUSED_SECONDS = 0.02  # before the next is asked, where a connection is refused


class MajorityElector:
    """The Elector of a job without etcd. Owned by the loop's thread.

    own_rendezvous_address: the rendezvous address, where it is this host's; first: or else.
    resolve_again: looks its name up once more, where it is a name.
    """

    def __init__(self, leadership: Leadership) -> None:
        job = leadership.run.job
        self.leadership = leadership
        self.succession = MajoritySuccession(job)
        self.keeps_port = job.may_begin_again
        self.own_rendezvous_address: Target | None = None
        self.first: Target | None = None
        self.resolve_again: Callable[[], None] | None = None
        self._is_elastic = job.is_elastic
        self._claims: LeaderConflicts | None = None  # while we look for other coordinators
        self._redirector: Redirector | None = None  # while we follow, and have the first address

    def find_rendezvous_address(self) -> None:
        """Resolve the rendezvous address again: a name may have another address now."""
        if self.resolve_again is not None:
            self.resolve_again()

    def bind(self, order: Lead) -> Listener | None:
        """Bind the rendezvous address: other nodes ask there first. None: bind any port."""
        where, leadership = self.own_rendezvous_address or self.first, self.leadership
        if order.handoff is None or where is None:
            return None
        listener = leadership.net.bind(*where)
        if listener is not None and leadership.listener is not None:
            leadership.listener.close()
        return listener

    def on_leading(self, order: Lead) -> None:
        """Look for other leaders of the job, where this node took over."""
        leadership = self.leadership
        if order.handoff is not None:
            self._claims = LeaderConflicts(self)
        elif self.own_rendezvous_address is None:
            self.own_rendezvous_address = (leadership.address, leadership.port)

    def on_leading_over(self) -> None:
        if self._claims is not None:
            self._claims.close()
            self._claims = None

    def on_joining(self, seen_as: str, address: str) -> None:
        """Bind a port where this node could lead, at the address at which the leader sees it.

        None behind a translation of addresses, nor with a certificate that only checks theirs.
        """
        leadership, rendezvous = self.leadership, self.leadership.run.job.rendezvous
        leadership.address = address
        is_seen = rendezvous.own_host in ("", seen_as)
        has_certificate = bool(rendezvous.tls_cert) or not rendezvous.tls_ca
        if leadership.listener is None and self._is_elastic and is_seen and has_certificate:
            try:
                leadership.listener = leadership.net.bind(seen_as, 0)
            except UsageError:
                return  # no descriptor is left, say: others can coordinate
            leadership.port = leadership.listener.port if leadership.listener is not None else 0

    def on_following(self, uid: str, target: Target) -> None:
        """Open the redirector at the rendezvous address, if it is ours. Raises PaddockError."""
        post = (
            self.leadership.net.bind(*self.own_rendezvous_address)
            if self.own_rendezvous_address is not None
            else None
        )
        if post is not None:
            self._redirector = Redirector(self.leadership, post, uid, target)

    def on_following_over(self) -> None:
        if self._redirector is not None:
            self._redirector.close()
            self._redirector = None

    def may_start(self, _start: Start, go: Callable[[], None]) -> None:
        """Consent to an attempt: after a standstill, once messages of members have been read."""
        loop, session = self.leadership.run.loop, self.leadership.session
        steady_at = session.server.steady_at if session is not None and self._is_elastic else 0.0
        if steady_at > loop.now():
            loop.at("steady", steady_at, go)
        else:
            go()

    def learn_uid(self, uid: str) -> None:
        """Without etcd, a node has the uid from its leader: nothing to do."""

    def leader_died(self, nonce: str) -> None:
        """Without etcd, no record of the leader is kept: nothing to revoke."""


class LeaderConflicts(ClientEvents):
    """A leader that took over asks in turn whether another one leads the job, and resolves it.

    It asks at the rendezvous address, at the address of the leader that was lost and, until it has
    started an attempt, at those of the other nodes. The leader that is asked decides which of the
    two steps down (core/rendezvous/leader_conflict.py). So a leader that lived on behind a network
    partition steps down when that heals, and a launcher started anew at the rendezvous address
    joins the job.
    """

    def __init__(self, elector: MajorityElector) -> None:
        self._elector = elector
        self._leadership = leadership = elector.leadership
        assert leadership.session is not None
        self._coordinator = leadership.session.coordinator
        self._state = self._coordinator.machine.state
        self._foreign_at = (
            leadership.run.loop.now() + 2 * leadership.run.job.rendezvous.lease_seconds
        )
        self._timer = f"claims {id(self)}"
        self._targets: list[tuple[str, int]] = []
        self._client: CoordinatorClient | None = None
        self._sent: LeaderConflict | None = None  # the latest
        self._next()

    def close(self) -> None:
        self._leadership.run.loop.at(self._timer, None, self._next)
        self._hang_up()

    def _hang_up(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None

    def _next(self) -> None:
        loop = self._leadership.run.loop
        self._hang_up()
        if not self._targets:
            self._targets = self._find_targets()
            loop.at(self._timer, loop.now() + CLAIM_SECONDS, self._next)
            return
        target = self._targets.pop(0)
        search = self._elector.succession.search
        seconds = search.turn_seconds if search is not None else CLAIM_SECONDS
        loop.at(self._timer, loop.now() + seconds, self._next)
        self._client = self._leadership.connect(target, CLAIM_SECONDS, self, is_search=False)

    def _find_targets(self) -> list[tuple[str, int]]:
        elector, search = self._elector, self._elector.succession.search
        elector.find_rendezvous_address()
        known = (elector.own_rendezvous_address, elector.first, search.lost if search else None)
        found = [where for where in known if where is not None and where[0]]
        if search is not None and not self._state.begun:
            found += search.others
        own = (self._leadership.address, self._leadership.port)
        return [where for where in dict.fromkeys(found) if where != own]

    def refused(self) -> None:
        """No process listens at the node that was asked: ask the next."""
        loop = self._leadership.run.loop
        loop.at(self._timer, loop.now() + REFUSED_SECONDS, self._next)

    def joined(self, _seen_as: str, uid: str) -> None:
        """Another leader answers there: send it our LeaderConflict, or step down for it."""
        leadership, last, client = self._leadership, self._state.quorum.last, self._client
        if client is None or last is None:
            return
        if uid != self._state.uid and not self._state.begun:
            if leadership.run.loop.now() >= self._foreign_at:
                self._coordinator.give_way(sent_on(client.target))
            return
        self._sent = self._claim()
        client.send(Envelope(uid, -1, self._sent))

    def _claim(self) -> LeaderConflict:
        leadership = self._leadership
        key = leadership.run.member.key
        return self._state.conflict_at(key, leadership.address, leadership.port)

    def on_envelope(self, envelope: Envelope) -> None:
        """Step down as ordered, if our state is still the one that was sent."""
        last = self._state.quorum.last
        order = envelope.message
        if not isinstance(order, HandOver) or last is None or self._claim() != self._sent:
            return
        if (order.address, order.listen_port) != (self._leadership.address, self._leadership.port):
            self._coordinator.give_way(order)  # else a redirector that sends nodes to us


class Redirector:
    """Answers at the rendezvous address with the leader's address, while another node leads.

    It is open as long as this node follows that leader. So --master stays the same for a node that
    joins later, whichever node leads by then.
    """

    def __init__(
        self, leadership: Leadership, listener: Listener, uid: str, target: Target
    ) -> None:
        self.uid = uid
        self._order = sent_on(target)
        self._links: dict[int, MemberLink] = {}
        self._count = 0
        self._server = CoordinatorServer(
            leadership.run.job, leadership.run.loop, self, listener, key=leadership.key
        )

    def close(self) -> None:
        self._server.abandon()

    def attach(self, link: MemberLink) -> int:
        self._count += 1
        self._links[self._count] = link
        return self._count

    def receive(self, member: int, envelope: Envelope) -> None:
        """Redirect a node that joins, or a leader in conflict, with a HandOver."""
        link = self._links.get(member)
        if link is not None and isinstance(envelope.message, (Join, LeaderConflict)):
            link.send(Envelope(self.uid, envelope.attempt, self._order))

    def lose(self, member: int, _ending: Ending, _detail: str = "") -> None:
        self._links.pop(member, None)

    def tell_turned_away(self, _who: str, _why: str) -> None:
        """A redirector reports no nodes that were turned away: the coordinator does."""
