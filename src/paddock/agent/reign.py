"""One coordinator of this node, opened and closed as a unit: its machine, connections and timers.

What a closed one still has to say reaches nobody.
"""

from __future__ import annotations

from paddock.agent import election_words as e
from paddock.agent import life_words as w
from paddock.agent.coordinator import Coordinator, OwnLink
from paddock.agent.life import TTL_SECONDS
from paddock.agent.server import Server
from paddock.errors import PaddockError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Protocol

    from paddock.agent.place import Place
    from paddock.agent.sockets import Listener
    from paddock.core.membership import Phase
    from paddock.core.messages import End, Start

    class Elector(Protocol):
        """Whoever says who coordinates, and which attempts may start (election.py)."""

        def fence(self, record: e.AttemptRecord) -> None: ...
        def learn_uid(self, uid: str) -> None: ...
        def leader_lives(self, nonce: str, lives: bool) -> None: ...
        def leader_died(self, nonce: str) -> None: ...


class Reign:
    """One coordinator of this node, from its opening to its close."""

    def __init__(self, place: Place, order: w.Lead, listener: Listener) -> None:
        run = place.run
        self.is_over = False
        self._place = place
        self._listener = listener
        self._consent: dict[int, Callable[[], None]] = {}
        # A job that nobody can join any more gives its port to the ranks: they may meet there.
        self._gives_port = not (run.job.is_elastic or run.job.restart.max_restarts or place.elector)
        self.coordinator = Coordinator(
            run.job,
            run.loop,
            order.uid or run.new_uid(),
            on_end=self._on_end,
            may_start=self._may_start,
            inherited=order.inherited,
            on_phase=self._on_phase,
            on_news=run.on_news,
        )
        self.server = Server(run.job, run.loop, self.coordinator, listener, key=place.key)
        self._own = OwnLink(self.coordinator, run.member, on_refused=place.abdicate)

    def begin(self, address: str) -> None:
        """Our own node is the first member. Raises PaddockError."""
        self._own.connect(address, door=self._listener.port)

    def consent(self, attempt: int, reason: str) -> None:
        """etcd has decided. reason: "" when the attempt may start."""
        go = self._consent.pop(attempt, None)
        if go is None or self.is_over:
            return
        if not reason:
            go()
            return
        text = f"attempt {attempt} may not start: {reason}"
        self._place.run.member.say("WARNING", text)
        # Somebody else leads, and we hear so in a moment; or nobody does, and this goes nowhere.
        loop = self._place.run.loop
        loop.at("refused", loop.now() + 2 * TTL_SECONDS, lambda: self._give_up(text))

    def _give_up(self, text: str) -> None:
        if not self.is_over and self.coordinator.end is None:
            self._place.abdicate()
            self._place.give_up(PaddockError(text))

    def _on_phase(self, phase: Phase) -> None:
        if phase == "running" and self._gives_port:
            self._listener.close()

    def _may_start(self, start: Start, go: Callable[[], None]) -> None:
        elector, loop = self._place.elector, self._place.run.loop
        if elector is None:
            steady_at = self.server.steady_at if self._place.run.job.is_elastic else 0.0
            if steady_at > loop.now():
                loop.at("steady", steady_at, go)
            else:
                go()
            return
        self._consent = {start.attempt: go}
        budget = start.budget
        left = budget.seconds_left
        elector.fence(
            e.AttemptRecord(
                self._place.life.generation,
                start.attempt,
                self.coordinator.uid,
                start.keys,
                by=start.by,
                used_restarts=budget.used_restarts,
                total_restarts=budget.total_restarts,
                deadline=self._place.run.loop.wall() + left if left is not None else 0.0,
            )
        )

    def _on_end(self, end: End) -> None:
        if end.outdated:
            self._place.handle(e.Deposed(end.outdated))
        else:
            self.server.end(self._done)

    def _done(self) -> None:
        """Everybody has heard it."""
        self._place.handle(w.CoordinatorEnded())
        self._place.run.end_when_over()

    def abdicate(self) -> None:
        """At once, without a verdict."""
        self.is_over = True
        self._consent.clear()
        self.coordinator.close()
        self.server.abandon()
        self._place.run.on_reign_over()
