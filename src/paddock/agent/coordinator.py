"""The coordinator: owns the Membership machine and carries out what it decides, over links.

It knows no sockets: a link may be the node it lives on or a connection (server.py). Once closed it
sends and receives nothing more, whatever was still on its way.
"""

from __future__ import annotations

from paddock.core.job import LEASE_SECONDS
from paddock.core.rendezvous import messages
from paddock.core.rendezvous.membership import Membership
from paddock.jobfile.flags import config_fingerprint

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Protocol

    from paddock.agent.member import Member
    from paddock.core.job import Job
    from paddock.core.rendezvous.quorum import LeaderHandoff
    from paddock.core.rendezvous.state import Phase
    from paddock.local.loop import Loop

    class MemberLink(Protocol):
        """The coordinator's link to one member."""

        def send(self, envelope: messages.Envelope) -> None:
            """Send without blocking; a broken link reports itself to the coordinator."""

        def close(self) -> None:
            """Send no more; what was sent before still arrives."""

        @property
        def silent_seconds(self) -> float:
            """The time since the member was heard last."""


TURNED_AWAY_MAX = 64
TURNED_AWAY_LETTERS = 300
# A member that closed its connection has ended its processes, or its guardian does at once.
MEMBER_ENDS_SECONDS = 1.5


class CoordinatorEvents:
    """The events of a coordinator, for its owner; these methods do for a job of one node."""

    def may_start(self, start: messages.Start, go: Callable[[], None]) -> None:
        """An attempt is to start: call go(), now or later (etcd fencing)."""
        del start
        go()

    def on_phase(self, phase: Phase) -> None:
        """The phase has changed; the actions ordered with that are carried out after this."""

    def on_news(self, coordinator: Coordinator) -> None:
        """The state of the job may have changed."""

    def ended(self, end: messages.End) -> None:
        """The job has ended here, and every member was told."""

    def own_refused(self) -> None:
        """The coordinator's own node was not let in: the coordinator cannot go on without it."""


class LocalLink:
    """The link between a coordinator and the node it lives on: calls."""

    def __init__(self, coordinator: Coordinator, member: Member) -> None:
        self._coordinator = coordinator
        self._member = member
        self._id = coordinator.attach(self)

    def connect(self, address: str, listen_port: int = 0) -> None:
        self._member.connect(self._coordinator.uid, self._hear, address, listen_port=listen_port)

    def _hear(self, envelope: messages.Envelope) -> None:
        self._coordinator.receive(self._id, envelope, is_self=True)

    def send(self, envelope: messages.Envelope) -> None:
        self._member.receive(envelope)
        if isinstance(envelope.message, messages.Reject):
            self._coordinator.events.own_refused()

    def close(self) -> None:
        """Do nothing: there is no connection to close."""

    @property
    def silent_seconds(self) -> float:
        return 0.0


