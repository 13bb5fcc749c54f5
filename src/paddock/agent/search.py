"""Without etcd: where a node that lost its coordinator looks for the next one. Pure.

The nodes of the last attempt, by node rank, are the seats: at each in turn it asks for a
coordinator, first at the address of the one it lost, and at its own it becomes one. Whether that
one may start anything is the quorum's to say (core/quorum.py), and two of them settle it between
themselves (core/rivals.py); so nothing here has to be exact.

    since the loss                         it asks
    -------------------------------------  ----------------------------------------------------
    what the lost one may have started     the lost one only: it may be back, and what others
    with others may still run              start has to wait until that one's ranks have ended
    after that                             everybody; it takes its own turn when it comes
    two leases later                       a coordinator of another run too: that of the first
                                           address, which was started anew
    patience_seconds and two leases        nobody any more
"""

from __future__ import annotations

from paddock.core.inherited import Inherited
from paddock.core.messages import Budget
from paddock.core.rivals import seat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from paddock.agent.life_words import Now
    from paddock.core.job import Job
    from paddock.core.messages import HandOver, Voters

    Target = tuple[str, int]

TURN_SECONDS = 1.0  # at each seat,
TURN_SECONDS_MIN = 0.2  # in a large job less, so that
ROUNDS = 3  # so many rounds fit into a search
PAUSE_SECONDS = 0.1  # between two that turn us away at once


class Search:
    """One search, from the loss of a coordinator on.

    lost: its address, if it has one. is_dead: its launcher has ended. safe_at: when nothing of it
    runs any more. order: that sent us there. before: the search before this one.
    """

    def __init__(
        self,
        job: Job,
        now: Now,
        lost: Target | None,
        safe_at: float,
        *,
        is_dead: bool,
        order: HandOver | None,
        before: Search | None,
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
            self.gone = (self.voters[-1].by,)
        if order is not None and order.voters:
            self.voters, self.gone = order.voters, order.gone
        if before is not None and before.voters == self.voters and now.at < before.until:
            self.until = before.until  # nothing has come of that
        self.reason = ""  # why nobody was found at the last place
        self._is_foreign_fine = order is not None
        self._foreign_at = safe_at + 2 * self._lease_seconds
        self._seats = _seats(now.key, self.voters[-1]) if self.voters else []
        turns = len(self._seats) + 2
        self.turn_seconds = max(TURN_SECONDS_MIN, min(TURN_SECONDS, self.seconds / ROUNDS / turns))
        self._next = 0 if lost is None else 1  # that one is asked until it is safe

    def takes_another_run(self, now: float) -> bool:
        """Whether it may join a run that is not the one it lost."""
        return self._is_foreign_fine or not self._seats or now >= self._foreign_at

    def step(self, first: Target | None, now: float) -> Target | None:
        """Where to ask next; None: it is this node's own turn. first: the job's first address."""
        known: list[Target | None] = [where for where in (self.lost, first) if where is not None]
        turns = list(dict.fromkeys([*known, *self._seats]))
        self._next += 1
        self.next_at = now + PAUSE_SECONDS
        return turns[(self._next - 1) % len(turns)] if turns else ("", 0)

    def takeover(self, now: Now) -> Inherited:
        """It is our turn: what the last attempt leaves to this node."""
        last = self.voters[-1]
        lost = "" if last.by == now.key else last.by
        return Inherited(
            last.attempt + 1, last.keys, now.budget or Budget(), now.at + self._lease_seconds,
            lost, now.at, voters=self.voters, gone=self.gone,
        )  # fmt: skip

    @property
    def others(self) -> list[Target]:
        """The seats of the others."""
        return [where for where in self._seats if where is not None]


def _seats(key: str, last: Voters) -> list[Target | None]:
    """The addresses of those that can coordinate, in their order; None for our own turn."""
    order = sorted(range(len(last.keys)), key=lambda i: seat(last.keys[i], last))
    return [
        None if last.keys[i] == key else (last.addresses[i], last.doors[i])
        for i in order
        if last.doors[i]
    ]
