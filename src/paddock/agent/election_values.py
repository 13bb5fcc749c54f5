"""The words of an election: records kept in etcd, events, inputs and orders. Values, no I/O."""

from __future__ import annotations

import json

from paddock.core.value import fields_of, value
from paddock.errors import EXIT_USAGE, PaddockError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TypeAlias

# What etcd holds.


@value
class LeaderRecord:
    """Who coordinates, and where. The nonce tells two runs of one agent apart."""

    name: str
    host: str
    port: int
    uid: str
    nonce: str = ""

    def encode(self) -> bytes:
        return _encode(self)

    @classmethod
    def decode(cls, data: bytes) -> LeaderRecord:
        """Raises: RecordError, if Paddock did not write this."""
        found = _decode(data)
        port = found.get("port")
        if not isinstance(port, int) or not 0 < port < 65536:
            raise RecordError(data)
        name, host, uid, nonce = (_text(found, n, data) for n in ("name", "host", "uid", "nonce"))
        return cls(name, host, port, uid, nonce)


@value
class AttemptRecord:
    """The last attempt that was allowed to start; ended: its job is over (a tombstone).

    generation: that of the Elected or Reelected under which the attempt is asked for.
    nonce: of the coordinator that wrote it; filled in by the election. members: keys of its nodes;
    by: of the one that coordinates. deadline: of the job, in seconds since 1970; 0: it has none.
    """

    generation: int
    attempt: int
    uid: str
    members: tuple[str, ...] = ()
    ended: bool = False
    nonce: str = ""
    by: str = ""
    used_restarts: int = 0
    total_restarts: int = 0
    deadline: float = 0.0

    def encode(self) -> bytes:
        return _encode(self)

    @classmethod
    def decode(cls, data: bytes) -> AttemptRecord:
        """Raises: RecordError, if Paddock did not write this."""
        found = _decode(data)
        attempt, generation = found.get("attempt"), found.get("generation")
        members = found.get("members")
        if not (isinstance(attempt, int) and isinstance(generation, int)):
            raise RecordError(data)
        if not isinstance(members, list) or not all(isinstance(m, str) for m in members):
            raise RecordError(data)
        uid, nonce, by = (_text(found, n, data) for n in ("uid", "nonce", "by"))
        used, total, deadline = (
            _number(found, n, data) for n in ("used_restarts", "total_restarts", "deadline")
        )
        ended = found.get("ended") is True
        return cls(
            generation, attempt, uid, tuple(members), ended, nonce, by,
            int(used), int(total), deadline,
        )  # fmt: skip


class RecordError(PaddockError):
    """A key of the job holds something that Paddock did not write."""

    def __init__(self, data: bytes) -> None:
        super().__init__(
            f"etcd holds something Paddock did not write: {data[:60]!r}",
            hint="choose another --job_id, or delete the keys under /paddock/<job_id>/",
            exit_code=EXIT_USAGE,
        )


# Events: what the launcher is told.


@value
class Elected:
    """We coordinate. previous: the last attempt known to etcd, maybe of an earlier run."""

    generation: int
    previous: AttemptRecord | None


@value
class Reelected:
    """Our key had gone and is ours again, with no attempt by others in between: go on."""

    generation: int


@value
class Following:
    """Another coordinates: join it."""

    record: LeaderRecord
    generation: int


@value
class LeaderGone:
    """The coordinator we followed holds its key no longer; a new election runs."""

    generation: int


@value
class Deposed:
    """We coordinated and others took over: the attempt we run must end."""

    reason: str


@value
class Fenced:
    """ok: the attempt may start, nobody else can start it. Otherwise it must not."""

    attempt: int
    ok: bool
    reason: str = ""


@value
class EtcdDown:
    """etcd has not answered for so long. Told again at 2, 4, 8 ... 60 s."""

    seconds: float
    reason: str


@value
class EtcdBack:
    """etcd answers again, after an EtcdDown."""


@value
class ElectionFailed:
    """The election is over and no event follows: asking again would not help."""

    error: PaddockError


# Inputs: what the shell saw.


@value
class View:
    """Both keys at one revision, and the revisions and lease that go with them."""

    revision: int
    leader: LeaderRecord | None = None
    leader_created: int = 0
    leader_lease: int = 0
    attempt: AttemptRecord | None = None
    attempt_modified: int = 0


@value
class Granted:
    lease: int
    ttl_seconds: int


@value
class Kept:
    """ttl_seconds is 0 where the lease has gone."""

    ttl_seconds: int


@value
class LeaseGone:
    """The lease named in the request has expired."""


@value
class Revoked:
    """The lease has ended, as ordered."""


@value
class Failed:
    """The request failed, though it may have been done."""

    error: PaddockError


@value
class Changed:
    """The leader key changed; the watch is over."""


@value
class WatchBroken:
    """The watch ended without news."""


@value
class FenceAsked:
    record: AttemptRecord


@value
class UidLearned:
    uid: str


@value
class LeaderDied:
    """The launcher of that leader has ended: its host refuses connections.

    nonce: of its record. By the time this is read we may follow another.
    """

    nonce: str


@value
class LeaderLives:
    """Whether that leader answers us, whatever etcd says."""

    nonce: str
    lives: bool


@value
class StopAsked:
    """ended: the job is over, so leave the tombstone."""

    ended: bool


@value
class Woke:
    """Nothing but time has passed."""


# Orders: what the shell must do.


@value
class Post:
    event: Event


@value
class Watch:
    """Watch the leader key from this revision on, until it changes once."""

    from_revision: int


@value
class Look:
    pass


@value
class Grant:
    ttl_seconds: int


@value
class Campaign:
    record: LeaderRecord
    lease: int


@value
class KeepAlive:
    lease: int


@value
class Fence:
    """Record the attempt, if generation still leads and attempt's mod_revision is known."""

    record: AttemptRecord
    known: int


@value
class Unseat:
    """Delete the leader key, if it is still of that generation."""

    generation: int


@value
class Bury:
    """Replace the attempt record by its tombstone, if its generation still leads."""

    record: AttemptRecord
    lease: int


@value
class Revoke:
    lease: int


@value
class Finished:
    """Nothing is left to do; the shell's thread ends."""


if TYPE_CHECKING:
    Event: TypeAlias = (
        Elected | Reelected | Following | LeaderGone | Deposed | Fenced
        | EtcdDown | EtcdBack | ElectionFailed
    )  # fmt: skip
    Request: TypeAlias = Look | Grant | Campaign | KeepAlive | Fence | Unseat | Bury | Revoke
    Order: TypeAlias = Post | Watch | Request | Finished
    Answer: TypeAlias = View | Granted | Kept | LeaseGone | Revoked | Failed
    Input: TypeAlias = (
        Answer | Changed | WatchBroken | FenceAsked | UidLearned | LeaderDied | LeaderLives
        | StopAsked | Woke
    )  # fmt: skip


def _encode(record: LeaderRecord | AttemptRecord) -> bytes:
    return json.dumps(dict(fields_of(record)), sort_keys=True).encode()


def _decode(data: bytes) -> dict[str, object]:
    try:
        found = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise RecordError(data) from error
    if not isinstance(found, dict):
        raise RecordError(data)
    return found


def _number(found: dict[str, object], name: str, data: bytes) -> float:
    number = found.get(name, 0)
    if not isinstance(number, (int, float)) or not 0 <= number < 1e12:
        raise RecordError(data)
    return number


def _text(found: dict[str, object], name: str, data: bytes) -> str:
    text = found.get(name, "")
    if not isinstance(text, str):
        raise RecordError(data)
    return text
