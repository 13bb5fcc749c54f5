"""The whole job: who is in, which attempt runs, and how it ends. Judgement; no I/O, no clock.

Owned by the coordinator's one thread. Members are agents of nodes; each joins with its facts.

    phase      event                              next       actions
    ---------  ---------------------------------  ---------  --------------------------------------
    gathering  Join, enough nodes                 running    Start(attempt, hosts in rank order)
    gathering  Join, not yet enough               gathering  SetTimer, Note who is awaited
    gathering  Join: another job, rank taken, ... gathering  Refuse
    gathering  enough, but the hosts do not fit   ended      Over(fail 2, every problem)
    gathering  Lost                               gathering  Note who is awaited
    gathering  Leave, others stay (elastic)       gathering  Over for it
    gathering  Leave, own node, others take over  ended      HandOver
    gathering  Leave, nobody stays or not elastic ended      Over(cancel)
    gathering  timer: at least the minimum        running    Start
    gathering  timer: too few                     ended      Over(fail 124, who is missing)
    gathering  timer: --timeout is over           ended      Over(fail 124)
    running    Exited: failed                     stopping   Stop on every node
    running    Exited: last worker of a ps job    stopping   Stop on every node (success)
    running    Lost, its part had not ended       stopping   Stop on every node
    running    Started: another plan              stopping   Stop on every node, that one too
    running    Join, room for it (elastic)        stopping   Stop on every node (membership grows)
    running    Join, no room                      running    Note: it stands by
    running    Leave, others stay (elastic)       stopping   Stop on every node (membership shrinks)
    running    Leave, nobody stays or not elastic stopping   Stop on every node (cancel)
    running    Leave by one that stands by        running    Over for it
    running    timer: --timeout is over           stopping   Stop on every node (deadline)
    running    all members stopped, all ok        ended      Over(succeed)
    stopping   all members stopped                backoff    SetTimer (restart decided)
    stopping   all members stopped                gathering  Over for who leaves (others go on)
    stopping   all members stopped                ended      Over(verdict), or HandOver
    stopping   Leave, nobody stays                stopping   none: no further attempt will follow
    stopping   Leave hurry, the job ends          stopping   Stop hurry on every node
    stopping   Leave hurry, it goes on            stopping   Stop hurry on that node
    stopping   timer: a member will not answer    stopping   Over for it (fail 125), go on without
    backoff    Leave, others stay (elastic)       backoff    Over for it
    backoff    Leave, own node, others take over  ended      HandOver
    backoff    Leave, nobody stays or not elastic ended      Over(cancel)
    backoff    timer                              gathering  and from there to running at once
    backoff    timer: --timeout is over           ended      Over(fail 124)
    any        news of another attempt            same       none
    any        timer before its time              same       SetTimer again
    ended      anything                           ended      none (Join: Refuse)

When an attempt may start is decided in gathering.py, what follows one in judging.py.
A member reports every exit of an attempt before it says that the attempt is stopped.

What survives the coordinator: attempt number, restarts used and what is left of --timeout travel
with every Start and HandOver (Budget); who is in is found out anew, by joining. Exits of an
attempt whose coordinator was lost are lost on purpose: the attempt is void.
"""

from __future__ import annotations

from paddock.core.attempt import Attempt
from paddock.core.exits import find_culprit
from paddock.core.gathering import Gathering
from paddock.core.judging import Case, GoOn, judge
from paddock.core.leaving import (
    can_go_on,
    expellable,
    goodbye,
    hand_over,
    own_leaver,
    release,
)
from paddock.core.messages import (
    Budget,
    CannotRun,
    Close,
    End,
    Exited,
    Heard,
    Join,
    Leave,
    Lost,
    Note,
    Refuse,
    SetTimer,
    Start,
    Started,
    Stop,
    Stopped,
    Tell,
)
from paddock.core.plan import find_problems
from paddock.core.roster import Roster, find_difference
from paddock.core.value import value
from paddock.errors import EXIT_DEADLINE, EXIT_OWN_FAULT, EXIT_USAGE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Literal

    from paddock.core.exits import Exit
    from paddock.core.job import Job
    from paddock.core.judging import Why
    from paddock.core.messages import Action, Event
    from paddock.core.policy import Verdict
    from paddock.core.roster import Peer

    Phase = Literal["gathering", "running", "stopping", "backoff", "ended"]

# A member gets this much longer than its own grace to say that its processes are gone.
STOP_MARGIN_SECONDS = 10.0


