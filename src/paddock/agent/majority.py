"""Without etcd: what a node does, beside leading or following, so that the job has one leader.

MajorityElector  an Elector (place.py): what is particular to jobs whose nodes vote
Claims           a node that took over looks for other leaders of the job, and settles it
Signpost         at the job's first address, while another node leads: sends newcomers there
"""

from __future__ import annotations

from paddock.agent.client import Client, ClientEvents
from paddock.agent.search import MajoritySuccession
from paddock.agent.server import Server
from paddock.core.messages import Claim, HandOver, Join, Letter, sent_on
from paddock.core.rivals import describe_job
from paddock.errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from paddock.agent.coordinator import Link
    from paddock.agent.life_words import Lead, Target
    from paddock.agent.place import Place
    from paddock.agent.sockets import Listener
    from paddock.core.messages import Ending, Start, Voters

CLAIM_SECONDS = 1.0  # between two rounds, and for one answer
REFUSED_SECONDS = 0.02  # after which the next is asked where nobody listens


class MajorityElector:
    """Owned by the loop's thread.

    home: the job's first address, where it is this host's; first: or else. find_first: asks for
    it again, a name may have another address now.
    """

    def __init__(self, place: Place) -> None:
        job = place.run.job
        self.place = place
        self.succession = MajoritySuccession(job)
        self.keeps_port = job.may_begin_again
        self.home: Target | None = None
        self.first: Target | None = None
        self.find_first: Callable[[], None] = lambda: None
        self._is_elastic = job.is_elastic
        self._claims: Claims | None = None  # while we look for other coordinators
        self._signpost: Signpost | None = None  # while we follow, and have the first address

    def bind(self, order: Lead) -> Listener | None:
        """The others look there first; several nodes may share a host, and its address."""
        where, place = self.home or self.first, self.place
        if order.inherited is None or where is None:
            return None
        door = place.net.bind(*where)
        if door is not None and place.door is not None:
            place.door.close()
        return door

    def on_leading(self, order: Lead) -> None:
        """Look for others that lead, where this node took over."""
        place = self.place
        if order.inherited is not None:
            self._claims = Claims(self)
        elif self.home is None:
            self.home = (place.address, place.port)

    def on_leading_over(self) -> None:
        """Claim the job no longer."""
        if self._claims is not None:
            self._claims.close()
            self._claims = None

    def on_joining(self, seen_as: str, address: str) -> None:
        """A leader can be reached: this node could be one where that sees it.

        Nowhere behind a translation of addresses, nor with a certificate that only checks theirs.
        """
        place, rendezvous = self.place, self.place.run.job.rendezvous
        place.address = address
        is_seen = rendezvous.own_host in ("", seen_as)
        has_certificate = bool(rendezvous.tls_cert) or not rendezvous.tls_ca
        if place.door is None and self._is_elastic and is_seen and has_certificate:
            try:
                place.door = place.net.bind(seen_as, 0)
            except UsageError:
                return  # no descriptor is left, say: others can coordinate
            place.port = place.door.port if place.door is not None else 0

    def on_following(self, uid: str, target: Target) -> None:
        """Put up the signpost. Raises PaddockError."""
        post = self.place.net.bind(*self.home) if self.home is not None else None
        if post is not None:
            self._signpost = Signpost(self.place, post, uid, target)

    def on_following_over(self) -> None:
        """Take it down."""
        if self._signpost is not None:
            self._signpost.close()
            self._signpost = None

    def may_start(self, _start: Start, go: Callable[[], None]) -> None:
        """When those that were let in during a standstill have been heard."""
        loop, reign = self.place.run.loop, self.place.reign
        steady_at = reign.server.steady_at if reign is not None and self._is_elastic else 0.0
        if steady_at > loop.now():
            loop.at("steady", steady_at, go)
        else:
            go()

    def learn_uid(self, uid: str) -> None:
        """Every node knows it by its leader."""

    def leader_died(self, nonce: str) -> None:
        """Nobody keeps a record of leaders."""


