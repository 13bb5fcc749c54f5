"""The coordinator: owns the Membership machine and carries out what it decides, over links.

It knows no sockets: a link may be the node it lives on or a connection (server.py).
"""

from __future__ import annotations

from time import monotonic, monotonic_ns

from paddock.agent.messages import (
    AllStopped,
    Began,
    Begin,
    CannotRun,
    Facts,
    Halt,
    Leave,
    Over,
    ProcEnded,
    Said,
    Turned,
)
from paddock.core.membership import Membership
from paddock.core.membership_words import (
    ExitReported,
    Finish,
    Joined,
    LeaveAsked,
    Lost,
    Note,
    Refuse,
    Release,
    SetTimer,
    Start,
    Stop,
    Stopped,
    TimerFired,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from paddock.agent.messages import Link, ToCoordinator, ToMember
    from paddock.core.exits import Exit
    from paddock.core.job import Job
    from paddock.core.membership_words import Action, Event
    from paddock.core.policy import Verdict
    from paddock.local.loop import Loop

TURNED_AWAY_MAX = 64
TURNED_AWAY_LETTERS = 300
# A member that lost us gives its processes REJOIN_GRACE_SECONDS (network.py), then SIGKILL.
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
        ("roles", roles),
    )


def _serving(job: Job, role: str) -> str:
    return " (pserver)" if role == "ps" and job.servers.is_provided else ""


