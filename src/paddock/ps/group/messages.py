"""The coordinator's messages: events go in, records and replies come out. No I/O here.

An event is what a trainer or the clock says. A record changes the coordinator's durable state: it
is logged, then applied. A reply goes to one trainer and leaves nothing behind.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from paddock.errors import Problem
from paddock.ps.strategies import STRATEGIES, Strategy
from paddock.ps.wire.errors import Code
from paddock.ps.wire.frames import Op
from paddock.ps.wire.values import value_from

SILENCES = ("fail", "rescale")
# (trainer, incarnation)
GroupMember = tuple[int, int]


@dataclass(frozen=True, slots=True)
class GroupRules:
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


def check_rules(rules: GroupRules) -> list[Problem]:
    """The problems of the rules, each with a hint.

    >>> [p.message for p in check_rules(GroupRules("sync", trainers=0))]
    ['trainers is 0']
    """
    strategy, silent, gather = rules.strategy, rules.silent_seconds, rules.gather_seconds
    facts = (
        (strategy in STRATEGIES, f"strategy {strategy!r} is unknown", " or ".join(STRATEGIES)),
        (rules.staleness >= 0, f"staleness is {rules.staleness}", "0 or more steps"),
        (
            not rules.staleness or strategy == "staleness",
            f"staleness is {rules.staleness}, but strategy is {strategy!r}",
            "strategy='staleness'",
        ),
        (rules.trainers >= 1, f"trainers is {rules.trainers}", "at least 1"),
        (silent >= 0, f"silent_seconds is {silent}", "0 for no limit"),
        (gather >= 0, f"gather_seconds is {gather}", "0 for no limit"),
        (
            rules.on_silence in SILENCES,
            f"on_silence is {rules.on_silence!r}",
            " or ".join(SILENCES),
        ),
    )
    return [Problem(message, hint) for is_right, message, hint in facts if not is_right]


@dataclass(frozen=True, slots=True)
class Incarnation:
    """A trainer's process: all that is said by it, of it or to it begins with this."""

    trainer: int
    incarnation: int


# ------------------------------------------------------------------------------------------ events


@dataclass(frozen=True, slots=True)
class JoinRequest(Incarnation):
    """A trainer wants to take part. Answered (JoinAccepted, RequestRefused) at once or at a
    step boundary."""


@dataclass(frozen=True, slots=True)
class LeaveRequest(Incarnation):
    """A trainer takes no further part; or while it waited to join its connection has closed."""


@dataclass(frozen=True, slots=True)
class Arrive(Incarnation):
    """Every push of `step` has been acknowledged by every server.

    ended: how many passes over its data the trainer is through with; 0: as before.
    """

    step: int
    ended: int = 0


@dataclass(frozen=True, slots=True)
class Reach(Incarnation):
    """The trainer waits at a barrier. step: those it has done. turn: its own count, by name.

    is_fresh: this incarnation has done no batch yet. seconds: how long it wants to wait; 0: no
    limit.
    is_counted: turn is counted over all incarnations, and over those of servers before these.
    """

    step: int
    name: str
    turn: int
    is_fresh: bool = False
    seconds: float = 0.0
    is_counted: bool = False


@dataclass(frozen=True, slots=True)
class ConnectionLost(Incarnation):
    """The connection over which the trainer waited at a barrier has closed."""


@dataclass(frozen=True, slots=True)
class Heard(Incarnation):
    """A sign of life: any frame of the trainer."""


@dataclass(frozen=True, slots=True)
class Hold:
    """A save takes its cut: no step is to be done for so many seconds; 0: from now on again."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Tick:
    """Time passes; at least TICKS_PER_DEADLINE times in silent_seconds."""


Event = JoinRequest | LeaveRequest | Arrive | Reach | ConnectionLost | Heard | Hold | Tick

# ----------------------------------------------------------------------------------------- records


@dataclass(frozen=True, slots=True)
class MemberJoined(Incarnation):
    """The trainer is a member; its first step is step + 1. Fences its older incarnations."""

    step: int


@dataclass(frozen=True, slots=True)
class MemberLeft(Incarnation):
    """The trainer is no member after `step`."""

    step: int


@dataclass(frozen=True, slots=True)
class MemberExpelled(Incarnation):
    """The trainer is no member; it comes back with a new incarnation, or not at all."""

    reason: str


@dataclass(frozen=True, slots=True)
class StepCommitted:
    """The step is what these members contributed. members: in the order of their numbers.

    ended: (trainer, passes that it is through with) of all that have said so, by number.
    """

    step: int
    members: tuple[GroupMember, ...]
    ended: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class BarrierOpened:
    """Every member has reached the barrier, for the `turn`-th time. A record, for some may have
    gone on. passed: trainer, incarnation, and its own turn."""

    name: str
    turn: int
    passed: tuple[tuple[int, int, int], ...]


@dataclass(frozen=True, slots=True)
class GroupBegan:
    """The trainers that have joined begin without the others."""


Record = MemberJoined | MemberLeft | MemberExpelled | StepCommitted | BarrierOpened | GroupBegan
RECORDS: dict[int, type[Record]] = {
    Op.JOIN: MemberJoined,
    Op.LEAVE: MemberLeft,
    Op.EXPEL: MemberExpelled,
    Op.COMMIT: StepCommitted,
    Op.OPEN: BarrierOpened,
    Op.BEGIN: GroupBegan,
}
_OPS = {kind: Op(op) for op, kind in RECORDS.items()}


def record_to_json(record: Record) -> tuple[Op, dict[str, Any]]:
    """The op of the record's frame, and its body; `ended` is in it when a trainer has said so.

    >>> record_to_json(StepCommitted(3, ((0, 17), (1, 18))))
    (<Op.COMMIT: 37>, {'step': 3, 'members': ((0, 17), (1, 18))})
    """
    return _OPS[type(record)], {n: v for n, v in asdict(record).items() if n != "ended" or v}


def record_from_json(op: int, data: dict[str, Any]) -> Record:
    """The record in a frame's body. Raises ValueError when the body is not one."""
    record: Record = value_from(RECORDS[op], {"ended": (), **data})
    return record


# ----------------------------------------------------------------------------------------- replies


@dataclass(frozen=True, slots=True)
class JoinAccepted(Incarnation):
    """Answers Join. step: the last one done. commit: sync: to be relayed to the other servers."""

    step: int
    commit: StepCommitted | None = None


@dataclass(frozen=True, slots=True)
class Release(Incarnation):
    """Answers Arrive and Reach. commit: sync: relayed to the other servers before the next pull."""

    step: int
    commit: StepCommitted | None = None


@dataclass(frozen=True, slots=True)
class RequestRefused(Incarnation):
    """Answers Join, Leave, Arrive or Reach with a no."""

    code: Code
    reason: str


@dataclass(frozen=True, slots=True)
class Fail:
    """The job cannot go on: to be told to every trainer, and to the operator."""

    reason: str


Reply = JoinAccepted | Release | RequestRefused | Fail
Output = Record | Reply
