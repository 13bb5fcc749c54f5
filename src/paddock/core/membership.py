"""The whole job: who is in, which attempt runs, and how it ends. Judgement; no I/O, no clock.

Owned by the coordinator's one thread. Members are agents of nodes; each joins with its facts.

    phase      event                              next       actions
    ---------  ---------------------------------  ---------  --------------------------------------
    gathering  Joined, enough nodes               running    Start(attempt, hosts in rank order)
    gathering  Joined, not yet enough             gathering  SetTimer, Note who is awaited
    gathering  Joined: rank taken, ...            gathering  Refuse
    gathering  enough, but the hosts do not fit   ended      Finish(fail 2, every problem)
    gathering  Lost                               gathering  Note who is awaited
    gathering  LeaveAsked, elastic                gathering  Release it
    gathering  LeaveAsked, own node or not so     ended      Finish(cancel)
    gathering  timer: at least the minimum        running    Start
    gathering  timer: too few                     ended      Finish(fail 124, who is missing)
    gathering  timer: --timeout is over           ended      Finish(fail 124)
    running    ExitReported: failed               stopping   Stop on every node
    running    ExitReported: last worker of a ps  stopping   Stop on every node (success)
    running    Lost, its part had not ended       stopping   Stop on every node
    running    Joined, room for it (elastic)      stopping   Stop on every node (membership grows)
    running    Joined, no room                    running    Note: it stands by
    running    LeaveAsked, others suffice         stopping   Stop on every node (membership shrinks)
    running    LeaveAsked, others do not          stopping   Stop on every node (cancel)
    running    LeaveAsked by one that stands by   running    Release it
    running    timer: --timeout is over           stopping   Stop on every node (deadline)
    running    all members stopped, all ok        ended      Finish(succeed)
    stopping   all members stopped                backoff    SetTimer (restart decided)
    stopping   all members stopped                gathering  Release who leaves (membership changed)
    stopping   all members stopped                ended      Finish(verdict)
    stopping   LeaveAsked, others do not suffice  stopping   none: no further attempt will follow
    stopping   LeaveAsked hurry, the job ends     stopping   Stop hurry on every node
    stopping   LeaveAsked hurry, it goes on       stopping   Stop hurry on that node
    stopping   timer: a member will not answer    stopping   Release it (fail 125), go on without
    backoff    LeaveAsked, elastic                backoff    Release it
    backoff    LeaveAsked, own node or not so     ended      Finish(cancel)
    backoff    timer                              gathering  and from there to running at once
    backoff    timer: --timeout is over           ended      Finish(fail 124)
    any        news of another attempt            same       none
    any        timer before its time              same       SetTimer again
    ended      anything                           ended      none (Joined: Refuse)

The first verdict wins: what made the attempt stop is not changed by what comes after.
A member reports every exit of an attempt before it says that the attempt is stopped.
"""

from __future__ import annotations

from paddock.core.exits import Exit, find_culprit, unfinished
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
)
from paddock.core.plan import find_problems
from paddock.core.policy import Again, Verdict, decide_restart
from paddock.core.seats import Member, label, missing_seats, names_of, refusal, seat_order
from paddock.core.value import replace
from paddock.errors import EXIT_DEADLINE, EXIT_OWN_FAULT, EXIT_SIGNAL_BASE, EXIT_USAGE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Literal

    from paddock.core.job import Job
    from paddock.core.membership_words import Action, Event

    Phase = Literal["gathering", "running", "stopping", "backoff", "ended"]
    Why = Literal["", "failure", "success", "grow", "shrink", "cancel", "deadline"]

# A member gets this much longer than its own grace to say that its processes are gone.
STOP_MARGIN_SECONDS = 10.0
# Beyond this many members not every joining is worth a line at every node: 1,024 nodes would
# cause a million lines. The latest state is said at most once a second, and always in the end.
NOTES_MEMBERS = 8
NOTE_SECONDS = 1.0
# A silent node is noticed after its lease and at most a quarter of it (agent/server.py).
LEASE_NOTICED = 1.25
# Roles whose processes end by themselves when the job is done; servers are then told to.
WORKER_ROLES = ("worker", "heter")


