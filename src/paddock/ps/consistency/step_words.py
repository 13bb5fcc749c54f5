"""What goes into the chief (events) and comes out of it (records and replies). No I/O here.

An event is what a trainer or the clock says. A record changes the chief's durable state: it is
logged, then applied. A reply goes to one trainer and leaves nothing behind.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

from paddock.errors import Problem
from paddock.ps.protocol.frames import Op
from paddock.ps.protocol.refusals import Code

Strategy = Literal["sync", "half_async", "async", "geo", "staleness"]
STRATEGIES: tuple[Strategy, ...] = ("sync", "half_async", "async", "geo", "staleness")
# Their trainers count steps together.
CLOCKED = ("sync", "staleness")
SILENCES = ("fail", "rescale")
# (trainer, incarnation)
Member = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Rules:
    """How a job's trainers wait for one another.

    staleness: N of strategy "staleness": no trainer is more than N steps before the slowest.
    trainers: the first step waits until so many have joined; further ones are refused.
    silent_seconds: a trainer that is computing and says nothing for so long has failed; 0 never.
    gather_seconds: how long the first ones wait for the others; 0 for ever.
    on_silence: "fail" the job, or "rescale": expel the trainer and go on without it.
    """

    strategy: Strategy = "sync"
    staleness: int = 0
    trainers: int = 1
    silent_seconds: float = 60.0
    gather_seconds: float = 300.0
    on_silence: str = "fail"


def check_rules(rules: Rules) -> list[Problem]:
    """What is wrong with the rules.

    >>> [p.message for p in check_rules(Rules("sync", trainers=0))]
    ['trainers is 0']
    """
    found = []
    if rules.strategy not in STRATEGIES:
        found.append(
            Problem(f"strategy {rules.strategy!r} is unknown", "one of " + ", ".join(STRATEGIES))
        )
    if rules.staleness < 0:
        found.append(Problem(f"staleness is {rules.staleness}", "0 or more steps"))
    if rules.staleness and rules.strategy != "staleness":
        found.append(
            Problem(
                f"staleness is {rules.staleness}, but strategy is {rules.strategy!r}",
                "strategy='staleness'",
            )
        )
    if rules.trainers < 1:
        found.append(Problem(f"trainers is {rules.trainers}", "at least 1"))
    for name in ("silent_seconds", "gather_seconds"):
        seconds = getattr(rules, name)
        if not seconds >= 0:
            found.append(Problem(f"{name} is {seconds}", "0 for no limit"))
    if rules.on_silence not in SILENCES:
        found.append(Problem(f"on_silence is {rules.on_silence!r}", " or ".join(SILENCES)))
    return found


# ------------------------------------------------------------------------------------------ events


@dataclass(frozen=True, slots=True)
class Join:
    """A trainer wants to take part. Answered (Welcome, Refuse) at once or at a step boundary."""

    trainer: int
    incarnation: int


@dataclass(frozen=True, slots=True)
class Leave:
    """A trainer takes no further part; or the connection of an unanswered Join has closed."""

    trainer: int
    incarnation: int


@dataclass(frozen=True, slots=True)
class Arrive:
    """Every push of `step` has been acknowledged by every server."""

    trainer: int
    incarnation: int
    step: int


@dataclass(frozen=True, slots=True)
class Reach:
    """The trainer waits at a barrier. step: those it has done. turn: its own count, by name.

    is_fresh: this life has done no batch yet. seconds: how long it wants to wait; 0 has no limit.
    """

    trainer: int
    incarnation: int
    step: int
    name: str
    turn: int
    is_fresh: bool = False
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Gone:
    """The connection over which the trainer waited at a barrier has closed."""

    trainer: int
    incarnation: int


@dataclass(frozen=True, slots=True)
class Heard:
    """A sign of life: any frame of the trainer."""

    trainer: int
    incarnation: int


@dataclass(frozen=True, slots=True)
class Hold:
    """A save takes its cut: no step is to be done for so many seconds; 0: from now on again."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Tick:
    """Time passes; at least TICKS_PER_DEADLINE times in silent_seconds."""


Event = Join | Leave | Arrive | Reach | Gone | Heard | Hold | Tick

# ----------------------------------------------------------------------------------------- records


@dataclass(frozen=True, slots=True)
class Joined:
    """The trainer is a member; its first step is step + 1. Fences its older incarnations."""

    trainer: int
    incarnation: int
    step: int


@dataclass(frozen=True, slots=True)
class Left:
    """The trainer is no member after `step`."""

    trainer: int
    incarnation: int
    step: int


@dataclass(frozen=True, slots=True)
class Expelled:
    """The trainer is no member; it comes back with a new incarnation, or not at all."""

    trainer: int
    incarnation: int
    reason: str


@dataclass(frozen=True, slots=True)
class Committed:
    """The step is what these members contributed. members: in the order of their numbers."""

    step: int
    members: tuple[Member, ...]


@dataclass(frozen=True, slots=True)
class Opened:
    """Every member has reached the barrier, for the `turn`-th time. A record, for some may have
    gone on. passed: trainer, incarnation, and its own turn."""

    name: str
    turn: int
    passed: tuple[tuple[int, int, int], ...]


Record = Joined | Left | Expelled | Committed | Opened
_RECORDS: dict[Op, type[Joined] | type[Left] | type[Expelled]] = {
    Op.JOIN: Joined,
    Op.LEAVE: Left,
    Op.EXPEL: Expelled,
}
_OPS: dict[type, Op] = {cls: op for op, cls in _RECORDS.items()}


def record_to_json(record: Record) -> tuple[Op, dict[str, Any]]:
    """The op of the record's frame, and its body.

    >>> record_to_json(Committed(3, ((0, 17), (1, 18))))
    (<Op.COMMIT: 37>, {'step': 3, 'members': [[0, 17], [1, 18]]})
    """
    if isinstance(record, Committed):
        return Op.COMMIT, {"step": record.step, "members": [list(m) for m in record.members]}
    if isinstance(record, Opened):
        return Op.OPEN, {**asdict(record), "passed": [list(one) for one in record.passed]}
    return _OPS[type(record)], asdict(record)


def record_from_json(op: int, data: dict[str, Any]) -> Record:
    """The record in a frame's body. Raises KeyError or TypeError when the body is not one."""
    if op == Op.COMMIT:
        members = tuple((int(trainer), int(life)) for trainer, life in data["members"])
        return Committed(int(data["step"]), members)
    if op == Op.OPEN:
        passed = tuple((int(t), int(life), int(turn)) for t, life, turn in data["passed"])
        return Opened(str(data["name"]), int(data["turn"]), passed)
    return _RECORDS[Op(op)](**data)


# ----------------------------------------------------------------------------------------- replies


@dataclass(frozen=True, slots=True)
class Welcome:
    """Answers Join. step: the last one done. commit: sync: to be relayed to the other servers."""

    trainer: int
    incarnation: int
    step: int
    commit: Committed | None = None


@dataclass(frozen=True, slots=True)
class Release:
    """Answers Arrive and Reach. commit: sync: relayed to the other servers before the next pull."""

    trainer: int
    incarnation: int
    step: int
    commit: Committed | None = None


@dataclass(frozen=True, slots=True)
class Refuse:
    """Answers Join, Leave, Arrive or Reach with a no."""

    trainer: int
    incarnation: int
    code: Code
    reason: str


@dataclass(frozen=True, slots=True)
class Fail:
    """The job cannot go on: to be told to every trainer, and to the operator."""

    reason: str


Reply = Welcome | Release | Refuse | Fail
Output = Record | Reply
