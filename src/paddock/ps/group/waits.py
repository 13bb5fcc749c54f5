"""Members and their waits, and the ends that time puts to a wait. Pure; state.py builds on it.

Volatile, but for the members: trainers say again what they wait for after a restart of the
coordinator.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from paddock.ps.group.barriers import Barriers
from paddock.ps.group.messages import (
    Fail,
    GroupBegan,
    GroupMember,
    GroupRules,
    MemberExpelled,
    Output,
    RequestRefused,
    StepCommitted,
)
from paddock.ps.strategies import CLOCKED

if TYPE_CHECKING:
    from paddock.ps.wire.errors import Code

# A coordinator that got fewer ticks was itself stopped, and blames nobody for that time.
TICKS_PER_DEADLINE = 4
# For so long everybody must have waited, in ticks of at most a second, before they are told.
STUCK_SECONDS = 3.0
STUCK = "everybody waits for one another: "
# Stands for the trainers that did not come, among those that are silent.
NOBODY = -1


@dataclass(frozen=True, slots=True)
class Enrolled:
    """joined: the step before its first. leaving: its last step, already arrived at."""

    incarnation: int
    joined: int
    leaving: int | None = None


@dataclass(eq=False)
class DurableGroupState:
    """All that is durable of the coordinator: changed by apply alone.

    is_started: as many have come as are waited for, and not all have left.
    """

    step: int = 0
    is_started: bool = False
    _members: dict[int, Enrolled] = field(default_factory=dict)
    # Of each trainer: its newest incarnation, and how it ended.
    _known: dict[int, tuple[int, str]] = field(default_factory=dict)
    _history: list[StepCommitted] = field(default_factory=list)
    barriers: Barriers = field(default_factory=Barriers)  # Who waits there is volatile.


class GroupWaits(DurableGroupState):
    """The members, what each waits for, and since when nothing was heard of it."""

    def __init__(self, rules: GroupRules) -> None:
        super().__init__()
        self.rules = rules
        self.forget()

    def forget(self) -> None:
        """After recovery: what trainers have said and was not logged is unknown."""
        self.barriers.waiting.clear()
        self._clocks: dict[int, int] = {}  # the newest step arrived at
        self._leads: dict[int, int] = {}  # steps it lacked at a barrier, and need not catch up
        self._waiting: dict[int, int] = {}  # Arrive not answered
        self._ended: dict[int, int] = {}  # passes, of who has arrived and said so
        self._asking: dict[int, int] = {}  # Join not answered: its incarnation
        self._seen: dict[int, float] = {}
        self._silent: dict[int, str] = {}  # policy "fail": why the job has failed
        self._ticked: float | None = None
        self._gathers_since: float | None = None
        self._limits: dict[int, float] = {}  # of who waits at a barrier: until when
        self._stuck_seconds = 0.0
        self._held_until: float | None = None

    @property
    def members(self) -> tuple[GroupMember, ...]:
        """The members, by number."""
        return tuple((t, m.incarnation) for t, m in sorted(self._members.items()))

    @property
    def failure(self) -> str:
        """Why the job has failed; empty while it has not."""
        return "; ".join(self._silent[t] for t in sorted(self._silent))

    @property
    def everyone(self) -> tuple[int, ...]:
        """The members that a barrier waits for, by number; none while the first ones gather."""
        staying = sorted(t for t, m in self._members.items() if m.leaving is None)
        return tuple(staying) if self.is_started else ()

    @property
    def _is_sync(self) -> bool:
        return self.rules.strategy == "sync"

    @property
    def _is_clocked(self) -> bool:
        return self.rules.strategy in CLOCKED

    def _settle(self) -> list[Output]:
        """The outputs that have become possible."""
        raise NotImplementedError

    def _hear(self, trainer: int, incarnation: int, now: float) -> None:
        member = self._members.get(trainer)
        if member is not None and member.incarnation == incarnation:
            self._seen[trainer] = now
            self._silent.pop(trainer, None)  # It was slow, not gone.

    def _waits(self, trainer: int) -> bool:
        return trainer in self._waiting or trainer in self.barriers.waiting

    def _clock(self, trainer: int) -> int:
        """The newest step that it has arrived at, by its own count."""
        return self._clocks.get(trainer, self._members[trainer].joined)

    def _level(self, trainer: int) -> int:
        """The same, with what the others had more of before a barrier that they passed together."""
        return self._clock(trainer) + self._leads.get(trainer, 0)

    def _rests(self, trainer: int) -> bool:
        """True when it waits at a barrier where the others will come, and delays none of them."""
        reach = self.barriers.waiting.get(trainer)
        return not (self._is_sync or reach is None or self.barriers.is_late(reach))

    @property
    def _is_stuck(self) -> bool:
        """Everybody waits; with _settle's other rules looked at, for ever."""
        is_free = self._held_until is None and bool(self.everyone)
        return is_free and all(self._waits(trainer) for trainer in self.everyone)

    # -------------------------------------------------------------------------------------- time

    def _tick(self, now: float) -> list[Output]:
        limit = self.rules.silent_seconds
        gap = 0.0 if self._ticked is None else now - self._ticked
        self._ticked = now
        if limit and gap > limit / TICKS_PER_DEADLINE:
            self._seen = {t: min(now, at + gap) for t, at in self._seen.items()}
        outputs = self._tick_gathering(now)
        if self._held_until is not None and now > self._held_until:
            self._held_until = None  # Whoever asked for it has gone.
            outputs += self._settle()
        is_anyone_awaited = self._is_clocked or bool(self.barriers.waiting)
        for trainer, member in sorted(self._members.items()):
            waits = self._waits(trainer) or trainer in self._asking or member.leaving is not None
            if waits or not limit or not is_anyone_awaited:
                self._seen[trainer] = now  # It waits for us.
            elif now - self._seen.setdefault(trainer, now) > limit and trainer not in self._silent:
                reason = f"silent for {limit:g} s"
                if self.rules.on_silence == "rescale":
                    outputs.append(MemberExpelled(trainer, member.incarnation, reason))
                else:
                    self._silent[trainer] = f"trainer {trainer} was {reason}"
                    outputs.append(Fail(self._silent[trainer]))
        if self._silent:
            return outputs + self._refuse_all("failed", self.failure)
        return outputs + self._tick_limits(now) + self._tick_stuck(min(gap, 1.0))

    def _tick_gathering(self, now: float) -> list[Output]:
        """Trainers that never come are silent ones too."""
        if not self._members or self.is_started:
            self._gathers_since = None
            return []
        if self._gathers_since is None:
            self._gathers_since = now
        limit = self.rules.gather_seconds
        if not limit or now - self._gathers_since <= limit or NOBODY in self._silent:
            return []
        if self.rules.on_silence == "rescale":
            return [GroupBegan()]
        count = f"{len(self._members)} of {self.rules.trainers}"
        self._silent[NOBODY] = f"only {count} trainers have joined in {limit:g} s"
        return [Fail(self._silent[NOBODY])]

    def _tick_limits(self, now: float) -> list[Output]:
        """The trainers whose own limit of a barrier's wait is over."""
        refused: list[Output] = []
        for trainer, reach in sorted(self.barriers.waiting.items()):
            if now > self._limits[trainer]:
                del self.barriers.waiting[trainer]
                there = {t for t, one in self.barriers.waiting.items() if one.name == reach.name}
                missing = [str(t) for t in self.everyone if t not in (*there, trainer)]
                who = f"trainer {', '.join(missing)} has" if missing else "some have"
                reason = f"barrier {reach.name!r}: {who} not come in {reach.seconds:g} s"
                refused.append(RequestRefused(trainer, reach.incarnation, "deadline", reason))
        return refused

    def _tick_stuck(self, seconds: float) -> list[Output]:
        """Everybody waits, and nobody is left who could end that."""
        self._stuck_seconds = self._stuck_seconds + seconds if self._is_stuck else 0.0
        if self._stuck_seconds < STUCK_SECONDS:
            return []
        self._stuck_seconds = 0.0
        places = {t: f"step {step}" for t, step in self._waiting.items()}
        places |= {t: f"barrier {reach.name!r}" for t, reach in self.barriers.waiting.items()}
        told = ", ".join(f"trainer {t} waits at {places[t]}" for t in sorted(places))
        reason = STUCK + told
        return [Fail(reason), *self._refuse_all("failed", reason)]

    def _refuse_all(self, code: Code, reason: str) -> list[Output]:
        """All that wait, also to join, hear why it is in vain."""
        incarnations = dict(self._asking)
        incarnations |= {t: m.incarnation for t, m in self._members.items() if self._waits(t)}
        for waiting in (self._asking, self._waiting, self.barriers.waiting):
            waiting.clear()
        return [
            RequestRefused(trainer, incarnation, code, reason)
            for trainer, incarnation in sorted(incarnations.items())
        ]