class Membership:
    """The state of one job; owned by one thread. ``handle`` takes an event, returns actions."""

    def __init__(self, job: Job, now: float, *, first_attempt: int = 0, awaited: int = 0) -> None:
        """first_attempt, awaited: set by a coordinator that takes over a job (see agent/etcd):
        the attempt to start with and the number of earlier members worth waiting for.
        """
        self.job = job
        self.phase: Phase = "gathering"
        self.attempt = first_attempt
        self.used_restarts = 0
        self.total_restarts = 0
        self.awaited = awaited
        self._members: dict[int, Member] = {}
        self._by_key: dict[str, int] = {}
        self._active: dict[int, None] = {}  # in node-rank order
        self._unstopped: set[int] = set()  # of the active ones
        self._workers = 0  # processes whose success is the job's, of the current attempt
        self._workers_done = 0
        self._exits: list[Exit] = []
        self._why: Why = ""
        self._reason = ""
        self._cancel_signal = 0
        self._cancel_reason = ""
        self._started_at = now
        self._deadline_at: float | None = None  # of the whole job, from its first start
        self._changed_at = now
        self._gather_since = now
        self._not_before = 0.0  # processes of lost nodes may live until then
        self._timer_at: float | None = None
        self._said_at = -NOTE_SECONDS
        self._joins = 0
        self._is_first_gathering = first_attempt == 0

    # ------------------------------------------------------------------ facts

    @property
    def member_ids(self) -> tuple[int, ...]:
        """Members that are in, in order of joining."""
        return tuple(self._members)

    @property
    def active_ids(self) -> tuple[int, ...]:
        """Members of the current attempt, in node-rank order."""
        return tuple(self._active)

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
        if event.member in self._members:
            return []  # it said so before
        former = self._by_key.get(event.key)
        others = [m for i, m in self._members.items() if i != former]
        refused = self._refused(event, others)
        if refused is not None:
            return [refused]
        self._members[event.member] = Member(event, self._joins)
        self._joins += 1
        self._changed_at = now
        before = self._replace(former, now) if former is not None else []
        self._by_key[event.key] = event.member
        if before:
            return before
        if self.phase == "gathering":
            return self._try_start(now)
        if self.phase == "running" and self._can_grow():
            return self._stop(
                "grow", f"node {self._label(self._members[event.member])} joined", now
            )  # running -> stopping
        return [Note(f"node {event.host.name} is standing by")]

    def _refused(self, event: Joined, others: list[Member]) -> Refuse | None:
        if self.phase == "ended":
            return Refuse(event.member, "the job has ended", exit_code=EXIT_OWN_FAULT)
        return refusal(self.job, event, others, is_first_gathering=self._is_first_gathering)

    def _replace(self, former: int, now: float) -> list[Action]:
        """A launcher that joins again has ended its part of before, and its connection is gone."""
        if self.phase in ("running", "stopping"):
            return self._on_lost(Lost(former, int(now * 1e9), "lost its connection"), now)
        del self._members[former]
        return []

    def _on_exit(self, event: ExitReported, now: float) -> list[Action]:
        if event.exit.attempt != self.attempt or event.member not in self._active:
            return []
        if self.phase not in ("running", "stopping"):
            return []
        self._exits.append(event.exit)
        if event.exit.ok and event.exit.role in WORKER_ROLES:
            self._workers_done += 1
        if self.phase == "stopping":
            return []
        if event.exit.failed:
            text = f"{event.exit.name} on {event.exit.host} {event.exit.how}"
            return self._stop("failure", text, now)  # running -> stopping
        if self._has_servers() and 0 < self._workers <= self._workers_done:
            return self._stop("success", "all workers finished", now)  # running -> stopping
        return []

    def _on_stopped(self, event: Stopped, now: float) -> list[Action]:
        if event.attempt != self.attempt or event.member not in self._active:
            return []
        self._members[event.member].host = event.host
        self._unstopped.discard(event.member)
        return self._if_all_stopped(now)

    def _on_lost(self, event: Lost, now: float, *, is_expelled: bool = False) -> list[Action]:
        member = self._members.pop(event.member, None)
        if member is None:
            return []
        if self._by_key.get(member.key) == event.member:
            del self._by_key[member.key]
        self._changed_at = now
        if event.member in self._unstopped:
            self._not_before = max(self._not_before, event.gone_at)
        if event.member not in self._active or self.phase not in ("running", "stopping"):
            note = Note(f"node {member.host.name} {event.how}")
            return [note, *self._try_start(now)] if self.phase == "gathering" else [note]
        del self._active[event.member]
        if event.member not in self._unstopped:
            return []  # it had ended its part already; only the goodbye is missing
        self._unstopped.discard(event.member)
        self._exits.append(
            Exit(
                role="node",
                rank=-1,
                node_rank=member.place or 0,
                host=member.host.name,
                attempt=self.attempt,
                at_ns=event.at_ns,
                code=event.exit_code,
                cause="node-lost",
                by_us=is_expelled or member.leaving != 0 or self._is_late(event),
                tail=event.how,
            )
        )
        if self.phase == "running":
            text = f"node {member.place} ({member.host.name}) {event.how}"
            return self._stop("failure", text, now)  # running -> stopping
        return self._if_all_stopped(now)

    def _is_late(self, event: Lost) -> bool:
        """Whether a node lost while stopping was lost too late to be what made us stop.

        A silent node is noticed a lease late, and its peers' "connection reset" comes before.
        """
        lease_ns = int(self.job.rendezvous.lease_seconds * LEASE_NOTICED * 1e9)
        first_ns = min((e.at_ns for e in self._exits if e.failed), default=None)
        return first_ns is not None and event.at_ns - lease_ns > first_ns

    def _on_leave(self, event: LeaveAsked, now: float) -> list[Action]:
        member = self._members.get(event.member)
        if member is None:
            return []
        actions: list[Action] = []
        if not member.leaving:
            actions = self._leave(event, member, now)
        if not event.hurry or self.phase != "stopping":
            return actions
        is_ending = self._cancel_signal or self._why in ("cancel", "deadline", "success")
        hurried = self.active_ids if is_ending else (event.member,)
        return [*actions, Stop(self.attempt, hurried, "asked twice", hurry=True)]

    def _leave(self, event: LeaveAsked, member: Member, now: float) -> list[Action]:
        name = self._label(member)
        is_standing_by = self.phase in ("running", "stopping") and event.member not in self._active
        if is_standing_by and not member.is_self:
            return self._release(event.member, self._cancelled(event.signal, f"node {name} left"))
        may_leave = self.job.is_elastic and not member.is_self
        if may_leave and self.phase in ("gathering", "backoff"):
            # Nothing runs, and the wait for others has its own end: as when a node is lost.
            return self._release(event.member, self._cancelled(event.signal, f"node {name} left"))
        member.leaving = event.signal
        stay = sum(1 for m in self._members.values() if not m.leaving)
        shrinks = may_leave and stay >= self.job.nnodes_min
        if shrinks and self.phase == "running":
            return self._stop("shrink", f"node {name} leaves", now)
        if shrinks and self.phase == "stopping":
            return []
        if not self._cancel_signal:
            self._cancel_signal = event.signal
            self._cancel_reason = f"node {name} was told to stop"
        if self.phase == "running":
            return self._stop("cancel", self._cancel_reason, now)
        if self.phase == "stopping":
            return []
        verdict = self._cancelled(self._cancel_signal, self._cancel_reason)
        return self._finish(verdict)  # gathering | backoff -> ended

    def _on_timer(self, now: float) -> list[Action]:
        if self._timer_at is None:
            return []
        if now < self._timer_at:
            return [SetTimer(self._timer_at)]
        self._timer_at = None
        if self.phase == "gathering":
            return self._try_start(now)
        if self.phase == "backoff":
            return self._gather(now)  # backoff -> gathering
        if self.phase == "running":
            return self._stop("deadline", self._deadline_text(), now)
        return self._expel([m for m in self._active if m in self._unstopped], now)

    def _expel(self, late: list[int], now: float) -> list[Action]:
        """Their processes did not end in time (stuck in the kernel, say). Go on without them."""
        how = "did not stop its processes in time"
        verdict = self._with_facts(Verdict("fail", EXIT_OWN_FAULT, f"this node {how}"))
        at_ns = max((e.at_ns for e in self._exits), default=0)
        actions: list[Action] = []
        for member in late:
            actions += self._on_lost(Lost(member, at_ns, how), now, is_expelled=True)
        if self.phase == "ended":
            return actions  # they get the job's verdict, like all others
        return [*(Release(member, verdict) for member in late), *actions]

    # ------------------------------------------------------------- gathering

    def _try_start(self, now: float) -> list[Action]:
        if self._deadline_at is not None and now >= self._deadline_at:
            verdict = Verdict("fail", EXIT_DEADLINE, self._deadline_text())
            return self._finish(self._with_facts(verdict))  # gathering -> ended
        limit_at = self._gather_since + self._gather_limit()
        start_at = self._start_at(limit_at)
        if start_at is not None and now >= start_at:
            return self._start(now)
        if start_at is None and now >= limit_at:
            return self._finish(self._missing_verdict())  # gathering -> ended
        wake_at = limit_at if start_at is None else start_at
        if self._deadline_at is not None:
            wake_at = min(wake_at, self._deadline_at)
        if len(self._members) > NOTES_MEMBERS and now < self._said_at + NOTE_SECONDS:
            return [self._set_timer(min(wake_at, self._said_at + NOTE_SECONDS))]
        self._said_at = now
        text = self._waiting_text()
        if start_at is not None and start_at == self._not_before:
            text = f"waiting {start_at - now:.1f} s until the lease of the lost node is over"
        return [self._set_timer(wake_at), Note(text)]

    def _start_at(self, limit_at: float) -> float | None:
        """When the members that are in may start; None: they are too few."""
        job = self.job
        if len(self._members) >= job.nnodes_max:
            return self._not_before
        if len(self._members) < job.nnodes_min or job.nnodes_min == job.nnodes_max:
            return None
        return max(self._not_before, min(self._settle_at(), limit_at))

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
        names = names_of(self._members.values())
        text = f"waiting for nodes: {len(self._members)} of {wanted} joined ({names})"
        missing = missing_seats(self.job, self._members.values())
        return f"{text}; missing {missing}" if missing else text

    def _missing_verdict(self) -> Verdict:
        flag = "--join-timeout" if self._is_first_gathering else "--elastic_timeout"
        text = f"{self._waiting_text()}; gave up after {self._gather_limit():g} s ({flag})"
        if self._reason:
            text = f"{self._reason}; {text}"
        return self._with_facts(Verdict("fail", EXIT_DEADLINE, text))

    def _start(self, now: float) -> list[Action]:
        ordered = seat_order(self.job, self._members)
        chosen = ordered[: self.job.nnodes_max]
        hosts = tuple(self._members[m].host for m in chosen)
        problems = find_problems(self.job, hosts)
        if problems:
            text = "; ".join(f"{p.message} ({p.hint})" if p.hint else p.message for p in problems)
            return self._finish(self._with_facts(Verdict("fail", EXIT_USAGE, text)))
        for member_id in ordered:
            self._members[member_id].place = None
        for place, member_id in enumerate(chosen):
            self._members[member_id].place = place
        self._active = dict.fromkeys(chosen)
        self._unstopped = set(chosen)
        self._workers = sum(c for h in hosts for role, _, c in h.slots if role in WORKER_ROLES)
        self.phase = "running"  # gathering -> running
        self._is_first_gathering = False
        self._started_at = now
        if self._deadline_at is None and self.job.timeout_seconds > 0:
            self._deadline_at = now + self.job.timeout_seconds
        self._workers_done = 0
        self._exits = []
        self._why = ""
        self._reason = ""
        return [
            Start(self.attempt, self.active_ids, hosts),
            self._set_timer(self._deadline_at),
        ]

    def _deadline_text(self) -> str:
        return f"the job's time limit of {self.job.timeout_seconds:g} s is over (--timeout)"

    # -------------------------------------------------------------- stopping

    def _stop(self, why: Why, reason: str, now: float) -> list[Action]:
        self.phase = "stopping"  # running -> stopping
        self._why = why
        self._reason = reason
        limit = self.job.grace_seconds + STOP_MARGIN_SECONDS
        actions: list[Action] = [
            Stop(self.attempt, self.active_ids, reason),
            self._set_timer(now + limit),
        ]
        return actions + self._if_all_stopped(now)

    def _if_all_stopped(self, now: float) -> list[Action]:
        if self._unstopped:
            return []
        if self.phase == "stopping":
            return self._judge(now)
        if self.phase != "running":
            return []
        if self._workers_done >= self._workers:
            return self._finish(self._succeeded())  # running -> ended
        text = "every node says that its processes ended, but not how all of them did"
        return self._finish(self._failed(text, find_culprit(self._exits)))

    def _judge(self, now: float) -> list[Action]:
        """All processes of the attempt are gone: what now? The first reason wins."""
        if self._why == "success":
            return self._finish(self._succeeded())
        if self._why == "deadline":
            text = self._reason + unfinished(self._exits)
            verdict = Verdict("fail", EXIT_DEADLINE, text)
            return self._finish(self._with_facts(verdict))
        if self._why == "failure":
            return self._judge_failure(now)
        if self._cancel_signal:
            return self._finish(self._cancelled(self._cancel_signal, self._cancel_reason))
        done = sum(1 for e in self._exits if e.ok and not e.by_us and e.role in WORKER_ROLES)
        if 0 < self._workers <= done:
            return self._finish(self._succeeded())  # the change came when all was done
        return self._next_attempt(now)

    def _judge_failure(self, now: float) -> list[Action]:
        culprit = find_culprit(self._exits)
        if culprit is None:
            return self._finish(self._failed(self._reason))
        failed_id = self._expellable(culprit)
        if failed_id is None:
            ran = now - self._started_at
            again = decide_restart(
                self.job.restart, culprit, used=self.used_restarts, ran_seconds=ran
            )
            if culprit.cause == "node-lost" and not self._can_replace():
                return self._finish(self._failed("", culprit))
            is_asked = self._cancel_signal != 0 and culprit.signal == self._cancel_signal
            if not isinstance(again, Again) and not is_asked:
                return self._finish(self._failed(again.reason, culprit))
        else:
            again = Again(0.0, self.used_restarts, "its node leaves, --elastic_level 0")
        if self._cancel_signal or not isinstance(again, Again):
            # It would have gone on; or the same signal was sent to our processes, too.
            return self._finish(self._cancelled(self._cancel_signal, self._cancel_reason))
        actions: list[Action] = []
        if failed_id is not None:
            actions += self._release(failed_id, self._failed("", culprit))
        else:
            self.total_restarts += 1
        self.used_restarts = again.used
        actions += self._release_leavers()
        actions.append(
            Note(
                f"attempt {self.attempt + 1}: restarting ({culprit.name} on {culprit.host} "
                f"{culprit.how}; {again.reason}"
                + (f" in {again.delay_seconds:.1f} s)" if again.delay_seconds else ")"),
                culprit,
            )
        )
        if not again.delay_seconds:
            return actions + self._gather(now)
        self.phase = "backoff"  # stopping -> backoff
        wake_at = now + again.delay_seconds
        if self._deadline_at is not None:
            wake_at = min(wake_at, self._deadline_at)
        return [*actions, self._set_timer(wake_at)]

    def _expellable(self, culprit: Exit) -> int | None:
        """Level 0: the node whose process failed, if the others can go on without it.

        Not the coordinator's own, which cannot leave: its failures are restarts like any other.
        """
        if self.job.elastic.level != 0 or culprit.cause == "node-lost":
            return None
        for member_id, member in self._members.items():
            if member.place == culprit.node_rank and not member.is_self:
                stay = sum(1 for i, m in self._members.items() if not m.leaving and i != member_id)
                return member_id if stay >= self.job.nnodes_min else None
        return None

    def _release(self, member_id: int, verdict: Verdict) -> list[Action]:
        member = self._members.pop(member_id)
        if self._by_key.get(member.key) == member_id:
            del self._by_key[member.key]
        self._active.pop(member_id, None)
        return [Release(member_id, replace(verdict, goes_on=True))]

    def _release_leavers(self) -> list[Action]:
        actions: list[Action] = []
        for member_id, member in list(self._members.items()):
            if member.leaving:
                verdict = self._cancelled(member.leaving, f"node {self._label(member)} left")
                actions += self._release(member_id, verdict)
        return actions

    def _next_attempt(self, now: float) -> list[Action]:
        released = self._release_leavers()
        note = Note(f"attempt {self.attempt + 1}: {self._reason}")
        return [*released, note, *self._gather(now)]

    def _gather(self, now: float) -> list[Action]:
        """stopping | backoff -> gathering, for the next attempt."""
        self.phase = "gathering"
        self.attempt += 1
        self._active = {}
        self._unstopped = set()
        self._gather_since = now
        self._changed_at = now
        self.awaited = 0
        return self._try_start(now)

    def _can_grow(self) -> bool:
        """Whether a newcomer is worth a restart: there is room, and nobody has finished."""
        has_room = len(self._active) < self.job.nnodes_max
        is_range = self.job.nnodes_min != self.job.nnodes_max
        return is_range and has_room and self._workers_done == 0

    def _can_replace(self) -> bool:
        """A lost node ends a job unless it may shrink, or may wait for a replacement."""
        return self.job.is_elastic or self.job.restart.max_restarts > 0

    def _has_servers(self) -> bool:
        return any(role.name == "ps" for role in self.job.roles)

    def _label(self, member: Member) -> str:
        return label(member, self._members.values())

    def _set_timer(self, at: float | None) -> SetTimer:
        self._timer_at = at
        return SetTimer(at)

    # -------------------------------------------------------------- verdicts

    def _with_facts(self, verdict: Verdict) -> Verdict:
        return replace(
            verdict,
            attempt=self.attempt,
            exits=tuple(self._exits),
            restarts=self.total_restarts,
        )

    def _succeeded(self) -> Verdict:
        reason = self._reason if self._why == "success" else ""
        return self._with_facts(Verdict("succeed", 0, reason))

    def _failed(self, reason: str, culprit: Exit | None = None) -> Verdict:
        code = culprit.exit_code if culprit else EXIT_OWN_FAULT
        return self._with_facts(Verdict("fail", code or EXIT_OWN_FAULT, reason, culprit=culprit))

    def _cancelled(self, signal: int, reason: str) -> Verdict:
        """clean: no process of the latest attempt ended otherwise than well (servers apart)."""
        clean = all(e.ok for e in self._exits if e.role != "ps")
        return self._with_facts(Verdict("cancel", EXIT_SIGNAL_BASE + signal, reason, clean=clean))

    def _finish(self, verdict: Verdict) -> list[Action]:
        self.phase = "ended"
        return [self._set_timer(None), Finish(verdict)]