class Coordinator:
    """One per job. All methods are called on the loop's thread.

    may_start(attempt, go): asks for consent to start an attempt (etcd fencing); calls go() later
    or at once. on_end(verdict): the job has ended and every member was told.
    silent_grace_seconds: the grace of processes when a node fell silent and another coordinator
    may be elected soon; None means the job's own.
    """

    def __init__(
        self,
        job: Job,
        loop: Loop,
        uid: str,
        *,
        on_end: Callable[[Verdict], None],
        may_start: Callable[[int, Callable[[], None]], None] | None = None,
        first_attempt: int = 0,
        awaited: int = 0,
        silent_grace_seconds: float | None = None,
    ) -> None:
        self.uid = uid
        self.verdict: Verdict | None = None
        self.machine = Membership(job, monotonic(), first_attempt=first_attempt, awaited=awaited)
        self._shape = job_shape(job)
        self._loop = loop
        self._links: dict[int, Link] = {}
        self._digests: dict[int, int] = {}
        self._on_end = on_end
        self._silent_grace_seconds = silent_grace_seconds
        self._was_silent = False
        self._may_start = may_start
        self._last_note = ""
        self._turned_away: set[str] = set()
        self._events: list[Event] = []
        self._next_id = 0

    def attach(self, link: Link) -> int:
        """Register a link; its member joins with a Facts message."""
        self._next_id += 1
        self._links[self._next_id] = link
        return self._next_id

    @property
    def member_count(self) -> int:
        """Links that are open, joined or not."""
        return len(self._links)

    def receive(self, member: int, message: ToCoordinator, *, is_self: bool = False) -> None:
        """Take a message from a member's link."""
        if isinstance(message, Facts):
            self._admit(member, message, is_self)
        elif isinstance(message, ProcEnded):
            self._feed(ExitReported(member, message.exit))
        elif isinstance(message, AllStopped):
            self._feed(Stopped(member, message.attempt, message.host))
        elif isinstance(message, Leave):
            self._feed(LeaveAsked(member, message.signal, message.hurry))
        elif isinstance(message, Began):
            self._compare(member, message)
        elif isinstance(message, CannotRun):
            how = f"cannot take part: {message.message}"
            self._feed(Lost(member, monotonic_ns(), how, exit_code=message.exit_code))

    def lose(self, member: int, how: str) -> None:
        """A link is gone. A member that is still there ends its processes before its lease does,
        or, when it sees the connection go, within MEMBER_ENDS_SECONDS.
        """
        if self._links.pop(member, None) is not None:
            self._was_silent = how.startswith("is silent")
            gone_at = 0.0 if self._was_silent else monotonic() + MEMBER_ENDS_SECONDS
            self._feed(Lost(member, monotonic_ns(), how, gone_at))

    def tell_turned_away(self, who: str, why: str) -> None:
        """Tell the people, once per reason, that a node was not let in."""
        text = f"turned away {who}: {why}"
        text = "".join(c if c.isprintable() else "?" for c in text)[:TURNED_AWAY_LETTERS]
        if text not in self._turned_away and len(self._turned_away) < TURNED_AWAY_MAX:
            self._turned_away.add(text)
            self.say(text)

    def say(self, text: str, culprit: Exit | None = None) -> None:
        """Tell the people at every node."""
        for link in list(self._links.values()):
            link.send(Said(text, culprit))

    def _admit(self, member: int, facts: Facts, is_self: bool) -> None:
        if len(facts.shape) != len(self._shape):
            self._send(member, Turned("another version of Paddock runs here", "install one", 2))
            return
        for (name, wanted), (_, got) in zip(self._shape, facts.shape, strict=False):
            if wanted != got:
                self.tell_turned_away(facts.host.name, f"{name} is '{got}' there, not '{wanted}'")
                self._send(
                    member,
                    Turned(
                        f"{name} is '{got}' on {facts.host.name}, '{wanted}' on the coordinator",
                        "give the same command on every node",
                        2,
                    ),
                )
                return
        self._feed(Joined(member, facts.host, facts.key, facts.node_rank, is_self))

    def _compare(self, member: int, began: Began) -> None:
        """Every node must have made the same plan; a difference is our own fault."""
        if began.attempt != self.machine.attempt:
            return
        first = self._digests.setdefault(began.attempt, began.digest)
        if first != began.digest:
            self._feed(Lost(member, monotonic_ns(), "made a different plan (versions differ?)"))

    def _feed(self, event: Event) -> None:
        """One event at a time: what an action causes at once waits its turn."""
        self._events.append(event)
        if len(self._events) > 1:
            return
        while self._events:
            for action in self.machine.handle(self._events[0], monotonic()):
                self._do(action)
            self._events.pop(0)

    def _do(self, action: Action) -> None:
        if isinstance(action, Start):
            self._start(action)
        elif isinstance(action, Stop):
            for member in action.members:
                grace = self._silent_grace_seconds if self._was_silent else None
                self._send(member, Halt(action.attempt, action.reason, action.hurry, grace))
            self._was_silent = False
        elif isinstance(action, SetTimer):
            self._loop.at("membership", action.at, lambda: self._feed(TimerFired()))
        elif isinstance(action, Refuse):
            self._send(action.member, Turned(action.message, action.hint, action.exit_code))
            self.tell_turned_away("a node", action.message)
            self._drop(action.member)
        elif isinstance(action, Release):
            self._send(action.member, Over(action.verdict))
            self._drop(action.member)
        elif isinstance(action, Note):
            if action.text != self._last_note:
                self._last_note = action.text
                self.say(action.text, action.culprit)
        elif isinstance(action, Finish):
            self._finish(action.verdict)

    def _start(self, action: Start) -> None:
        def go() -> None:
            if self.machine.attempt != action.attempt or self.machine.phase != "running":
                return
            for node_rank, member in enumerate(action.members):
                self._send(member, Begin(action.attempt, self.uid, node_rank, action.hosts))

        self._digests.clear()
        if self._may_start is None:
            go()
        else:
            self._may_start(action.attempt, go)

    def _finish(self, verdict: Verdict) -> None:
        self.verdict = verdict
        for member in list(self._links):
            self._send(member, Over(verdict))
        self._on_end(verdict)

    def _send(self, member: int, message: ToMember) -> None:
        link = self._links.get(member)
        if link is not None:
            link.send(message)

    def _drop(self, member: int) -> None:
        link = self._links.pop(member, None)
        if link is not None:
            link.close()
