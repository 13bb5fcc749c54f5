"""A coordinator that took over looks for others of the same job, and settles with each who goes on.

One address after the other: the job's first, the one that was lost, and, as long as it has started
nothing, the other seats. Which of two gives way is decided by the one that is asked
(core/rivals.py). So a coordinator that lived on behind a cut steps down when that heals, and a
launcher that was started anew at the first address joins the job that goes on.
"""

from __future__ import annotations

from paddock.agent.client import Client
from paddock.core.messages import Claim, HandOver, Letter, sent_on
from paddock.core.rivals import describe_job

TYPE_CHECKING = False
if TYPE_CHECKING:
    from paddock.agent.place import Place
    from paddock.agent.reign import Reign
    from paddock.core.messages import Voters

CLAIM_SECONDS = 1.0  # between two rounds, and for one answer
REFUSED_SECONDS = 0.02  # after which the next is asked where nobody listens


class Claims:
    """Owned by the loop's thread, until close()."""

    def __init__(self, place: Place, reign: Reign) -> None:
        self._place = place
        self._coordinator = reign.coordinator
        self._state = reign.coordinator.machine.state
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
        search = self._place.life.search
        seconds = search.turn_seconds if search is not None else CLAIM_SECONDS
        loop.at(self._timer, loop.now() + seconds, self._next)
        self._client = Client(
            loop,
            self._place.net,
            self._place.run.job.job_id,
            target,
            key=self._place.key,
            join_timeout_seconds=CLAIM_SECONDS,
            on_joined=lambda _address, uid: self._on_joined(target, uid),
            on_letter=self._on_letter,
            on_lost=lambda _ending, _why, _left: None,
            on_failed=lambda _error: None,
            on_refused=lambda: loop.at(self._timer, loop.now() + REFUSED_SECONDS, self._next),
            on_waiting=lambda _why: None,
            source=self._place.source,
        )

    def _find_targets(self) -> list[tuple[str, int]]:
        place, search = self._place, self._place.life.search
        place.find_first()
        known = (place.home, place.first, search.lost if search else None)
        found = [where for where in known if where is not None and where[0]]
        if search is not None and not self._state.begun:
            found += search.others
        own = (place.address, place.port)
        return [where for where in dict.fromkeys(found) if where != own]

    def _on_joined(self, target: tuple[str, int], uid: str) -> None:
        place, last, client = self._place, self._state.quorum.last, self._client
        if client is None or last is None:
            return
        if uid != self._state.uid and not self._state.begun:
            if place.run.loop.now() >= self._foreign_at:
                self._coordinator.give_way(sent_on(target))
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

    def _on_letter(self, letter: Letter) -> None:
        """We are to give way, if we are still what we said."""
        last = self._state.quorum.last
        order = letter.message
        if not isinstance(order, HandOver) or last is None or self._claim(last) != self._sent:
            return
        if (order.address, order.door) != (self._place.address, self._place.port):
            self._coordinator.give_way(order)  # else a signpost that sends everybody to us