@value
class Inherited:
    """What a coordinator knows of the one before it.

    attempt: the one to start with. is_new_run: it is another run's, whose nodes are not awaited and
    whose budget is its own. keys: nodes of the attempt before, which may come back; until
    the monotonic second gone_at those that do not may still run it. lost: the key of the one that
    coordinated, which is not waited for; its processes are gone at lost_gone_at.
    """

    attempt: int
    keys: tuple[str, ...] = ()
    budget: Budget = Budget()
    gone_at: float = 0.0
    lost: str = ""
    lost_gone_at: float = 0.0
    is_new_run: bool = False


class Membership:
    """The state of one job; owned by one thread. ``handle`` takes an event, returns actions."""

    def __init__(
        self,
        job: Job,
        now: float,
        *,
        shape: tuple[tuple[str, str], ...] = (),
        inherited: Inherited | None = None,
    ) -> None:
        self.job = job
        self.phase: Phase = "gathering"
        self.attempt = inherited.attempt if inherited else 0
        self.roster = Roster(job)
        budget = inherited.budget if inherited else Budget()
        self.used_restarts = budget.used_restarts
        self.total_restarts = budget.total_restarts
        self._shape = shape
        is_first = inherited is None or inherited.is_new_run
        self._gathering = Gathering(job, self.roster, now, is_first=is_first)
        self._now = Attempt()  # the attempt that runs, or did last
        self._asked = (0, "")  # the job was told to stop: the signal and how
        self._deadline_at: float | None = None  # of the whole job, from its first start
        if budget.seconds_left is not None:
            self._deadline_at = now + budget.seconds_left
        self._timer_at: float | None = None
        if inherited is not None:
            known = [key for key in inherited.keys if key != inherited.lost]
            self.roster.awaited.update(() if inherited.is_new_run else known)
            for key in known:
                self.roster.haunt(key, inherited.gone_at)
            if inherited.lost:
                self.roster.haunt(inherited.lost, inherited.lost_gone_at)

    # ------------------------------------------------------------------ facts

    @property
    def member_ids(self) -> tuple[int, ...]:
        """Members that are in, in order of joining."""
        return tuple(self.roster.peers)

    @property
    def active_ids(self) -> tuple[int, ...]:
        """Members of the current attempt, in node-rank order."""
        return tuple(self._now.members)

    @property
    def exits(self) -> tuple[Exit, ...]:
        """Exits of the current attempt."""
        return tuple(self._now.exits)

    # ----------------------------------------------------------------- events

    def handle(self, event: Event, now: float) -> list[Action]:
        """Take one event at monotonic second ``now``; return what to do, in order."""
        if isinstance(event, Heard) and isinstance(event.message, Join):
            return self._on_join(event, event.message, now)
        if self.phase == "ended":
            return []
        if isinstance(event, Heard):
            return self._on_heard(event, event.message, now)
        if isinstance(event, Lost):
            return self._on_lost(event, now)
        return self._on_timer(now)

    def _on_heard(self, heard: Heard, message: object, now: float) -> list[Action]:
        member = heard.member
        if isinstance(message, Leave):
            return self._on_leave(heard, message, now)
        if isinstance(message, CannotRun):
            at_ns, code = int(now * 1e9), message.exit_code
            lost = Lost(member, at_ns, "cannot-run", message.message, exit_code=code)
            return self._on_lost(lost, now)
        if member not in self._now.members:
            return []
        if isinstance(message, Exited) and message.exit.attempt == self.attempt:
            return self._on_exited(message.exit, now)
        if isinstance(message, Stopped) and message.attempt == self.attempt:
            self.roster.peers[member].host = message.host
            self._now.unstopped.discard(member)
            return self._if_all_stopped(now)
        if isinstance(message, Started) and message.attempt == self.attempt:
            return self._on_started(member, message.digest, now)
        return []

    def _on_join(self, heard: Heard, join: Join, now: float) -> list[Action]:
        member = heard.member
        if member in self.roster.peers:
            return []  # it said so before
        if self.phase == "ended":
            return _refused(member, Refuse("the job has ended", exit_code=EXIT_OWN_FAULT))
        odd = find_difference(self._shape, join.shape)
        if odd is not None:
            text = f"{odd[0]} is '{odd[2]}' on {join.host.name}, '{odd[1]}' on the coordinator"
            return _refused(member, Refuse(text, "give the same command on every node"))
        former = self.roster.former(join.key)
        refused = self.roster.refusal(join, former, is_first=self._gathering.is_first)
        if refused is not None:
            return _refused(member, refused)
        actions = self._replace(former, now) if former is not None else []
        peer = self.roster.add(member, join, is_self=heard.is_self)
        if self.phase == "gathering":
            # Whoever coordinated before may have started attempts that left no record.
            self.attempt = max(self.attempt, heard.attempt + 1)
        self._gathering.change(now)
        if actions:
            return actions
        if self.phase == "gathering":
            if own_leaver(self.roster) and self._can_go_on():
                return self._release_leavers(self.attempt, now)
            return self._try_start(now)
        if self.phase == "running" and self._can_grow():
            return self._stop("grow", f"node {self.roster.label(peer)} joined", now)
        return [self._note(f"node {join.host.name} is standing by")]

    def _replace(self, former: int, now: float) -> list[Action]:
        """A launcher that joins again has ended its part of before, and its connection is gone."""
        if self.phase in ("running", "stopping"):
            return self._on_lost(Lost(former, int(now * 1e9), "closed", "it joined again"), now)
        self.roster.remove(former)
        return []

    def _on_exited(self, exit_: Exit, now: float) -> list[Action]:
        if self.phase not in ("running", "stopping"):
            return []
        self._now.add_exit(exit_)
        if self.phase == "stopping":
            return []
        if exit_.failed:
            text = f"{exit_.name} on {exit_.host} {exit_.how}"
            return self._stop("failure", text, now)  # running -> stopping
        if self._has_servers() and self._now.has_done_its_work:
            return self._stop("success", "all workers finished", now)  # running -> stopping
        return []

    def _on_started(self, member: int, digest: int, now: float) -> list[Action]:
        """Every node must have made the same plan. One that has not is stopped, then let go."""
        if not self._now.is_other_plan(digest):
            return []
        peer = self.roster.peers[member]
        peer.is_expelled = True
        lost = Lost(member, int(now * 1e9), "other-plan")
        self._add_loss(peer, lost)
        if self.phase == "running":
            return self._stop("failure", f"node {peer.host.name} {lost.how}", now)
        return []

    def _on_lost(self, lost: Lost, now: float) -> list[Action]:
        peer = self.roster.remove(lost.member)
        if peer is None:
            return []
        self._gathering.change(now)
        was_unstopped = lost.member in self._now.unstopped
        if was_unstopped:
            self.roster.haunt(peer.key, lost.gone_at)
        if lost.member not in self._now.members or self.phase not in ("running", "stopping"):
            note = self._note(f"node {peer.host.name} {lost.how}")
            return [note, *self._try_start(now)] if self.phase == "gathering" else [note]
        self._now.remove(lost.member)
        if not was_unstopped:
            return []  # it had ended its part already; only the goodbye is missing
        self._add_loss(peer, lost)
        if self.phase == "running":
            text = f"node {peer.place} ({peer.host.name}) {lost.how}"
            return self._stop("failure", text, now)  # running -> stopping
        return self._if_all_stopped(now)

    def _add_loss(self, peer: Peer, lost: Lost) -> None:
        self._now.add_loss(peer, lost, self.attempt, self.job.rendezvous.lease_seconds)

    def _on_leave(self, heard: Heard, leave: Leave, now: float) -> list[Action]:
        member = heard.member
        peer = self.roster.peers.get(member)
        if peer is None:  # out, but it may coordinate on: then nobody else can be told to stop
            return self._cancel(leave.signal, "the coordinator", now) if heard.is_self else []
        actions = [] if peer.leaving else self._leave(member, peer, leave.signal, now)
        if not leave.hurry or self.phase != "stopping":
            return actions
        is_ending = self._asked[0] or self._now.why in ("cancel", "deadline", "success")
        hurried = self.active_ids if is_ending else (member,)
        return [*actions, Tell(hurried, Stop(self.attempt, "asked twice", hurry=True))]

    def _leave(self, member: int, peer: Peer, signal: int, now: float) -> list[Action]:
        name = self.roster.label(peer)
        peer.leaving = signal
        is_standing_by = self.phase in ("running", "stopping") and member not in self._now.members
        if is_standing_by and not peer.is_self:
            return self._release(member, peer)
        if self.phase == "gathering" and peer.is_self and self.roster.awaited:
            return []  # those to whom the job was handed over with us will be here in a moment
        if self.job.is_elastic and self._can_go_on():
            if self.phase == "running":
                return self._stop("shrink", f"node {name} leaves", now)  # running -> stopping
            if self.phase == "stopping":
                return []
            # Nothing runs, and the wait for others has its own end: as when a node is lost.
            return self._release_leavers(self.attempt + (self.phase == "backoff"), now)
        return self._cancel(signal, f"node {name}", now)

    def _cancel(self, signal: int, who: str, now: float) -> list[Action]:
        """The whole job was told to stop."""
        if not self._asked[0]:
            self._asked = (signal, f"{who} was told to stop")
        if self.phase == "running":
            return self._stop("cancel", self._asked[1], now)  # running -> stopping
        if self.phase == "stopping":
            return []
        return self._finish(self._case().cancelled(*self._asked))  # gathering | backoff -> ended

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
        return self._expel([m for m in self._now.members if m in self._now.unstopped], now)

    def _expel(self, late: list[int], now: float) -> list[Action]:
        """Their processes did not end in time (stuck in the kernel, say). Go on without them."""
        at_ns = max((e.at_ns for e in self._now.exits), default=0)
        text = "this node did not stop its processes in time"
        verdict = self._case().verdict("fail", EXIT_OWN_FAULT, text)
        actions: list[Action] = []
        for member in late:
            actions += self._on_lost(Lost(member, at_ns, "expelled"), now)
        if self.phase == "ended":
            return actions  # they get the job's verdict, like all others
        told = [release(member, verdict) for member in late]
        return [*(action for pair in told for action in pair), *actions]

    # ------------------------------------------------------------- gathering

    def _try_start(self, now: float) -> list[Action]:
        if self._deadline_at is not None and now >= self._deadline_at:
            text = self._deadline_text()
            return self._finish(self._case().verdict("fail", EXIT_DEADLINE, text))
        outlook = self._gathering.look(now)
        if own_leaver(self.roster) and (outlook.starts or outlook.gives_up):
            if self._can_go_on():
                return self._release_leavers(self.attempt, now)
            case = self._case()  # nobody came to take over
            return self._finish(case.cancelled(case.asked_signal, case.asked_reason))
        if outlook.starts:
            return self._start(now)
        if outlook.gives_up:
            text = self._gathering.given_up_text()
            if self._now.reason:
                text = f"{self._now.reason}; {text}"
            return self._finish(self._case().verdict("fail", EXIT_DEADLINE, text))
        wake_at = outlook.wake_at
        if self._deadline_at is not None:
            wake_at = min(wake_at, self._deadline_at)
        return [self._set_timer(wake_at), *([self._note(outlook.text)] if outlook.text else [])]

    def _start(self, now: float) -> list[Action]:
        peers = self.roster.peers
        ordered = self.roster.seat_order()
        chosen = ordered[: self.job.nnodes_max]
        hosts = tuple(peers[m].host for m in chosen)
        problems = find_problems(self.job, hosts)
        if problems:
            text = "; ".join(f"{p.message} ({p.hint})" if p.hint else p.message for p in problems)
            return self._finish(self._case().verdict("fail", EXIT_USAGE, text))
        for member in ordered:
            peers[member].place = None
        for place, member in enumerate(chosen):
            peers[member].place = place
        self._now = Attempt(chosen, hosts, now)
        self.phase = "running"  # gathering -> running
        self._gathering.is_first = False
        if self._deadline_at is None and self.job.timeout_seconds > 0:
            self._deadline_at = now + self.job.timeout_seconds
        keys = tuple(peers[m].key for m in chosen)
        doors = tuple(peers[m].door for m in chosen)
        by = next((p.key for p in peers.values() if p.is_self), "")
        start = Start(self.attempt, hosts, keys, doors, by, self._budget(now))
        return [Tell(self.active_ids, start), self._set_timer(self._deadline_at)]

    def _budget(self, now: float) -> Budget:
        left = None if self._deadline_at is None else max(0.0, self._deadline_at - now)
        return Budget(self.used_restarts, self.total_restarts, left)

    def _deadline_text(self) -> str:
        return f"the job's time limit of {self.job.timeout_seconds:g} s is over (--timeout)"

    # -------------------------------------------------------------- stopping

    def _stop(self, why: Why, reason: str, now: float) -> list[Action]:
        self.phase = "stopping"  # running -> stopping
        self._now.why, self._now.reason = why, reason
        limit = self.job.grace_seconds + STOP_MARGIN_SECONDS
        actions: list[Action] = [
            Tell(self.active_ids, Stop(self.attempt, reason)),
            self._set_timer(now + limit),
        ]
        return actions + self._if_all_stopped(now)

    def _if_all_stopped(self, now: float) -> list[Action]:
        if self._now.unstopped:
            return []
        if self.phase == "stopping":
            return self._judge(now)
        if self.phase != "running":
            return []
        if self._now.workers_done >= self._now.workers:
            return self._finish(self._case().succeeded())  # running -> ended
        text = "every node says that its processes ended, but not how all of them did"
        return self._finish(self._case().failed(text, find_culprit(self._now.exits)))

    def _judge(self, now: float) -> list[Action]:
        """All processes of the attempt are gone: what now?"""
        found = judge(self._case(now))
        if not isinstance(found, GoOn):
            return self._finish(found)
        actions: list[Action] = []
        if found.expelled is not None:
            failed = self._member_at(found.expelled)
            self.roster.remove(failed)
            actions += release(failed, self._case().failed("", found.culprit))
        elif found.culprit is not None:
            self.total_restarts += 1
        self.used_restarts = found.again.used
        actions += self._release_leavers(self.attempt + 1, now)
        if self.phase == "ended":
            return actions  # another node goes on with it
        self._now.end()
        text = f"attempt {self.attempt + 1}: {found.text}"
        actions.append(self._note(text, found.culprit))
        delay = found.again.delay_seconds
        if not delay:
            return actions + self._gather(now)
        self.phase = "backoff"  # stopping -> backoff
        wake_at = now + delay
        if self._deadline_at is not None:
            wake_at = min(wake_at, self._deadline_at)
        return [*actions, self._set_timer(wake_at)]

    def _case(self, now: float = 0.0) -> Case:
        leavers = [p for p in self.roster.peers.values() if p.leaving]
        if leavers and not self._asked[0] and not self._can_go_on():  # the others were lost
            first = own_leaver(self.roster) or leavers[0]
            self._asked = (first.leaving, f"node {self.roster.label(first)} was told to stop")
        attempt = self._now
        return Case(
            self.job,
            self.attempt,
            attempt.why,
            attempt.reason,
            attempt.exits,
            attempt.workers,
            self.used_restarts,
            self.total_restarts,
            now - attempt.started_at,
            asked_signal=self._asked[0],
            asked_reason=self._asked[1],
            leaving=tuple((p.place, p.leaving) for p in leavers if p.place is not None),
            expellable=expellable(self.roster),
        )

    def _member_at(self, place: int) -> int:
        return next(i for i, p in self.roster.peers.items() if p.place == place)

    def _release_leavers(self, next_attempt: int, now: float) -> list[Action]:
        """Let those go that have to; the coordinator's own node last, as others take over."""
        actions: list[Action] = []
        for member, peer in list(self.roster.peers.items()):
            if (peer.leaving and not peer.is_self) or peer.is_expelled:
                actions += self._release(member, peer)
        own = own_leaver(self.roster)
        if own is None:
            return actions
        self.phase = "ended"  # stopping | gathering | backoff -> ended, for this coordinator only
        budget = self._budget(now)
        order = hand_over(self.roster, own, self._case(), next_attempt, budget, now)
        return [*actions, self._set_timer(None), *order]

    def _release(self, member: int, peer: Peer) -> list[Action]:
        verdict = goodbye(self.roster, peer, self._case())
        self.roster.remove(member)
        self._now.members.pop(member, None)
        return release(member, verdict)

    def _can_go_on(self) -> bool:
        return can_go_on(self.roster, is_first=self._gathering.is_first)

    def _gather(self, now: float) -> list[Action]:
        """stopping | backoff -> gathering, for the next attempt."""
        self.phase = "gathering"
        self.attempt += 1
        self._gathering.begin(now)
        return self._try_start(now)

    def _can_grow(self) -> bool:
        """Whether a newcomer is worth a restart: there is room, and nobody has finished."""
        has_room = len(self._now.members) < self.job.nnodes_max
        is_range = self.job.is_elastic and self.job.nnodes_min != self.job.nnodes_max
        return is_range and has_room and self._now.workers_done == 0

    def _has_servers(self) -> bool:
        return any(role.name == "ps" for role in self.job.roles)

    def _set_timer(self, at: float | None) -> SetTimer:
        self._timer_at = at
        return SetTimer(at)

    def _note(self, text: str, culprit: Exit | None = None) -> Tell:
        return Tell(self.member_ids, Note(text, culprit))

    def _finish(self, verdict: Verdict) -> list[Action]:
        self.phase = "ended"
        return [self._set_timer(None), End(verdict)]


def _refused(member: int, refuse: Refuse) -> list[Action]:
    return [Tell((member,), refuse), Close(member)]
