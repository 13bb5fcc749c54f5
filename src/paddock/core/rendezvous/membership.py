"""The state machine of the whole job: rendezvous, attempts, restarts, verdict. No I/O, no clock.

Owned by the coordinator's one thread. Members are agents of nodes; each joins with its facts.

    phase      event                                next       actions
    ---------  -----------------------------------  ---------  ----------------------------------
    gathering  Join, enough nodes                   running    Start(attempt, ranked hosts)
    gathering  Join, not yet enough                 gathering  SetTimer, Notice who is awaited
    gathering  Join: another job, rank taken, ...   gathering  Reject
    gathering  enough, but the hosts do not fit     ended      JobEnded(fail 2, every problem)
    gathering  Lost                                 gathering  Notice who is awaited
    gathering  Leave, others stay (elastic)         gathering  JobEnded for it
    gathering  Leave, own node, others take over    ended      HandOver
    gathering  Leave, nobody stays or not elastic   ended      JobEnded(cancel, or fail: lost)
    gathering  timer: at least the minimum          running    Start
    gathering  timer: too few                       ended      JobEnded(fail 124, who is missing)
    gathering  timer: --timeout is over             ended      JobEnded(fail 124)
    running    Exited: failed                       stopping   Stop on every node
    running    Exited: last worker of a ps job      stopping   Stop on every node (success)
    running    Lost, its part had not ended         stopping   Stop on every node
    running    Started: another plan                stopping   Stop on every node, that one too
    running    Join, room for it (elastic)          stopping   Stop on every node (it grows)
    running    Join, no room                        running    Notice: it stands by
    running    Leave, others stay (elastic)         stopping   Stop on every node (it shrinks)
    running    Leave, nobody stays or not elastic   stopping   Stop on every node (cancel)
    running    Leave by one that stands by          running    JobEnded for it
    running    timer: --timeout is over             stopping   Stop on every node (deadline)
    running    Stalled, every node with workers     stopping   Stop on every node (stall)
    running    Stalled, workers elsewhere move      running    none
    running    Exited: the others are stalled       stopping   Stop on every node (stall)
    running    all members stopped, all ok          ended      JobEnded(succeed)
    stopping   all members stopped                  backoff    SetTimer (restart decided)
    stopping   all members stopped                  gathering  JobEnded for those that leave
    stopping   all members stopped                  ended      JobEnded(verdict), or HandOver
    stopping   Leave, nobody stays                  stopping   none: no other attempt follows
    stopping   Leave force, the job ends            stopping   Stop force on every node
    stopping   Leave force, it goes on              stopping   Stop force on that node
    stopping   timer: a member will not answer      stopping   JobEnded(fail 125) for it
    backoff    Leave, others stay (elastic)         backoff    JobEnded for it
    backoff    Leave, own node, others take over    ended      HandOver
    backoff    Leave, nobody stays or not elastic   ended      JobEnded(cancel)
    backoff    timer                                gathering  and from there to running at once
    backoff    timer: --timeout is over             ended      JobEnded(fail 124)
    gathering  Join by one of a later attempt       ended      End(outdated)
    any        LeaderConflict: another one goes on  ended      HandOver
    any        LeaderConflict: this one goes on     same       HandOver for the other
    any        GiveWay                              ended      HandOver
    running    Started by a majority                running    Committed
    any        news of another attempt              same       none
    any        Warn                                 same       Notice for the others, kept
    any        timer before its time                same       SetTimer again
    ended      Join, others go on                   ended      HandOver
    ended      anything                             ended      none (Join: Reject)

Its data is in state.py. wait.py and quorum.py decide when an attempt may start,
attempt.py what follows one, leaving.py what a node that leaves means, leader_conflict.py which of
two leaders goes on. A member reports every exit of an attempt before it says that
the attempt is stopped.
"""

from __future__ import annotations

