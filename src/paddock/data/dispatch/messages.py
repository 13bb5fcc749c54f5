"""Messages to the dispatcher (events), its replies, and the state that it keeps. Pure.

A chunk lease is a chunk in a worker's hands, as a partition is a consumer's in Kafka. It ends when
the worker says so or is gone, never by time, unlike a lease of a primary, a leader or Kubernetes.

Leases, chunks that came back and chunks set aside are tuples: in JSON they are lists, and short.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

# Of one worker at a time. Their numbers and records are the worker's offset, of 4096 bytes.
LEASES_MAX = 64
ASIDE_MAX = 1000  # Kept by name; a plan may allow fewer.
REASON_LENGTH_MAX = 200


@dataclass(frozen=True, slots=True)
class PassPlan:
    """The data that is read. digest: of the list of chunks. chunks: how many.

    passes: 0 for as many as are asked for. seed: of the order, another one each pass; None: as
    listed. tries: how often a chunk may fail at one record. aside: how many chunks may be set
    aside in a pass before the job fails; None has no limit but ASIDE_MAX.
    """

    digest: str
    chunks: int
    passes: int = 0
    seed: int | None = 0
    tries: int = 3
    aside: int | None = None


class ChunkLease(NamedTuple):
    """A chunk in a worker's hands. number: of this lease, never used again. start: records of the
    chunk that are trained already. alone: no batch holds records of it and of another chunk.
    tries, deaths: how often it could not be read, and its worker died, at record `seen`.
    """

    number: int
    chunk: int
    start: int = 0
    alone: bool = False
    tries: int = 0
    deaths: int = 0
    seen: int = 0


class ReturnedChunk(NamedTuple):
    """A chunk that came back. start, tries, deaths: of its next lease."""

    chunk: int
    start: int
    tries: int = 0
    deaths: int = 0


class FailedChunk(NamedTuple):
    """A chunk that nobody could read from record `start` on (a dead letter). pass_: its pass."""

    pass_: int
    chunk: int
    start: int
    reason: str


class LeaseResult(NamedTuple):
    """The end of a lease. records: of the chunk, trained, from its first one. reason: of a failure;
    "" when the chunk is done."""

    number: int
    records: int
    reason: str = ""


@dataclass(slots=True)
class LeaseHolder:
    """A worker and its chunk leases. waits: it holds fewer than it asked for, and got none since.
    is_gone: for good. leases_revoked: others were given leases of it since it registered."""

    incarnation: int
    leases: list[ChunkLease] = field(default_factory=list)
    waits: bool = False
    is_gone: bool = False
    leases_revoked: bool = False


@dataclass(slots=True)
class PassState:
    """How far the passes are. cursor: chunks of the pass given out, in its order. next: lease.

    records: trained in this pass, of the leases that ended. again: of all passes, records that
    were given to another worker though some server had them. past: the checkpoint loaded last.
    """

    plan: PassPlan
    pass_: int = 0
    cursor: int = 0
    next: int = 1
    records: int = 0
    again: int = 0
    past: str = ""


# ------------------------------------------------------------------------------------------ events


@dataclass(frozen=True, slots=True)
class RegisterWorker:
    """A worker's incarnation begins. seen: records done, by lease, of its committed offset."""

    worker: int
    incarnation: int
    plan: PassPlan
    seen: dict[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Poll:
    """A worker reports what it ended, and wants to hold so many leases."""

    worker: int
    incarnation: int
    digest: str
    pass_: int
    reports: tuple[LeaseResult, ...] = ()
    hold: int = 1


@dataclass(frozen=True, slots=True)
class ReleaseChunks:
    """A worker gives its leases back. seen: as in RegisterWorker."""

    worker: int
    incarnation: int
    seen: dict[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class WorkerLost:
    """A worker is gone for good: nothing that it does counts from here on."""

    worker: int


@dataclass(frozen=True, slots=True)
class ProgressReport:
    """How far a worker that is gone was: (on the server that is least far, on the furthest one)
    records, by lease. What is not there was not begun."""

    worker: int
    incarnation: int
    seen: dict[int, tuple[int, int]]


Event = RegisterWorker | Poll | ReleaseChunks | WorkerLost | ProgressReport

# ----------------------------------------------------------------------------------------- replies


@dataclass(frozen=True, slots=True)
class Granted:
    """All leases that the worker holds, oldest first. leases_revoked: see LeaseHolder; to
    RegisterWorker only."""

    pass_: int
    leases: tuple[ChunkLease, ...]
    is_over: bool = False
    leases_revoked: bool = False


@dataclass(frozen=True, slots=True)
class Wait:
    """The worker waits: no chunk is to do now. holders: the workers whose leases it waits for."""

    holders: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class AskProgress:
    """First say how far this worker was: ProgressReport."""

    worker: int
    incarnation: int


@dataclass(frozen=True, slots=True)
class Over:
    """The pass is over. is_last: there is no further one."""

    is_last: bool


@dataclass(frozen=True, slots=True)
class Failed:
    """The job is to fail. aside: the chunks that could not be read."""

    aside: tuple[FailedChunk, ...]


@dataclass(frozen=True, slots=True)
class Rejoin:
    """The dispatcher does not know this incarnation, or is elsewhere: RegisterWorker."""


@dataclass(frozen=True, slots=True)
class Differs:
    """Other data are being read; those of `held` are not at their end."""

    held: PassPlan


@dataclass(frozen=True, slots=True)
class Done:
    """The event was taken; nothing is left to say."""


Reply = Granted | Wait | AskProgress | Over | Failed | Rejoin | Differs | Done


# ------------------------------------------------------------------------------------------- order

_ROUNDS = 4
_MASK = (1 << 64) - 1


def place_in(count: int, seed: int | None, pass_: int, index: int) -> int:
    """The chunk, of `count`, that is number `index` of a pass: a permutation, of no memory.

    A Feistel network over the smallest even number of bits, walked until it is below count
    (Black and Rogaway, Ciphers with Arbitrary Finite Domains, 2002).

    >>> sorted(place_in(10, 7, 0, i) for i in range(10)) == list(range(10))
    True
    """
    if seed is None:
        return index
    half = max(1, ((count - 1).bit_length() + 1) // 2)
    low = (1 << half) - 1
    while True:
        left, right = index >> half, index & low
        for turn in range(_ROUNDS):
            mixed = _mix(_mix(_mix(seed & _MASK, pass_), turn), right)
            left, right = right, left ^ (mixed & low)
        index = left << half | right
        if index < count:
            return index


def _mix(state: int, value: int) -> int:
    """splitmix64's finaliser (Steele, Lea, Flood, 2014) over both."""
    state = (state + 0x9E3779B97F4A7C15 * (value + 1)) & _MASK
    state = ((state ^ state >> 30) * 0xBF58476D1CE4E5B9) & _MASK
    state = ((state ^ state >> 27) * 0x94D049BB133111EB) & _MASK
    return state ^ state >> 31
