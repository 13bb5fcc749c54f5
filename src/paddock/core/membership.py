"""The whole job: who is in, which attempt runs, and how it ends. Judgement; no I/O, no clock.

Owned by the coordinator's one thread. Members are agents of nodes; each joins with its facts.

    phase      event                              next       actions
    ---------  ---------------------------------  ---------  --------------------------------------
    gathering  Joined, enough nodes               running    Start(attempt, hosts in rank order)
    gathering  Joined, not yet enough             gathering  SetTimer, Note who is awaited
    gathering  Joined: too many, rank taken, ...  gathering  Refuse
    gathering  timer: at least the minimum        running    Start
    gathering  timer: too few                     ended      Finish(fail 124, who is missing)
    running    ExitReported: failed               stopping   Stop on every node
    running    ExitReported: last worker of a ps  stopping   Stop on every node (success)
    running    Lost                               stopping   Stop on every node
    running    Joined, room for it (elastic)      stopping   Stop on every node (membership grows)
    running    LeaveAsked, others suffice         stopping   Stop on every node (membership shrinks)
    running    LeaveAsked, others do not          stopping   Stop on every node (cancel)
    running    all members stopped, all ok        ended      Finish(succeed)
    stopping   all members stopped                backoff    SetTimer (restart decided)
    stopping   all members stopped                gathering  (membership changed)
    stopping   all members stopped                ended      Finish(verdict)
    stopping   timer: a member will not answer    stopping   Expel it
    backoff    timer                              gathering  and from there to running at once
    any        news of another attempt            same       none
    ended      anything                           ended      none (Joined: Refuse)

The first verdict wins: what made the attempt stop is not changed by what comes after.
"""

from __future__ import annotations

from paddock.core.exits import Exit, find_culprit
from paddock.core.policy import Again, Verdict, decide_restart
from paddock.core.value import replace, value
from paddock.errors import EXIT_DEADLINE, EXIT_OWN_FAULT, EXIT_SIGNAL_BASE, EXIT_USAGE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Literal

    from paddock.core.hosts import Host
    from paddock.core.job import Job

    Phase = Literal["gathering", "running", "stopping", "backoff", "ended"]
    Why = Literal["", "failure", "success", "grow", "shrink", "cancel", "deadline"]

# A member gets this much longer than its own grace to say that its processes are gone.
STOP_MARGIN_SECONDS = 10.0


@value
class Joined:
    """A node's agent is in. key: stable name of the node, orders nodes that gave no rank.

    is_self: the coordinator's own node, which comes first unless ranks say otherwise.
    """

    member: int
    host: Host
    key: str
    node_rank: int | None = None
    is_self: bool = False


@value
class ExitReported:
    """A process of a member ended; times are on the coordinator's clock."""

    member: int
    exit: Exit


@value
class Stopped:
    """Every process of a member's attempt is gone. host: fresh facts (new ports)."""

    member: int
    attempt: int
    host: Host


@value
class Lost:
    """A member's connection is gone or its lease ended."""

    member: int
    at_ns: int
    how: str


@value
class LeaveAsked:
    """A node was told to end (signal to its launcher). hurry: a second time."""

    member: int
    signal: int
    hurry: bool = False


@value
class TimerFired:
    """The timer set by SetTimer is due."""


@value
class Start:
    """Every member of the attempt: make the plan from these hosts and start your part.

    members: in node-rank order.
    """

    attempt: int
    members: tuple[int, ...]
    hosts: tuple[Host, ...]


@value
class Stop:
    """These members: stop the attempt."""

    attempt: int
    members: tuple[int, ...]
    reason: str
    hurry: bool = False


@value
class Refuse:
    """Turn a joining member away."""

    member: int
    message: str
    hint: str = ""
    exit_code: int = EXIT_USAGE


@value
class Release:
    """A member that asked to leave may go; it exits with this verdict."""

    member: int
    verdict: Verdict