from paddock.core.attempt.attempt import NextAttempt, decide_end, decide_next
from paddock.core.attempt.supervisor import SIGTERM
from paddock.core.job import LEASE_SECONDS
from paddock.core.rendezvous import leaving
from paddock.core.rendezvous.leader_conflict import resolve_conflict
from paddock.core.rendezvous.messages import (
    LOSSES,
    CannotRun,
    Close,
    Committed,
    End,
    Exited,
    GiveWay,
    Join,
    LeaderConflict,
    Leave,
    Lost,
    Notice,
    Received,
    Reject,
    Send,
    SetTimer,
    Stalled,
    Started,
    Stop,
    Stopped,
    Warn,
)
from paddock.core.rendezvous.quorum import NOTHING, SHORT_GRACE_SECONDS
from paddock.core.rendezvous.state import MembershipState
from paddock.core.rendezvous.wait import RendezvousWait
from paddock.errors import EXIT_DEADLINE, EXIT_OWN_FAULT, EXIT_USAGE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from paddock.core.attempt.attempt import Why
    from paddock.core.attempt.exits import Exit
    from paddock.core.attempt.policy import Verdict
    from paddock.core.job import Job
    from paddock.core.rendezvous.member_table import MemberEntry
    from paddock.core.rendezvous.messages import Action, Event, HandOver
    from paddock.core.rendezvous.quorum import LeaderHandoff
    from paddock.core.rendezvous.state import Phase

# A member gets this much longer than its own grace to say that its processes are gone.
STOP_MARGIN_SECONDS = 10.0
WARNINGS_MAX = 16  # of a job: each names a process, and may recur with every attempt


