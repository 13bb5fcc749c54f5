"""The coordinator: owns the Membership machine and carries out what it decides, over links.

It knows no sockets: a link may be the node it lives on or a connection (server.py). It has one
life: once closed it says and hears nothing more, whatever was still on its way.
"""

from __future__ import annotations

from paddock.core.membership import Membership
from paddock.core.messages import (
    Close,
    End,
    Heard,
    Join,
    Letter,
    Lost,
    Note,
    Over,
    Refuse,
    SetTimer,
    Start,
    Stop,
    Tell,
    TimerFired,
)
from paddock.core.value import replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Protocol

    from paddock.core.job import Job
    from paddock.core.membership import Inherited, Phase
    from paddock.core.messages import Action, Ending, Event, ToMember
    from paddock.local.loop import Loop

    class Link(Protocol):
        """The coordinator's way to one member."""

        def send(self, letter: Letter) -> None:
            """Send without blocking; a broken link reports itself to the coordinator."""

        def close(self) -> None:
            """Say no more; what was sent before still arrives."""


TURNED_AWAY_MAX = 64
TURNED_AWAY_LETTERS = 300
# A member that closed its connection has ended its processes, or its guardian does at once.
MEMBER_ENDS_SECONDS = 1.5


def job_shape(job: Job) -> tuple[tuple[str, str], ...]:
    """The fields that must be the same on every node, by the name of their flag."""
    roles = " ".join(
        f"{r.name}{_serving(job, r.name)}{r.stage or ''}="
        f"{','.join(r.endpoints) if r.endpoints else 'per-node'}"
        for r in job.roles
    )
    return (
        ("--nnodes", f"{job.nnodes_min}:{job.nnodes_max}"),
        ("--run_mode", job.mode),
        ("--framework", job.framework),
        ("--ips", ",".join(job.rendezvous.ips)),
        ("--max_restart", str(job.restart.max_restarts)),
        ("--elastic_level", str(job.elastic.level)),
        ("--with_gloo", job.with_gloo),
        ("roles", roles),
    )


def _serving(job: Job, role: str) -> str:
    return " (pserver)" if role == "ps" and job.servers.is_provided else ""