class Coordinator:
    """The leader of a job. All methods are called on the loop's thread."""

    def __init__(
        self,
        job: Job,
        loop: Loop,
        uid: str,
        *,
        events: CoordinatorEvents,
        handoff: LeaderHandoff | None = None,
    ) -> None:
        self.uid = uid
        self.events = events
        self.end: messages.End | None = None
        self.machine = Membership(
            job,
            loop.now(),
            uid=uid,
            fingerprint=config_fingerprint(job),
            handoff=handoff,
        )
        self._loop = loop
        self._lease_seconds = job.rendezvous.lease_seconds
        self._links: dict[int, MemberLink] = {}
        self._last_note = ""
        self._turned_away: set[str] = set()
        self._events: list[messages.Event] = []
        self._next_id = 0
        self._is_closed = False

    def attach(self, link: MemberLink) -> int:
        """Register a link; its member joins with a Join message."""
        self._next_id += 1
        self._links[self._next_id] = link
        return self._next_id

    def receive(self, member: int, envelope: messages.Envelope, *, is_self: bool = False) -> None:
        """Take an envelope from a member's link; drop those of another run or a later attempt."""
        machine = self.machine
        is_join = isinstance(envelope.message, messages.Join)
        if envelope.uid != self.uid or (envelope.attempt > machine.attempt and not is_join):
            return
        heard = messages.Received(member, envelope.message, is_self, envelope.attempt)  # type: ignore[arg-type]  # one to a member is ignored there
        self._feed(heard)

    def lose(self, member: int, ending: messages.Ending, detail: str = "") -> None:
        """A member's link is lost. One that closed its connection ends its processes within
        MEMBER_ENDS_SECONDS; where it broke, the member may learn of that only by its lease.
        """
        link = self._links.pop(member, None)
        if link is None:
            return
        now, at_ns = self._loop.now(), self._loop.now_ns()
        if ending == "silent":  # a long lease: the network went long before what it led to
            at_ns -= int(max(0.0, link.silent_seconds - LEASE_SECONDS) * 1e9)
        gone_at = {"silent": 0.0, "closed": now + MEMBER_ENDS_SECONDS}
        until = gone_at.get(ending, now + self._lease_seconds)
        self._feed(messages.Lost(member, at_ns, ending, detail, until))

    def give_way(self, order: messages.HandOver) -> None:
        """Step down: another node leads; send its HandOver to all members."""
        self._feed(messages.GiveWay(order))

    def tell_turned_away(self, who: str, why: str) -> None:
        """Notify the people, once per reason, that a node was turned away."""
        text = f"turned away {who}: {why}"
        text = "".join(c if c.isprintable() else "?" for c in text)[:TURNED_AWAY_LETTERS]
        if text not in self._turned_away and len(self._turned_away) < TURNED_AWAY_MAX:
            self._turned_away.add(text)
            self._send_all(messages.Notice(text))

    def close(self) -> None:
        """End this coordinator: its timer does not fire, it sends and receives nothing more."""
        self._is_closed = True
        self._loop.at("membership", None, self._tick)
        self._links.clear()
        self._events.clear()

    def _tick(self) -> None:
        silent = [(member, link.silent_seconds) for member, link in self._links.items()]
        self._feed(messages.TimerFired(tuple(silent)))

    def _feed(self, event: messages.Event) -> None:
        """Handle one event at a time: events that an action causes wait their turn."""
        if self._is_closed:
            return
        self._events.append(event)
        if len(self._events) > 1:
            return
        while self._events:
            before = self.machine.phase
            actions = self.machine.handle(self._events[0], self._loop.now())
            if self.machine.phase != before:
                self.events.on_phase(self.machine.phase)
            for action in actions:
                self._do(action)
            self._events[:1] = []
        self._tell_news()

    def _tell_news(self) -> None:
        if not self._is_closed:
            self.events.on_news(self)

    def _do(self, action: messages.Action) -> None:
        if isinstance(action, messages.Send):
            self._tell(action)
        elif isinstance(action, messages.SetTimer):
            self._loop.at("membership", action.at, self._tick)
        elif isinstance(action, messages.Close):
            link = self._links.pop(action.member, None)
            if link is not None:
                link.close()
        elif isinstance(action, messages.End):
            self._finish(action)

    def _tell(self, order: messages.Send) -> None:
        message = order.message
        if isinstance(message, messages.Start):
            self.events.may_start(message, lambda: self._start(order))
            return
        if isinstance(message, messages.Notice):
            if message.text == self._last_note:
                return
            self._last_note = message.text
        if isinstance(message, messages.Reject):
            self.tell_turned_away("a node", message.message)
        self._send(order.members, message)

    def _start(self, order: messages.Send) -> None:
        """Send Start once the elector has consented, unless the attempt has passed meanwhile."""
        machine = self.machine
        assert isinstance(order.message, messages.Start)
        if machine.attempt == order.message.attempt and machine.phase == "running":
            self._send(order.members, order.message)

    def _finish(self, end: messages.End) -> None:
        self.end = end
        if not end.handed_over:
            self._send_all(messages.JobEnded(end.verdict))
        self._tell_news()  # it may be closed in a moment
        self.events.ended(end)

    def _send_all(self, message: messages.ToMember) -> None:
        self._send(tuple(self._links), message)

    def _send(self, members: tuple[int, ...], message: messages.ToMember) -> None:
        envelope = messages.Envelope(self.uid, self.machine.attempt, message)
        for member in members:
            link = self._links.get(member)
            if link is not None:
                link.send(envelope)