class Membership:
    """The state of one job; owned by one thread. ``handle`` takes an event, returns actions."""

    def __init__(
        self,
        job: Job,
        now: float,
        *,
        uid: str = "",
        fingerprint: tuple[tuple[str, str], ...] = (),
        handoff: LeaderHandoff | None = None,
    ) -> None:
        self.phase: Phase = "gathering"
        self.state = MembershipState(job, now, uid, fingerprint, handoff or NOTHING)
        state = self.state
        self._wait = RendezvousWait(state.member_table, state.quorum, state.used_budget, now)
        self._timer_at: float | None = None
        self._successor_order: HandOver | None = None  # sent when this leader stepped down

    @property
    def attempt(self) -> int:
        """The attempt that runs, or is to come."""
        return self.state.attempt

    @property
    def active_ids(self) -> tuple[int, ...]:
        return tuple(self.state.current.members)

    # ----------------------------------------------------------------- events

    def handle(self, event: Event, now: float) -> list[Action]:
        """Take one event at monotonic second ``now``; return what to do, in order."""
        if isinstance(event, Received) and isinstance(event.message, Join):
            return self._on_join(event, event.message, now)
        if self.phase == "ended":
            return []
        if isinstance(event, Received):
            return self._on_heard(event, event.message, now)
        if isinstance(event, Lost):
            return self._on_lost(event, now)
        if isinstance(event, GiveWay):
            return self._give_way(event.order)
        return self._on_timer(dict(event.silent), now)

    def _on_heard(self, heard: Received, message: object, now: float) -> list[Action]:
        state, member = self.state, heard.member
        if isinstance(message, Leave):
            return self._on_leave(heard, message, now)
        if isinstance(message, LeaderConflict):
            return self._on_conflict(member, message)
        if isinstance(message, Warn):
            return self._on_warning(member, message)
        if isinstance(message, CannotRun):
            at_ns, code = int(now * 1e9), message.exit_code
            lost = Lost(member, at_ns, "cannot-run", message.message, exit_code=code)
            return self._on_lost(lost, now)
        if member not in state.current.members:
            return []
        if isinstance(message, Exited) and message.exit.attempt == self.attempt:
            return self._on_exited(message.exit, now)
        if isinstance(message, Stopped) and message.attempt == self.attempt:
            state.member_table.peers[member].host = message.host
            state.current.unstopped.discard(member)
            return self._if_all_stopped(now)
        if isinstance(message, Stalled) and heard.attempt == self.attempt:
            state.current.stall(member, message.text, message.has_suspect)
            return self._stop_if_stalled(now)
        if isinstance(message, Started) and message.attempt == self.attempt:
            return self._on_started(member, message.digest, now)
        return []

    def _on_warning(self, member: int, warning: Warn) -> list[Action]:
        state, peer = self.state, self.state.member_table.peers.get(member)
        if peer is None or len(state.warnings) >= WARNINGS_MAX:
            return []
        state.warnings = (*state.warnings, (peer.host.name, warning.text))
        others = tuple(other for other in state.member_table.peers if other != member)
        return [Send(others, Notice(f"{peer.host.name}: {warning.text}", is_warning=True))]

    def _on_join(self, heard: Received, join: Join, now: float) -> list[Action]:
        state, member = self.state, heard.member
        if member in state.member_table.peers:
            return []  # it said so before
        if self._successor_order is not None:
            return [Send((member,), self._successor_order)]
        former = state.member_table.former(join.key)
        refused = state.member_table.refusal(join, former)
        if self.phase == "ended":
            refused = Reject("the job has ended", exit_code=EXIT_OWN_FAULT)
        if refused is not None:
            return [Send((member,), refused), Close(member)]
        if state.quorum.is_behind(join):
            self.phase = "ended"
            text = f"{join.host.name} has been in attempt {join.started} of another coordinator"
            return [self._set_timer(None), End(state.summary().failed(text), True, text)]
        actions = self._replace(former, now) if former is not None else []
        peer = state.member_table.add(member, join, is_self=heard.is_self)
        state.quorum.gone.discard(join.key)
        if self.phase == "gathering":
            # The leader before may have started attempts that left no record.
            state.attempt = max(state.attempt, heard.attempt + 1)
        self._wait.change(now)
        if actions:
            return actions
        if self.phase == "gathering":
            if state.member_table.own_leaver and state.member_table.can_take_over:
                return self._release_leavers(self.attempt, now)
            return self._try_start(now)
        if self.phase == "running" and state.can_grow:
            return self._stop("grow", f"node {state.member_table.label(peer)} joined", now)
        return [self._note(f"node {join.host.name} is standing by")]

    def _on_conflict(self, member: int, conflict: LeaderConflict) -> list[Action]:
        state, own = self.state, self.state.member_table.own
        if own is None or own.leaving or own.key == conflict.key:
            return []
        claim = state.conflict_at(own.key, own.host.address, own.listen_port)
        order = resolve_conflict(conflict, claim, state.quorum.last, state.attempt + 1)
        if order is not None and order.keys[0] == conflict.key:  # it goes on, we do not
            return self._give_way(order)
        return [Send((member,), order), Close(member)] if order is not None else []

    def _give_way(self, order: HandOver) -> list[Action]:
        """Step down: another node leads; what runs here ends at once."""
        self.phase = "ended"
        self._successor_order = order
        verdict = self.state.summary().cancelled(0, "another node coordinates")
        told = Send(tuple(self.state.member_table.peers), order)
        return [self._set_timer(None), told, End(verdict, True)]

    def _replace(self, former: int, now: float) -> list[Action]:
        """A launcher that joins again has ended its part of before, and its connection is gone."""
        if self.phase in ("running", "stopping"):
            return self._on_lost(Lost(former, int(now * 1e9), "closed", "it joined again"), now)
        self.state.member_table.remove(former)
        return []

    def _on_exited(self, exit_: Exit, now: float) -> list[Action]:
        found = self.state.add_exit(exit_)
        if found is None:
            return self._stop_if_stalled(now)
        return self._stop(*found, now)  # running -> stopping

    def _stop_if_stalled(self, now: float) -> list[Action]:
        text = self.state.current.stall_text if self.phase == "running" else ""
        return self._stop("stall", text, now) if text else []  # running -> stopping

    def _on_started(self, member: int, digest: int, now: float) -> list[Action]:
        """Every node must have made the same plan. One that has not is stopped, then let go."""
        state, peer = self.state, self.state.member_table.peers[member]
        if not state.current.is_other_plan(digest):
            is_committed = state.has_votes and state.quorum.add_started(peer.key)
            return [Send(self.active_ids, Committed(self.attempt))] if is_committed else []
        peer.is_expelled = True
        lost = Lost(member, int(now * 1e9), "other-plan")
        state.current.add_loss(peer, lost)
        return self._stop("failure", f"node {peer.host.name} {lost.how}", now)

    def _on_lost(self, lost: Lost, now: float) -> list[Action]:
        state = self.state
        attempt = state.current
        was_in, was_unstopped = lost.member in attempt.members, lost.member in attempt.unstopped
        peer = state.lose(lost)
        if peer is None:
            return []
        self._wait.change(now)
        if not was_in:
            note = self._note(f"node {peer.host.name} {lost.how}")
            return [note, *self._try_start(now)] if self.phase == "gathering" else [note]
        if not was_unstopped:
            return []  # it had ended its part already; only the goodbye is missing
        text = f"node {peer.assigned_rank} ({peer.host.name}) {lost.how}"
        # A live member breaks its link when another leader is elected, as a cut does.
        is_hasty = lost.ending in ("silent", "cut") and state.job.rendezvous.kind == "etcd"
        grace = SHORT_GRACE_SECONDS if is_hasty or not self._wait.has_quorum else None
        if self.phase == "running":
            return self._stop("failure", text, now, grace)  # running -> stopping
        again = Send(self.active_ids, Stop(self.attempt, text, grace_seconds=grace))
        return [*([again] if grace else []), *self._if_all_stopped(now)]

    def _on_leave(self, heard: Received, leave: Leave, now: float) -> list[Action]:
        state, member = self.state, heard.member
        peer = state.member_table.peers.get(member)
        if peer is None:  # out, but it may lead on: then no other node can be told to stop
            return self._cancel(leave, "the coordinator", now) if heard.is_self else []
        actions = []
        if not peer.leaving or (leave.force and peer.is_self and self.phase == "gathering"):
            actions = self._leave(member, peer, leave, now)
        if not leave.force or self.phase != "stopping":
            return actions
        is_ending = state.asked[0] or state.current.why in ("cancel", "deadline", "success")
        hurried = self.active_ids if is_ending else (member,)
        return [*actions, Send(hurried, Stop(self.attempt, "asked twice", force=True))]

    def _leave(self, member: int, peer: MemberEntry, leave: Leave, now: float) -> list[Action]:
        name = self.state.member_table.label(peer)
        peer.leaving, peer.loss = leave.signal, leave.lost
        follows = leaving.after_leave(
            self.state.member_table, self.phase, peer, force=leave.force,
            has_part=member in self.state.current.members, has_quorum=self._wait.has_quorum,
        )  # fmt: skip
        if follows == "goes":
            return leaving.release((member,), self.state.let_go(member))
        if follows == "stop":
            how = LOSSES[peer.loss] if peer.loss else "leaves"
            text, signal = f"node {name} {how}", leave.signal
            return self._stop("shrink", text, now, signal=signal)  # running -> stopping
        if follows == "go on":
            return self._release_leavers(self.attempt + (self.phase == "backoff"), now)
        return self._cancel(leave, f"node {name}", now) if follows == "cancel" else []

    def _cancel(self, leave: Leave, who: str, now: float) -> list[Action]:
        """Cancel the job: it was told to stop, or cannot go on without a node that has to leave."""
        state = self.state
        state.ask(leave.signal, who, leave.lost)
        if self.phase in ("running", "stopping"):
            return self._stop("cancel", state.asked[1], now, signal=leave.signal)
        return self._finish(state.summary().ended_as_asked())  # gathering | backoff -> ended

    def _on_timer(self, silent: dict[int, float], now: float) -> list[Action]:
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
            return self._stop("deadline", self.state.used_budget.over_text, now)
        return self._expel(silent, now)

    def _expel(self, silent: dict[int, float], now: float) -> list[Action]:
        """Go on without the nodes whose processes did not end in time (stuck in the kernel, say),
        or that a broken network keeps from saying so. silent: seconds, by member.
        """
        state = self.state
        attempt = state.current
        late = [member for member in attempt.members if member in attempt.unstopped]
        at_ns = max((e.at_ns for e in attempt.exits), default=0)
        verdict = state.summary().failed("this node did not stop its processes in time")
        actions: list[Action] = []
        lease = state.job.rendezvous.lease_seconds
        for member in late:
            lost = Lost(member, at_ns, "expelled")
            seconds = silent.get(member, 0.0)
            if seconds >= LEASE_SECONDS:
                since_ns = int((now - seconds + LEASE_SECONDS) * 1e9)
                # The order to stop has not come through: what runs there ends with its lease.
                lost = Lost(member, since_ns, "unheard", f"{seconds:.1f}", now + lease - seconds)
            actions += self._on_lost(lost, now)
        if self.phase == "ended":
            return actions  # they get the job's verdict, like all others
        return [*leaving.release(late, verdict), *actions]

    # ------------------------------------------------------------ rendezvous

    def _try_start(self, now: float) -> list[Action]:
        state = self.state
        decision = self._wait.look(now, state.current.reason)
        if state.member_table.own_leaver and (decision.starts or decision.gives_up):
            if state.member_table.can_take_over:
                return self._release_leavers(self.attempt, now)
            return self._finish(state.summary().ended_as_asked())  # no node came to take over
        if decision.starts:
            return self._start(now)
        if decision.gives_up or decision.is_over:
            return self._fail(EXIT_DEADLINE, decision.text)
        timer = self._set_timer(decision.wake_at)
        return [timer, *([self._note(decision.text)] if decision.text else [])]

    def _start(self, now: float) -> list[Action]:
        misfit = self.state.find_misfit()
        if misfit:
            return self._fail(EXIT_USAGE, misfit)
        self.phase = "running"  # gathering -> running
        start = self.state.begin(now)
        return [Send(self.active_ids, start), self._set_timer(self.state.used_budget.deadline_at)]

    # -------------------------------------------------------------- stopping

    def _stop(
        self,
        why: Why,
        reason: str,
        now: float,
        grace_seconds: float | None = None,
        *,
        signal: int = SIGTERM,
    ) -> list[Action]:
        if self.phase != "running":
            return []  # the first reason wins
        self.phase = "stopping"  # running -> stopping
        state = self.state
        state.current.why, state.current.reason = why, reason
        takes_stacks = why in ("failure", "deadline") and grace_seconds is None
        stop = Stop(
            self.attempt, reason, grace_seconds=grace_seconds, takes_stacks=takes_stacks,
            signal=signal,
        )  # fmt: skip
        timer = self._set_timer(now + state.job.grace_seconds + STOP_MARGIN_SECONDS)
        return [Send(self.active_ids, stop), timer, *self._if_all_stopped(now)]

    def _if_all_stopped(self, now: float) -> list[Action]:
        if self.state.current.unstopped:
            return []
        if self.phase == "stopping":
            return self._decide_next(now)
        verdict = decide_end(self.state.summary())
        return self._finish(verdict)  # running -> ended

    def _decide_next(self, now: float) -> list[Action]:
        """Judge the stopped attempt: end the job, or prepare another attempt."""
        state = self.state
        found = decide_next(state.summary(now))
        if not isinstance(found, NextAttempt):
            return self._finish(found)
        state.used_budget.add(found.again.used, is_restart=found.is_restart, futile=found.futile)
        actions: list[Action] = []
        if found.expelled is not None:  # elastic level 0: the node of the root cause leaves
            member = state.member_table.member_at(found.expelled)
            state.member_table.remove(member)
            actions = leaving.release((member,), state.summary().failed("", found.culprit))
        actions += self._release_leavers(self.attempt + 1, now)
        if self.phase == "ended":
            return actions  # another node goes on with it
        state.current.end()
        actions.append(self._note(f"attempt {self.attempt + 1}: {found.text}", found.culprit))
        delay = found.again.delay_seconds
        if not delay:
            return actions + self._gather(now)
        self.phase = "backoff"  # stopping -> backoff
        return [*actions, self._set_timer(state.used_budget.until(now + delay))]

    def _release_leavers(self, next_attempt: int, now: float) -> list[Action]:
        """Let the members go that have to; then hand over, if our own node has to leave."""
        state, member_table = self.state, self.state.member_table
        actions: list[Action] = []
        for member in member_table.leavers:
            actions += leaving.release((member,), state.let_go(member))
        own = member_table.own_leaver
        if own is None:
            return actions
        self.phase = "ended"  # stopping | gathering | backoff -> ended, for this coordinator only
        budget = state.used_budget.message(now)
        order = leaving.hand_over(member_table, state.quorum, budget, next_attempt, now)
        self._successor_order = order
        farewell = leaving.farewell(member_table, own, order, state.goodbye(own))
        return [*actions, self._set_timer(None), *farewell]

    def _gather(self, now: float) -> list[Action]:
        """stopping | backoff -> gathering, for the next attempt."""
        self.phase = "gathering"
        self.state.attempt += 1
        self._wait.begin(now)
        return self._try_start(now)

    def _set_timer(self, at: float | None) -> SetTimer:
        self._timer_at = at
        return SetTimer(at)

    def _note(self, text: str, culprit: Exit | None = None) -> Send:
        return Send(tuple(self.state.member_table.peers), Notice(text, culprit))

    def _fail(self, exit_code: int, text: str) -> list[Action]:
        return self._finish(self.state.summary().verdict("fail", exit_code, text))

    def _finish(self, verdict: Verdict) -> list[Action]:
        self.phase = "ended"
        return [self._set_timer(None), End(verdict)]
