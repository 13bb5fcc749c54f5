"""One coordinator of this node, opened and closed as a unit: its machine, connections and timers.

What a closed one still has to say reaches nobody.
"""

from __future__ import annotations

from paddock.agent.coordinator import Coordinator, CoordinatorEvents, LocalLink
from paddock.agent.etcd_election.messages import SteppedDown
from paddock.agent.leadership.messages import CoordinatorEnded
from paddock.agent.transport.server import CoordinatorServer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Protocol

    from paddock.agent.leadership.messages import Event, Lead
    from paddock.agent.member import Member
    from paddock.agent.transport.sockets import Listener
    from paddock.core.job import Job
    from paddock.core.messages import End, Start
    from paddock.core.state import Phase
    from paddock.local.loop import Loop

    class OwnLauncher(Protocol):
        """What those that lead, and follow, need of the launcher on this node (launcher.py)."""

        job: Job
        env: Mapping[str, str]
        loop: Loop
        member: Member
        say_raw: Callable[..., None]

        @property
        def is_ended(self) -> bool: ...
        def on_news(self, coordinator: Coordinator) -> None: ...
        def on_session_over(self) -> None: ...
        def hold_end(self) -> None: ...
        def end_when_over(self) -> None: ...
        def at_end(self, close: Callable[[], None]) -> None: ...
        def new_uid(self) -> str: ...


class LeaderSession(CoordinatorEvents):
    """One coordinator of this node, from its opening to its close.

    may_start: asked for every attempt (Coordinator). handle: takes the events of its end. close:
    ends this node's leadership, which ends this. gives_port: nobody can join once ranks run, so
    that they have the port: they may meet there.
    """

    def __init__(
        self,
        run: OwnLauncher,
        order: Lead,
        listener: Listener,
        key: bytes,
        *,
        may_start: Callable[[Start, Callable[[], None]], None],
        handle: Callable[[Event], None],
        close: Callable[[], None],
        gives_port: bool,
    ) -> None:
        self._run = run
        self._listener = listener
        self._may_start = may_start
        self._handle = handle
        self._close = close
        self._gives_port = gives_port
        self.coordinator = Coordinator(
            run.job,
            run.loop,
            order.uid or run.new_uid(),
            events=self,
            handoff=order.handoff,
        )
        self.server = CoordinatorServer(run.job, run.loop, self.coordinator, listener, key=key)
        self._own = LocalLink(self.coordinator, run.member)

    def begin(self, address: str) -> None:
        """Our own node is the first member. Raises PaddockError."""
        self._own.connect(address, listen_port=self._listener.port)

    def may_start(self, start: Start, go: Callable[[], None]) -> None:
        """The elector decides."""
        self._may_start(start, go)

    def own_refused(self) -> None:
        """The coordinator cannot go on without its own node."""
        self._close()

    def on_news(self, coordinator: Coordinator) -> None:
        """The machine may have another state than before."""
        self._run.on_news(coordinator)

    def on_phase(self, phase: Phase) -> None:
        """The machine has moved on."""
        if phase == "running" and self._gives_port:
            self._listener.close()

    def ended(self, end: End) -> None:
        """The job has ended here, or another coordinates."""
        if end.outdated:
            self._handle(SteppedDown(end.outdated))
        else:
            self.server.end(self._done)

    def _done(self) -> None:
        """Everybody has heard it."""
        self._handle(CoordinatorEnded())
        self._run.end_when_over()

    def step_down(self) -> None:
        """At once, without a verdict."""
        self.coordinator.close()
        self.server.abandon()
        self._run.on_session_over()