class Coordinator:
    """One per job. All methods are called on the loop's thread.

    may_start(start, go): asks for consent to start an attempt (etcd fencing); calls go() later
    or at once. on_end(end): the job has ended here and every member was told.
    silent_grace_seconds: the grace of processes when a node fell silent and another coordinator
    may be elected soon; None means the job's own. on_phase(phase): the machine has moved on; what
    it ordered meanwhile is carried out after that.
    """

    def __init__(
        self,
        job: Job,
        loop: Loop,
        uid: str,
        *,
        on_end: Callable[[End], None],
        may_start: Callable[[Start, Callable[[], None]], None] | None = None,
        inherited: Inherited | None = None,
        silent_grace_seconds: float | None = None,
        on_phase: Callable[[Phase], None] = lambda _phase: None,
    ) -> None:
        self.uid = uid
        self.end: End | None = None
        self.machine = Membership(
            job,
            loop.now(),
            shape=job_shape(job),
            inherited=inherited,
        )
        self._loop = loop
        self._lease_seconds = job.rendezvous.lease_seconds
        self._links: dict[int, Link] = {}
        self._on_end = on_end
        self._silent_grace_seconds = silent_grace_seconds
        self._was_silent = False
        self._may_start = may_start
        self._on_phase = on_phase
        self._last_note = ""
        self._turned_away: set[str] = set()
        self._events: list[Event] = []
        self._next_id = 0
        self._is_closed = False

    def attach(self, link: Link) -> int:
        """Register a link; its member joins with a Join message."""
        self._next_id += 1
        self._links[self._next_id] = link
        return self._next_id

    @property
    def member_count(self) -> int:
        """Links that are open, joined or not."""
        return len(self._links)

    def receive(self, member: int, letter: Letter, *, is_self: bool = False) -> None:
        """Take a letter from a member's link. The gate: news of another run is not ours."""
        machine = self.machine
        is_join = isinstance(letter.message, Join)
        if letter.uid != self.uid or (letter.attempt > machine.attempt and not is_join):
            return
        heard = Heard(member, letter.message, is_self, letter.attempt)  # type: ignore[arg-type]  # one to a member is ignored there
        self._feed(heard)

    def lose(self, member: int, ending: Ending, detail: str = "") -> None:
        """A link is gone. One that ended its connection ends its processes within
        MEMBER_ENDS_SECONDS; where a connection broke, the member may learn of it by its lease.
        """
        if self._links.pop(member, None) is None:
            return
        now = self._loop.now()
        self._was_silent = ending == "silent"
        gone_at = {"silent": 0.0, "closed": now + MEMBER_ENDS_SECONDS}
        until = gone_at.get(ending, now + self._lease_seconds)
        self._feed(Lost(member, self._loop.now_ns(), ending, detail, until))
        self._was_silent = False  # it is about the stop that this loss has caused, and no later one

    def tell_turned_away(self, who: str, why: str) -> None:
        """Tell the people, once per reason, that a node was not let in."""
        text = f"turned away {who}: {why}"
        text = "".join(c if c.isprintable() else "?" for c in text)[:TURNED_AWAY_LETTERS]
        if text not in self._turned_away and len(self._turned_away) < TURNED_AWAY_MAX:
            self._turned_away.add(text)
            self._send_all(Note(text))

    def close(self) -> None:
        """The end of this coordinator: no timer of it fires, no word of it is heard."""
        self._is_closed = True
        self._loop.at("membership", None, self._tick)
        self._links.clear()
        self._events.clear()

    def _tick(self) -> None:
        self._feed(TimerFired())

    def _feed(self, event: Event) -> None:
        """One event at a time: what an action causes at once waits its turn."""
        if self._is_closed:
            return
        self._events.append(event)
        if len(self._events) > 1:
            return
        while self._events:
            before = self.machine.phase
            actions = self.machine.handle(self._events[0], self._loop.now())
            if self.machine.phase != before:
                self._on_phase(self.machine.phase)
            for action in actions:
                self._do(action)
            self._events[:1] = []

    def _do(self, action: Action) -> None:
        if isinstance(action, Tell):
            self._tell(action)
        elif isinstance(action, SetTimer):
            self._loop.at("membership", action.at, self._tick)
        elif isinstance(action, Close):
            link = self._links.pop(action.member, None)
            if link is not None:
                link.close()
        elif isinstance(action, End):
            self._finish(action)

    def _tell(self, order: Tell) -> None:
        message = order.message
        if isinstance(message, Start) and self._may_start is not None:
            self._may_start(message, lambda: self._start(order))
            return
        if isinstance(message, Stop) and self._was_silent:
            message = replace(message, grace_seconds=self._silent_grace_seconds)
        if isinstance(message, Note):
            if message.text == self._last_note:
                return
            self._last_note = message.text
        if isinstance(message, Refuse):
            self.tell_turned_away("a node", message.message)
        self._send(order.members, message)

    def _start(self, order: Tell) -> None:
        """Consent has come, perhaps late."""
        machine = self.machine
        assert isinstance(order.message, Start)
        if machine.attempt == order.message.attempt and machine.phase == "running":
            self._send(order.members, order.message)

    def _finish(self, end: End) -> None:
        self.end = end
        if not end.handed_over:
            self._send_all(Over(end.verdict))
        self._on_end(end)

    def _send_all(self, message: ToMember) -> None:
        self._send(tuple(self._links), message)

    def _send(self, members: tuple[int, ...], message: ToMember) -> None:
        letter = Letter(self.uid, self.machine.attempt, message)
        for member in members:
            link = self._links.get(member)
            if link is not None:
                link.send(letter)