class Claims(ClientEvents):
    """One address after the other: the job's first, the one that was lost, and, as long as this
    coordinator has started nothing, the other seats. Which of two gives way is decided by the one
    that is asked (core/rivals.py). So a coordinator that lived on behind a cut steps down when that
    heals, and a launcher that was started anew at the first address joins the job that goes on.
    """

    def __init__(self, elector: MajorityElector) -> None:
        self._elector = elector
        self._place = place = elector.place
        assert place.reign is not None
        self._coordinator = place.reign.coordinator
        self._state = self._coordinator.machine.state
        self._foreign_at = place.run.loop.now() + 2 * place.run.job.rendezvous.lease_seconds
        self._timer = f"claims {id(self)}"
        self._targets: list[tuple[str, int]] = []
        self._client: Client | None = None
        self._sent: Claim | None = None  # the latest
        self._next()

    def close(self) -> None:
        """Ask nobody any more."""
        self._place.run.loop.at(self._timer, None, self._next)
        self._hang_up()

    def _hang_up(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None

    def _next(self) -> None:
        loop = self._place.run.loop
        self._hang_up()
        if not self._targets:
            self._targets = self._find_targets()
            loop.at(self._timer, loop.now() + CLAIM_SECONDS, self._next)
            return
        target = self._targets.pop(0)
        search = self._elector.succession.search
        seconds = search.turn_seconds if search is not None else CLAIM_SECONDS
        loop.at(self._timer, loop.now() + seconds, self._next)
        self._client = Client(
            loop,
            self._place.net,
            self._place.run.job.job_id,
            target,
            key=self._place.key,
            join_timeout_seconds=CLAIM_SECONDS,
            events=self,
            source=self._place.source,
        )

    def _find_targets(self) -> list[tuple[str, int]]:
        elector, search = self._elector, self._elector.succession.search
        elector.find_first()
        known = (elector.home, elector.first, search.lost if search else None)
        found = [where for where in known if where is not None and where[0]]
        if search is not None and not self._state.begun:
            found += search.others
        own = (self._place.address, self._place.port)
        return [where for where in dict.fromkeys(found) if where != own]

    def refused(self) -> None:
        """Nobody listens at the one that was asked: ask the next."""
        loop = self._place.run.loop
        loop.at(self._timer, loop.now() + REFUSED_SECONDS, self._next)

    def joined(self, _seen_as: str, uid: str) -> None:
        """Somebody coordinates there: claim that we do."""
        place, last, client = self._place, self._state.quorum.last, self._client
        if client is None or last is None:
            return
        if uid != self._state.uid and not self._state.begun:
            if place.run.loop.now() >= self._foreign_at:
                self._coordinator.give_way(sent_on(client.target))
            return
        self._sent = self._claim(last)
        client.send(Letter(uid, -1, self._sent))

    def _claim(self, last: Voters) -> Claim:
        place, state = self._place, self._state
        return Claim(
            state.uid, last.attempt, state.begun > 0, state.quorum.is_settled,
            place.run.member.key, place.address, place.port,
            describe_job(place.run.job, state.roster.shape),
        )  # fmt: skip

    def on_letter(self, letter: Letter) -> None:
        """We are to give way, if we are still what we said."""
        last = self._state.quorum.last
        order = letter.message
        if not isinstance(order, HandOver) or last is None or self._claim(last) != self._sent:
            return
        if (order.address, order.door) != (self._place.address, self._place.port):
            self._coordinator.give_way(order)  # else a signpost that sends everybody to us


class Signpost:
    """What a server needs of a coordinator, and no more.

    It is up as long as this node is with that coordinator. So --master stays the same for a node
    that joins later, whoever coordinates by then.
    """

    def __init__(self, place: Place, listener: Listener, uid: str, target: Target) -> None:
        self.uid = uid
        self._order = sent_on(target)
        self._links: dict[int, Link] = {}
        self._count = 0
        self._server = Server(place.run.job, place.run.loop, self, listener, key=place.key)

    def close(self) -> None:
        """Take it down."""
        self._server.abandon()

    def attach(self, link: Link) -> int:
        """Somebody has come."""
        self._count += 1
        self._links[self._count] = link
        return self._count

    def receive(self, member: int, letter: Letter) -> None:
        """Send it on."""
        link = self._links.get(member)
        if link is not None and isinstance(letter.message, (Join, Claim)):
            link.send(Letter(self.uid, letter.attempt, self._order))

    def lose(self, member: int, _ending: Ending, _detail: str = "") -> None:
        """It has gone there."""
        self._links.pop(member, None)

    def tell_turned_away(self, _who: str, _why: str) -> None:
        """Strangers are the coordinator's to tell of."""
