"""At the job's first address, while another node coordinates: sends whoever comes there on to it.

It is up as long as this node is with that coordinator. So --master stays the same for a node that
joins later, whoever coordinates by then.
"""

from __future__ import annotations

from paddock.agent.server import Server
from paddock.core.messages import Claim, Join, Letter, sent_on

TYPE_CHECKING = False
if TYPE_CHECKING:
    from paddock.agent.coordinator import Link
    from paddock.agent.place import Place
    from paddock.agent.sockets import Listener
    from paddock.core.messages import Ending


class Signpost:
    """What a server needs of a coordinator, and no more. Owned by the loop's thread."""

    def __init__(self, place: Place, listener: Listener, uid: str, target: tuple[str, int]) -> None:
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
