"""A leader session: this node's coordinator, its listener, connections and timers, as a unit.

Once closed, it sends nothing more.
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
    from paddock.core.rendezvous.messages import End, Start
    from paddock.core.rendezvous.state import Phase
    from paddock.local.loop import Loop

    class OwnLauncher(Protocol):
        """The parts of this node's launcher that leaders and followers need (launcher.py)."""

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
    """The session of this node as the leader, from its opening to its close (one term).

    may_start: asked for every attempt (Coordinator). handle: takes the events of its end. close:
    ends this node's leadership, which ends this. gives_port: no node can join once ranks
    run, so the listener closes and ranks may bind its port (MASTER_PORT).
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
        """Join our own node as the first member. Raises PaddockError."""
        self._own.connect(address, listen_port=self._listener.port)

    def may_start(self, start: Start, go: Callable[[], None]) -> None:
        """Ask the elector for consent to the attempt (fencing)."""
        self._may_start(start, go)

    def own_refused(self) -> None:
        """Close: the coordinator cannot go on without its own node."""
        self._close()

    def on_news(self, coordinator: Coordinator) -> None:
        """Pass on that the state of the job may have changed."""
        self._run.on_news(coordinator)

    def on_phase(self, phase: Phase) -> None:
        """Close the listener once ranks run, if they have its port."""
        if phase == "running" and self._gives_port:
            self._listener.close()

    def ended(self, end: End) -> None:
        """End the session: the job has ended here, or another node leads."""
        if end.outdated:
            self._handle(SteppedDown(end.outdated))
        else:
            self.server.end(self._done)

    def _done(self) -> None:
        """All members have received the verdict or the HandOver."""
        self._handle(CoordinatorEnded())
        self._run.end_when_over()

    def step_down(self) -> None:
        """Step down: close the coordinator and all connections at once, without a verdict."""
        self.coordinator.close()
        self.server.abandon()
        self._run.on_session_over()