@value
class Finish:
    """The job has ended; tell every member."""

    verdict: Verdict


@value
class SetTimer:
    """Wake the machine at this monotonic second (None: never); replaces an earlier one."""

    at: float | None


@value
class Note:
    """One line for the people at every node."""

    text: str


if TYPE_CHECKING:
    Event = Joined | ExitReported | Stopped | Lost | LeaveAsked | TimerFired
    Action = Start | Stop | Refuse | Release | Finish | SetTimer | Note


class _Member:
    __slots__ = ("host", "is_self", "key", "leaving", "node_rank", "order", "place", "stopped")

    def __init__(self, event: Joined, order: int) -> None:
        self.host = event.host
        self.key = event.key
        self.node_rank = event.node_rank
        self.is_self = event.is_self
        self.order = order
        self.place: int | None = None  # node rank in the latest plan
        self.stopped = True
        self.leaving = 0  # the signal, when this node was told to end


class Membership:
    """The state of one job; owned by one thread. ``handle`` takes an event, returns actions."""

    def __init__(
        self, job: Job, now: float, *, first_attempt: int = 0, awaited: int = 0
    ) -> None:
        """first_attempt, awaited: set by a coordinator that takes over a job (see agent/etcd):
        the attempt to start with and the number of earlier members worth waiting for.
        """
        self.job = job
        self.phase: Phase = "gathering"
        self.attempt = first_attempt
        self.used_restarts = 0
        self.total_restarts = 0
        self.awaited = awaited
        self._members: dict[int, _Member] = {}
        self._active: tuple[int, ...] = ()
        self._exits: list[Exit] = []
        self._why: Why = ""
        self._reason = ""
        self._cancel_signal = 0
        self._started_at = now
        self._changed_at = now
        self._gather_since = now
        self._pending: Verdict | None = None
        self._joins = 0
        self._is_first_gathering = awaited == 0

    # ------------------------------------------------------------------ facts

    @property
    def member_ids(self) -> tuple[int, ...]:
        """Members that are in, in order of joining."""
        return tuple(self._members)

    @property
    def active_ids(self) -> tuple[int, ...]:
        """Members of the current attempt, in node-rank order."""
        return self._active

    @property
    def exits(self) -> tuple[Exit, ...]:
        """Exits of the current attempt."""
        return tuple(self._exits)

    # ----------------------------------------------------------------- events

    def handle(self, event: Event, now: float) -> list[Action]:
        """Take one event at monotonic second ``now``; return what to do, in order."""
        if isinstance(event, Joined):
            return self._on_joined(event, now)
        if self.phase == "ended":
            return []
        if isinstance(event, ExitReported):
            return self._on_exit(event, now)
        if isinstance(event, Stopped):
            return self._on_stopped(event, now)
        if isinstance(event, Lost):
            return self._on_lost(event, now)
        if isinstance(event, LeaveAsked):
            return self._on_leave(event, now)
        return self._on_timer(now)

    def _on_joined(self, event: Joined, now: float) -> list[Action]:
        refusal = self._refusal(event)
        if refusal is not None:
            return [refusal]
        self._members[event.member] = _Member(event, self._joins)
        self._joins += 1
        self._changed_at = now
        if self.phase == "gathering":
            return self._try_start(now)
        room = len(self._active) < self.job.nnodes_max
        if self.phase == "running" and room and self._can_grow():
            return self._stop("grow", f"node {event.host.name} joined", now)  # running -> stopping
        return [Note(f"node {event.host.name} is standing by")]

    def _refusal(self, event: Joined) -> Refuse | None:
        job = self.job
        others = self._members.values()
        if self.phase == "ended":
            return Refuse(event.member, "the job has ended", exit_code=EXIT_OWN_FAULT)
        if event.node_rank is not None and event.node_rank >= job.nnodes_max:
            return Refuse(
                event.member,
                f"--rank {event.node_rank} is too large for {job.nnodes_max} nodes",
                "ranks count from 0",
            )
        same = [m for m in others if m.node_rank == event.node_rank and m.node_rank is not None]
        if same and not job.is_elastic:
            return Refuse(
                event.member,
                f"--rank {event.node_rank} is taken by {same[0].host.name} "
                f"({same[0].host.address})",
                "give every node its own --rank, or none at all",
            )
        if any((m.node_rank is None) != (event.node_rank is None) for m in others):
            mine, theirs = ("a", "no") if event.node_rank is not None else ("no", "a")
            return Refuse(
                event.member,
                f"this node gives {mine} --rank, the others give {theirs} --rank",
                "give --rank on every node or on none",
            )
        ips = job.rendezvous.ips
        if ips and event.host.address not in ips:
            return Refuse(
                event.member,
                f"address {event.host.address} is not in --ips {','.join(ips)}",
                "use the same --ips on every node, and --host to say which one this is",
            )
        if len(self._members) >= job.nnodes_max and not job.is_elastic:
            return Refuse(
                event.member,
                f"the job already has its {job.nnodes_max} nodes: "
                + ", ".join(m.host.name for m in others),
                "is another job using this --master address? give it its own --job_id and port",
            )
        return None

    def _on_exit(self, event: ExitReported, now: float) -> list[Action]:
        if event.exit.attempt != self.attempt or event.member not in self._active:
            return []
        if self.phase not in ("running", "stopping"):
            return []
        self._exits.append(event.exit)
        if self.phase == "stopping":
            return []
        if event.exit.failed:
            text = f"{event.exit.name} on {event.exit.host} {event.exit.how}"
            return self._stop("failure", text, now)  # running -> stopping
        if self._has_servers() and self._workers_done():
            return self._stop("success", "all workers finished", now)  # running -> stopping
        return []

    def _on_stopped(self, event: Stopped, now: float) -> list[Action]:
        member = self._members.get(event.member)
        if member is None or event.attempt != self.attempt or event.member not in self._active:
            return []
        member.stopped = True
        member.host = event.host
        return self._if_all_stopped(now)

    def _on_lost(self, event: Lost, now: float) -> list[Action]:
        member = self._members.pop(event.member, None)
        if member is None:
            return []
        self._changed_at = now
        if event.member not in self._active or self.phase in ("gathering", "backoff"):
            if self.phase == "gathering":
                return [Note(f"node {member.host.name} {event.how}"), *self._try_start(now)]
            return [Note(f"node {member.host.name} {event.how}")]
        self._active = tuple(m for m in self._active if m != event.member)
        if member.leaving or (self.phase == "running" and member.stopped):
            # It had ended its part already; only the goodbye is missing.
            return self._if_all_stopped(now)
        self._exits.append(
            Exit(
                role="node",
                rank=-1,
                node_rank=member.place or 0,
                host=member.host.name,
                attempt=self.attempt,
                at_ns=event.at_ns,
                code=EXIT_OWN_FAULT,
                cause="node-lost",
                by_us=self.phase == "stopping",
                tail=event.how,
            )
        )
        if self.phase == "running":
            text = f"node {member.place} ({member.host.name}) {event.how}"
            return self._stop("failure", text, now)  # running -> stopping
        return self._if_all_stopped(now)

    def _on_leave(self, event: LeaveAsked, now: float) -> list[Action]:
        member = self._members.get(event.member)
        if member is None:
            return []
        if event.hurry:
            return [Stop(self.attempt, self._active, "asked twice", hurry=True)]
        member.leaving = event.signal
        stay = [m for m in self._members.values() if not m.leaving]
        shrinks = self.job.is_elastic and not member.is_self and len(stay) >= self.job.nnodes_min
        name = member.host.name
        if self.phase == "running":
            if shrinks:
                return self._stop("shrink", f"node {name} leaves", now)
            self._cancel_signal = event.signal
            return self._stop("cancel", f"node {name} was told to stop", now)
        if self.phase == "stopping":
            if not shrinks and self._why in ("grow", "shrink", "failure"):
                self._cancel_signal = self._cancel_signal or event.signal
            return []
        if shrinks:
            verdict = self._cancelled(event.signal, clean=True)
            del self._members[event.member]
            return [Release(event.member, verdict)]
        return self._finish(self._cancelled(event.signal, clean=True))  # gathering -> ended

    def _on_timer(self, now: float) -> list[Action]:
        if self.phase == "gathering":
            return self._try_start(now, at_deadline=True)
        if self.phase == "backoff":
            return self._gather(now, first=False)  # backoff -> gathering
        if self.phase == "running" and self._deadline() is not None:
            text = f"the job's time limit of {self.job.timeout_seconds:g} s is over (--timeout)"
            return self._stop("deadline", text, now)
        if self.phase == "stopping":
            late = [m for m in self._active if not self._members[m].stopped]
            actions: list[Action] = []
            for member in late:
                at_ns = max((e.at_ns for e in self._exits), default=0)
                how = "did not stop its processes in time"
                actions += self._on_lost(Lost(member, at_ns, how), now)
            return actions
        return []

    # ------------------------------------------------------------- gathering

    def _try_start(self, now: float, *, at_deadline: bool = False) -> list[Action]:
        job = self.job
        count = len(self._members)
        waited = now - self._gather_since
        if count >= job.nnodes_max:
            return self._start(now)
        settle_at = self._settle_at()
        if count >= job.nnodes_min and job.nnodes_min != job.nnodes_max and now >= settle_at:
            return self._start(now)
        limit = self._gather_limit()
        if waited >= limit or (at_deadline and now >= self._gather_since + limit):
            return self._finish(self._missing_verdict(limit))  # gathering -> ended
        deadline = self._gather_since + limit
        if count >= job.nnodes_min and job.nnodes_min != job.nnodes_max:
            deadline = min(deadline, settle_at)
        return [SetTimer(deadline), Note(self._waiting_text())]

    def _settle_at(self) -> float:
        """When an elastic job with its minimum may start without its maximum."""
        if self._is_first_gathering:
            return self._changed_at + self.job.elastic.timeout_seconds
        if len(self._members) >= self.awaited:
            return self._gather_since
        return self._gather_since + self.job.elastic.timeout_seconds

    def _gather_limit(self) -> float:
        if self._is_first_gathering:
            return self.job.rendezvous.join_timeout_seconds
        return self.job.elastic.timeout_seconds

    def _waiting_text(self) -> str:
        job = self.job
        wanted = (
            str(job.nnodes_max)
            if job.nnodes_min == job.nnodes_max
            else f"{job.nnodes_min}:{job.nnodes_max}"
        )
        names = ", ".join(m.host.name for m in self._members.values())
        text = f"waiting for nodes: {len(self._members)} of {wanted} joined ({names})"
        missing = self._missing()
        return f"{text}; missing {missing}" if missing else text

    def _missing(self) -> str:
        ips = self.job.rendezvous.ips
        members = self._members.values()
        if ips:
            have = [m.host.address for m in members]
            absent = [ip for ip in dict.fromkeys(ips) if have.count(ip) < ips.count(ip)]
            return ", ".join(absent)
        if any(m.node_rank is not None for m in members):
            taken = {m.node_rank for m in members}
            ranks = [str(r) for r in range(self.job.nnodes_max) if r not in taken]
            return ("rank " if len(ranks) == 1 else "ranks ") + ", ".join(ranks)
        return ""

    def _missing_verdict(self, limit: float) -> Verdict:
        flag = "--join-timeout" if self._is_first_gathering else "--elastic_timeout"
        text = f"{self._waiting_text()}; gave up after {limit:g} s ({flag})"
        return Verdict(
            "fail", EXIT_DEADLINE, text, attempt=self.attempt, restarts=self.total_restarts
        )

    def _start(self, now: float) -> list[Action]:
        chosen = self._ordered()[: self.job.nnodes_max]
        self._active = tuple(chosen)
        for place, member_id in enumerate(chosen):
            member = self._members[member_id]
            member.place = place
            member.stopped = False
        self.phase = "running"  # gathering -> running
        self._is_first_gathering = False
        self._started_at = now
        self._exits = []
        self._why = ""
        hosts = tuple(self._members[m].host for m in chosen)
        deadline = self._deadline()
        return [Start(self.attempt, self._active, hosts), SetTimer(deadline)]

    def _deadline(self) -> float | None:
        limit = self.job.timeout_seconds
        return self._started_at + limit if limit > 0 else None

    def _ordered(self) -> list[int]:
        """Member ids in node-rank order.

        --ips order; else --rank order; else those of the last plan as they were, then the
        coordinator's own node, then by address and key, so that equal hosts give equal ranks.
        """
        ips = self.job.rendezvous.ips

        def sort_key(item: tuple[int, _Member]) -> tuple[object, ...]:
            _, m = item
            if ips:
                return (ips.index(m.host.address), m.order)
            if m.node_rank is not None:
                return (m.node_rank, m.order)
            if self.job.rendezvous.sort_ip:
                return (address_key(m.host.address), m.key)
            if m.place is not None:
                return (0, m.place, (), "")
            return (1, 0 if m.is_self else 1, address_key(m.host.address), m.key)

        return [member for member, _ in sorted(self._members.items(), key=sort_key)]

    # -------------------------------------------------------------- stopping

    def _stop(self, why: Why, reason: str, now: float) -> list[Action]:
        self.phase = "stopping"  # running -> stopping
        self._why = why
        self._reason = reason
        limit = self.job.grace_seconds + STOP_MARGIN_SECONDS
        actions: list[Action] = [
            Stop(self.attempt, self._active, reason),
            SetTimer(now + limit),
        ]
        return actions + self._if_all_stopped(now)

    def _if_all_stopped(self, now: float) -> list[Action]:
        if not all(self._members[m].stopped for m in self._active):
            return []
        if self.phase == "running":
            if not self._active:
                return self._finish(self._failed(now, "no node is left"))
            return self._finish(self._succeeded())  # running -> ended
        if self.phase == "stopping":
            return self._judge(now)
        return []

    def _judge(self, now: float) -> list[Action]:
        """All processes of the attempt are gone: what now? The first reason wins."""
        if self._cancel_signal:
            clean = all(e.ok for e in self._exits if e.role != "ps") and self._why == "cancel"
            return self._finish(self._cancelled(self._cancel_signal, clean=clean))
        if self._why == "success":
            return self._finish(self._succeeded())
        if self._why == "deadline":
            verdict = Verdict("fail", EXIT_DEADLINE, self._reason)
            return self._finish(self._with_facts(verdict))
        released = self._release_leavers()
        if self._why in ("grow", "shrink"):
            return released + self._next_attempt(now)
        culprit = find_culprit(self._exits)
        if culprit is None:
            return self._finish(self._failed(now, self._reason))
        if self.job.elastic.level == 0 and culprit.cause != "node-lost":
            gone = self._expel_failed(culprit)
            if len(self._members) >= self.job.nnodes_min:
                return released + gone + self._next_attempt(now)
        if culprit.cause == "node-lost" and not self._can_replace():
            return released + self._finish(self._failed(now, "", culprit))
        ran = now - self._started_at
        again = decide_restart(
            self.job.restart, culprit, used=self.used_restarts, ran_seconds=ran
        )
        if not isinstance(again, Again):
            return released + self._finish(self._failed(now, again.reason, culprit))
        self.used_restarts = again.used
        self.total_restarts += 1
        note = Note(
            f"attempt {self.attempt + 1}: restarting ({culprit.name} on {culprit.host} "
            f"{culprit.how}; {again.reason}"
            + (f" in {again.delay_seconds:.1f} s)" if again.delay_seconds else ")")
        )
        if again.delay_seconds:
            self.phase = "backoff"  # stopping -> backoff
            return [*released, note, SetTimer(now + again.delay_seconds)]
        return [*released, note, *self._gather(now, first=True)]

    def _release_leavers(self) -> list[Action]:
        actions: list[Action] = []
        for member_id in [m for m, x in self._members.items() if x.leaving]:
            signal = self._members.pop(member_id).leaving
            clean = all(e.ok for e in self._exits)
            actions.append(Release(member_id, self._cancelled(signal, clean=clean)))
        return actions

    def _expel_failed(self, culprit: Exit) -> list[Action]:
        """Level 0: the node whose process failed leaves with the failure as its verdict."""
        actions: list[Action] = []
        for member_id, member in list(self._members.items()):
            if member.place == culprit.node_rank and not member.is_self:
                del self._members[member_id]
                verdict = Verdict("fail", culprit.exit_code, "", culprit=culprit)
                actions.append(Release(member_id, self._with_facts(verdict)))
        return actions

    def _next_attempt(self, now: float) -> list[Action]:
        note = Note(f"attempt {self.attempt + 1}: {self._reason}")
        return [note, *self._gather(now, first=True)]

    def _gather(self, now: float, *, first: bool) -> list[Action]:
        """stopping | backoff -> gathering, for the next attempt."""
        self.phase = "gathering"
        self.attempt += 1
        self._active = ()
        self._gather_since = now
        self._changed_at = now
        self.awaited = 0
        return self._try_start(now)

    def _can_grow(self) -> bool:
        return self.job.nnodes_min != self.job.nnodes_max

    def _can_replace(self) -> bool:
        """A lost node ends a job unless it may shrink, or may wait for a replacement."""
        return self.job.is_elastic or self.job.restart.max_restarts > 0

    def _has_servers(self) -> bool:
        return any(role.name == "ps" for role in self.job.roles)

    def _workers_done(self) -> bool:
        hosts = [self._members[m].host for m in self._active]
        workers = sum(c for h in hosts for role, _, c in h.slots if role in ("worker", "heter"))
        done = sum(1 for e in self._exits if e.role in ("worker", "heter") and e.ok)
        return done >= workers > 0

    # -------------------------------------------------------------- verdicts

    def _with_facts(self, verdict: Verdict) -> Verdict:
        return replace(
            verdict,
            attempt=self.attempt,
            exits=tuple(self._exits),
            restarts=self.total_restarts,
        )

    def _succeeded(self) -> Verdict:
        return self._with_facts(Verdict("succeed", 0, self._reason))

    def _failed(self, now: float, reason: str, culprit: Exit | None = None) -> Verdict:
        code = culprit.exit_code if culprit else EXIT_OWN_FAULT
        return self._with_facts(Verdict("fail", code or EXIT_OWN_FAULT, reason, culprit=culprit))

    def _cancelled(self, signal: int, *, clean: bool) -> Verdict:
        verdict = Verdict(
            "cancel", EXIT_SIGNAL_BASE + signal, self._reason or "stopped", clean=clean
        )
        return self._with_facts(verdict)

    def _finish(self, verdict: Verdict) -> list[Action]:
        self.phase = "ended"
        return [SetTimer(None), Finish(verdict)]


def address_key(address: str) -> tuple[int, ...]:
    """Numeric order of IPv4 addresses; anything else after them, in text order.

    >>> sorted(["10.0.0.10", "10.0.0.9", "b"], key=address_key)
    ['10.0.0.9', '10.0.0.10', 'b']
    """
    parts = address.split(".")
    if len(parts) == 4 and all(p.isascii() and p.isdigit() for p in parts):
        return tuple(int(p) for p in parts)
    return (256, *address.encode())


def describe(items: Iterable[str]) -> str:
    """Names for a message, cut after eight."""
    names = list(items)
    return ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")
