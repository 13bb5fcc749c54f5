"""The coordinator: who takes part, and when a trainer may go on. Pure; the time is an input.

`handle` takes an event and changes nothing durable: it returns replies, and records to be
logged. `apply` takes a logged record; it is all of the durable state (`to_json`), and what it
returns is treated like what `handle` returns, except in recovery, where it is dropped and
`forget` is called at the end. `carry_out` is that loop.

    event           of                        when                             output
    --------------  ------------------------  -------------------------------  --------------------
    JoinRequest     the same incarnation      any                              JoinAccepted again
    JoinRequest     a newer incarnation       at once (its step starts anew)   MemberJoined
    JoinRequest     a newcomer                fewer members than needed        MemberJoined
    JoinRequest     a newcomer                otherwise                        MemberJoined, after a
                                                                               StepCommitted
    JoinRequest     an older or expelled one  any                              RequestRefused
    LeaveRequest    a member                  any; after its arrived step      MemberLeft
    Arrive          a member                  its step is the next one         none until all have
    Arrive          a member                  all have arrived                 StepCommitted
    Arrive          of a committed step       any                              Release, its members
    Arrive          no member                 any                              RequestRefused
    Reach           a member                  the others do not wait there     none until all do
    Reach           a member                  all wait at this barrier         BarrierOpened
    Reach           a late incarnation        the others are past it           Release
    Reach           answered before           any                              Release
    ConnectionLost  who waits at a barrier    any                              it waits no more
    Hold                                      no step is done until it ends    perhaps StepCommitted
    Tick                                      a member is silent: "fail"       Fail, RequestRefused
    Tick                                      a member is silent: "rescale"    MemberExpelled
    Tick                                      too few have come: "fail"        Fail, RequestRefused
    Tick                                      too few have come: "rescale"     GroupBegan
    Tick                                      who waits has set a limit        RequestRefused
    Tick                                      all wait, for one another        Fail, RequestRefused

    record          effect                                           output
    --------------  -----------------------------------------------  ------------------------------
    MemberJoined    a member, older ones are fenced                  JoinAccepted
    MemberLeft      no member, now or after its step                 perhaps StepCommitted, Release
    MemberExpelled  no member; its part of the open step is void     perhaps StepCommitted, Release
    StepCommitted   the step is done                                 Release, then MemberJoined
    BarrierOpened   these have passed the barrier                    Release to them
    GroupBegan      the job goes on as if enough had come            what has waited for them

A late incarnation (barriers.py) calls the barriers at the start of the program again. It passes
them when nobody else can come: at once where trainers count no steps, else as soon as everybody
waits, which is soon, for nobody goes further than a step or N without it.

Where trainers count no steps nobody is silent, but while somebody waits at a barrier.
"All wait" is said after STUCK_SECONDS: until then a dead one's connection has closed
(ConnectionLost).

Only "sync" commits. The others release Arrive(c) when the slowest member's clock is >= c - N;
async, half_async and geo at once. A newcomer among them starts at the slowest clock known.
Who waits at a barrier has no batch left before it and holds nobody back; who came late does, so
that it passes soon. All pass a barrier level: at the highest clock, however many batches each had.
Not durable: arrivals, clocks, signs of life, unanswered joins. Trainers send them again after a
restart.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from paddock.ps.group.barriers import BARRIERS_MAX, Barriers
from paddock.ps.group.messages import (
    Arrive,
    BarrierOpened,
    ConnectionLost,
    Event,
    Fail,
    GroupBegan,
    GroupRules,
    Heard,
    Hold,
    JoinAccepted,
    JoinRequest,
    LeaveRequest,
    MemberExpelled,
    MemberJoined,
    MemberLeft,
    Output,
    Reach,
    Record,
    Release,
    Reply,
    RequestRefused,
    StepCommitted,
)
from paddock.ps.group.waits import NOBODY, DurableGroupState, Enrolled, GroupWaits
from paddock.ps.wire.values import to_json, value_from

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# StepCommitted steps whose members are kept for repeats. A member is never more than one behind.
HISTORY = 16


class GroupState(GroupWaits):
    """The state machine of the server that decides.

    >>> group = GroupState(GroupRules("sync", trainers=1))
    >>> list(carry_out(group.handle(JoinRequest(0, 7), 0.0), group.apply))
    [JoinAccepted(trainer=0, incarnation=7, step=0, commit=None)]
    >>> group.handle(Arrive(0, 7, 1), 0.0)
    [StepCommitted(step=1, members=((0, 7),), ended=())]
    """

    # ----------------------------------------------------------------------------- what is known

    @property
    def last_commit(self) -> StepCommitted | None:
        """The newest step done under sync."""
        return self._history[-1] if self._history else None

    @property
    def slowest(self) -> int:
        """The step that every member has reached: committed, or the lowest clock."""
        if self._is_sync or not self.is_started:
            return self.step
        return min(map(self._clock, self._members))

    def standing(self, trainer: int) -> tuple[bool, bool]:
        """(whether it takes part, whether its newest incarnation has left or was expelled)."""
        is_here = trainer in self._members or trainer in self._asking
        return is_here, not is_here and bool(self._known.get(trainer, (-1, ""))[1])

    def describe(self) -> dict[str, Any]:
        """The members, how far each is, and which of them keep the others waiting; for people."""
        awaited: list[int] = []
        if self._waiting and self._is_clocked:
            clocks = {t: self._level(t) for t in sorted(self._members) if not self._rests(t)}
            lowest = min(clocks[t] for t in self._waiting)
            needed = lowest if self._is_sync else lowest - self.rules.staleness
            awaited = [t for t in clocks if t not in self._waiting and clocks[t] < needed]
        elif self.barriers.waiting:
            awaited = [t for t in self.everyone if t not in self.barriers.waiting]
        return {
            "strategy": self.rules.strategy,
            "staleness": self.rules.staleness,
            "step": self.slowest,
            "expected": self.rules.trainers,
            "gathering": not self.is_started,
            "members": [
                {
                    "trainer": trainer,
                    "incarnation": member.incarnation,
                    "step": max(self.step, member.joined)
                    if self._is_sync
                    else self._clock(trainer),
                    "arrived": self._waiting.get(trainer),
                    "leaving": member.leaving is not None,
                }
                for trainer, member in sorted(self._members.items())
            ],
            "asking": sorted(self._asking),
            "waiting_for": awaited,
            "failure": self.failure,
            "barriers": self.barriers.describe(),
        }

    # ------------------------------------------------------------------------------------ events

    def handle(self, event: Event, now: float) -> list[Output]:
        """The outputs that follow from an event. now: seconds of a clock that does not go back."""
        if isinstance(event, JoinRequest):
            return self._join(event, now)
        if isinstance(event, LeaveRequest):
            return self._leave(event)
        if isinstance(event, Arrive):
            self._hear(event.trainer, event.incarnation, now)
            return self._arrive(event)
        if isinstance(event, Reach):
            self._hear(event.trainer, event.incarnation, now)
            return self._reach(event, now)
        if isinstance(event, ConnectionLost):
            reach = self.barriers.waiting.get(event.trainer)
            if reach is not None and reach.incarnation == event.incarnation:
                del self.barriers.waiting[event.trainer]  # It asks again, or is dead.
            return []
        if isinstance(event, Heard):
            self._hear(event.trainer, event.incarnation, now)
            return []
        if isinstance(event, Hold):
            self._held_until = now + event.seconds if event.seconds else None
            return self._settle()
        return self._tick(now)

    def _join(self, event: JoinRequest, now: float) -> list[Output]:
        trainer, incarnation = event.trainer, event.incarnation
        member = self._members.get(trainer)
        if member is not None and member.incarnation == incarnation and member.leaving is None:
            self._hear(trainer, incarnation, now)
            return [self._welcome(trainer)]
        no = self._objection(trainer, incarnation, joining=True)
        if no is not None:
            return [no]
        if member is None and trainer not in self._asking:
            staying = sum(m.leaving is None for m in self._members.values())
            newcomers = sum(t not in self._members for t in self._asking)
            if staying + newcomers >= self.rules.trainers:
                reason = (
                    f"the job has its {self.rules.trainers} trainers; trainer {trainer} is one more"
                )
                return [RequestRefused(trainer, incarnation, "usage", reason)]
        older = self._asking.get(trainer, incarnation)
        self._asking[trainer] = incarnation
        self._silent.pop(trainer, None)
        superseded = [fenced(trainer, older)] if older < incarnation else []
        return [*superseded, *self._settle()]

    def _leave(self, event: LeaveRequest) -> list[Output]:
        trainer = event.trainer
        if self._asking.get(trainer) == event.incarnation:
            del self._asking[trainer]
        member = self._members.get(trainer)
        if member is None or member.incarnation != event.incarnation or member.leaving is not None:
            return []  # It has left already.
        step = self._clock(trainer)
        return [
            MemberLeft(trainer, event.incarnation, max(step, self.step) if self._is_sync else step)
        ]

    def _arrive(self, event: Arrive) -> list[Output]:
        trainer, incarnation, step = event.trainer, event.incarnation, event.step
        if self._is_sync:
            for done in self._history:
                if done.step == step and (trainer, incarnation) in done.members:
                    return [Release(trainer, incarnation, step, done)]
        no = self._objection(trainer, incarnation, joining=False)
        if no is None and self._is_sync and step != self.step + 1:
            reason = f"trainer {trainer} arrives at step {step}; the next one is {self.step + 1}"
            no = RequestRefused(trainer, incarnation, "usage", reason)
        if no is not None:
            return [no]
        self._clocks[trainer] = max(step, self._clocks.get(trainer, 0))
        self._waiting[trainer] = step
        if event.ended:
            self._ended[trainer] = event.ended
        self.barriers.waiting.pop(trainer, None)
        return self._settle()

    def _reach(self, event: Reach, now: float) -> list[Output]:
        trainer, incarnation = event.trainer, event.incarnation
        no = self._objection(trainer, incarnation, joining=False)
        if no is None and self.barriers.is_one_too_many(event.name):
            reason = f"barrier {event.name!r}: there are {BARRIERS_MAX} names already"
            no = RequestRefused(trainer, incarnation, "usage", reason)
        if no is not None:
            return [no]
        if self.barriers.has_passed(event):
            return [Release(trainer, incarnation, event.step)]
        self._waiting.pop(trainer, None)
        if self.barriers.waiting.get(trainer) != event:  # Asked again, its time goes on.
            self._limits[trainer] = now + (event.seconds or float("inf"))
        self.barriers.waiting[trainer] = event
        if not self._is_sync:  # Clocks are not durable: nobody may wait for one who waits here.
            self._clocks[trainer] = max(event.step, self._clocks.get(trainer, 0))
        return self._settle()

    def _objection(self, trainer: int, incarnation: int, *, joining: bool) -> RequestRefused | None:
        """Why this incarnation of the trainer is refused; None when it is not."""
        newest, ended = self._known.get(trainer, (-1, ""))
        newest = max(newest, self._asking.get(trainer, -1))
        member = self._members.get(trainer)
        if incarnation < newest:
            return fenced(trainer, incarnation)
        if joining and member is not None and member.leaving is not None:
            ended = ended or "is leaving"
        if incarnation == newest and ended:
            reason = f"trainer {trainer} {ended}; it can join again as a new process"
            return RequestRefused(trainer, incarnation, "expelled", reason)
        if not joining and (member is None or member.incarnation != incarnation):
            reason = f"trainer {trainer} has not joined"
            return RequestRefused(trainer, incarnation, "usage", reason)
        if not joining and self._silent:
            return RequestRefused(trainer, incarnation, "failed", self.failure)
        return None

    # ----------------------------------------------------------------------------------- records

    def apply(self, record: Record) -> list[Output]:
        """Carry out a logged record; one that is applied already changes nothing."""
        if isinstance(record, MemberJoined):
            return self._joined(record) + self._settle()
        if isinstance(record, StepCommitted):
            return self._committed(record) + self._settle()
        if isinstance(record, BarrierOpened):
            self.barriers.apply(record)
            there = [trainer for trainer, _, _ in record.passed if trainer in self._members]
            highest = max(map(self._level, there), default=0)
            for trainer in there:
                self._leads[trainer] = highest - self._clock(trainer)
                self._seen.pop(trainer, None)  # Its time starts at the next tick.
            return [
                Release(t, incarnation, self.step) for t, incarnation, _ in record.passed
            ] + self._settle()
        if isinstance(record, GroupBegan):
            self.is_started = True
            return self._settle()
        member = self._members.get(record.trainer)
        if member is None or member.incarnation != record.incarnation:
            return []
        if isinstance(record, MemberExpelled):
            self._remove(record.trainer, f"was expelled ({record.reason})")
        elif self._is_sync and record.step > self.step:
            self._members[record.trainer] = replace(member, leaving=record.step)
        else:
            if not self._is_sync:
                self.step = max(self.step, record.step)
            self._remove(record.trainer, "has left")
        return self._settle()

    def _joined(self, record: MemberJoined) -> list[Output]:
        trainer = record.trainer
        outputs: list[Output] = []
        if record.incarnation > self._known.get(trainer, (-1, ""))[0]:
            if self._waits(trainer):
                outputs.append(fenced(trainer, self._members[trainer].incarnation))
            self._forget(trainer)
            self._known[trainer] = record.incarnation, ""
            self._members[trainer] = Enrolled(record.incarnation, record.step)
            if not self._is_sync:
                self._clocks[trainer] = record.step
                self.step = max(self.step, record.step)
            self.is_started = self.is_started or len(self._members) >= self.rules.trainers
            self._silent.pop(NOBODY, None)
            self._gathers_since = None
        member = self._members.get(trainer)
        is_it = member is not None and member.incarnation == record.incarnation
        return [*outputs, self._welcome(trainer)] if is_it else outputs

    def _committed(self, record: StepCommitted) -> list[Output]:
        if record.step <= self.step:
            return []
        self.step = record.step
        self._history = [*self._history[1 - HISTORY :], record]
        self._ended.clear()
        for trainer in [t for t, m in self._members.items() if m.leaving is not None]:
            self._remove(trainer, "has left")
        outputs: list[Output] = []
        for trainer, incarnation in record.members:
            self._waiting.pop(trainer, None)
            self._seen.pop(trainer, None)  # Its time starts at the next tick.
            outputs.append(Release(trainer, incarnation, record.step, record))
        return outputs + self._answer_joins()

    def _remove(self, trainer: int, how: str) -> None:
        self._known[trainer] = self._members.pop(trainer).incarnation, how
        self._forget(trainer)
        # With nobody left the next ones gather like the first ones.
        self._leads.pop(trainer, None)
        if not self._members:
            self.is_started = False
            self.barriers = Barriers()

    def _forget(self, trainer: int) -> None:
        self.barriers.waiting.pop(trainer, None)
        for facts in (self._clocks, self._waiting, self._seen, self._silent, self._ended):
            facts.pop(trainer, None)

    # ----------------------------------------------------------------------------- going forward

    def _settle(self) -> list[Output]:
        """The outputs that have become possible: a barrier, a commit, releases, a newcomer."""
        opened = self.barriers.complete(self.everyone)
        if opened is not None:
            return [opened]
        if self._is_sync and self._is_complete():
            return [StepCommitted(self.step + 1, self.members, self._all_ended())]
        if self._is_sync:
            found = self._answer_joins(only_members=self.is_started)
        else:
            found = self._answer_joins() + self._releases()
        if found or (self._is_clocked and not self._is_stuck):
            return found
        going = self.barriers.let_late_pass()
        return [Release(reach.trainer, reach.incarnation, reach.step) for reach in going]

    def _all_ended(self) -> tuple[tuple[int, int], ...]:
        """The passes that each trainer is through with, also one that is no member now."""
        ended = dict(self.last_commit.ended) if self.last_commit is not None else {}
        for trainer, passes in self._ended.items():
            ended[trainer] = max(passes, ended.get(trainer, 0))
        return tuple(sorted(ended.items()))

    def _is_complete(self) -> bool:
        return (
            self.is_started
            and self._held_until is None
            and not self._silent
            and all(
                trainer in self._waiting or member.leaving == self.step + 1
                for trainer, member in self._members.items()
            )
        )

    def _answer_joins(self, *, only_members: bool = False) -> list[Output]:
        """The join requests that fit. only_members: of newer incarnations, but no newcomer."""
        outputs: list[Output] = []
        count = len(self._members)
        steps = {trainer: self._first_clock(trainer) for trainer in sorted(self._asking)}
        for trainer, step in steps.items():
            is_newcomer = trainer not in self._members
            if step is None or (is_newcomer and (only_members or count >= self.rules.trainers)):
                continue
            count += is_newcomer
            outputs.append(MemberJoined(trainer, self._asking.pop(trainer), step))
        return outputs

    def _first_clock(self, trainer: int) -> int | None:
        """The step after which a joining trainer starts; None while that cannot be known.

        After a restart of the coordinator nobody's clock is known. A newcomer at an old clock would
        hold up the others until it had caught up: so the first Arrive of a member is waited for.
        """
        if self.rules.strategy != "staleness" or not self.is_started:
            return self.step
        if trainer in self._clocks:
            return self._clocks[trainer]
        if self._clocks:
            return min(self._level(t) for t in self._clocks)
        alive = [t for t in self._members if t != trainer and t not in self._asking]
        return None if alive else self.step

    def _releases(self) -> list[Output]:
        is_bounded = self.rules.strategy == "staleness"
        going = [self._level(t) for t in self._members if self.is_started and not self._rests(t)]
        bound = min(going, default=self.step) + self.rules.staleness
        outputs: list[Output] = []
        for trainer in sorted(self._waiting):
            if not is_bounded or self._waiting[trainer] + self._leads.get(trainer, 0) <= bound:
                step = self._waiting.pop(trainer)
                self._seen.pop(trainer, None)
                outputs.append(Release(trainer, self._members[trainer].incarnation, step))
        return outputs

    def _welcome(self, trainer: int) -> JoinAccepted:
        member = self._members[trainer]
        step = self.step if self._is_sync else self._clock(trainer)
        return JoinAccepted(trainer, member.incarnation, step, self.last_commit)

    # ------------------------------------------------------------------------ restart, snapshots

    def to_json(self) -> dict[str, Any]:
        """The durable state; equal states give equal data."""
        return to_json(self)

    @classmethod
    def from_json(cls, rules: GroupRules, data: dict[str, Any]) -> GroupState:
        """The coordinator that to_json gave, with nothing volatile."""
        group = cls(rules)
        vars(group).update(vars(value_from(DurableGroupState, data)))
        return group


def fenced(trainer: int, incarnation: int) -> RequestRefused:
    """The answer to a process after a newer one of the same trainer has joined."""
    reason = f"trainer {trainer} was started anew; this process is an older one"
    return RequestRefused(trainer, incarnation, "fenced", reason)


def carry_out(outputs: list[Output], write: Callable[[Record], list[Output]]) -> Iterator[Reply]:
    """Log and apply each record, and what follows from it; gives the replies as they come.

    write: logs and applies a record, and returns what `apply` does; by then it is as durable as
    acknowledged pushes are. What it raises ends the loop with the rest undone, which is safe:
    trainers ask again.
    """
    queue = deque(outputs)
    while queue:
        output = queue.popleft()
        if isinstance(output, (JoinAccepted, Release, RequestRefused, Fail)):
            yield output
        else:
            queue.extend(write(output))
