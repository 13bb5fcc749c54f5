"""The messages of the etcd election: records in etcd, events, inputs and orders. Values only."""

from __future__ import annotations

import json

from paddock.agent.transport.wire import WireError, decode_fields
from paddock.core.value import fields_of, value
from paddock.errors import EXIT_USAGE, PaddockError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TypeAlias

    from typing_extensions import Self

    from paddock.core.value import AttemptNumber, Count, OpenPort, Seconds

# What etcd holds.


class EtcdRecord:
    """A record under a key of etcd, as JSON of its fields."""

    def encode(self) -> bytes:
        return json.dumps(dict(fields_of(self)), sort_keys=True).encode()

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """The record in these bytes. Raises EtcdRecordError if Paddock did not write them."""
        try:
            return decode_fields(cls, data)
        except WireError as error:
            raise EtcdRecordError(data) from error


@value
class LeaderRecord(EtcdRecord):
    """The leader and its address. The nonce tells two runs of one launcher apart."""

    name: str
    host: str
    port: OpenPort
    uid: str
    nonce: str = ""


@value
class AttemptRecord(EtcdRecord):
    """The last attempt that was allowed to start; ended: its job is over (a tombstone).

    generation: that of the Elected or Reelected under which the attempt is asked for.
    nonce: of the coordinator that wrote it; filled in by the election. members: keys of its nodes;
    by: of the one that coordinates. deadline: of the job, in seconds since 1970; 0: it has none.
    """

    generation: Count
    attempt: AttemptNumber
    uid: str
    members: tuple[str, ...] = ()
    ended: bool = False
    nonce: str = ""
    by: str = ""
    used_restarts: Count = 0
    total_restarts: Count = 0
    deadline: Seconds = 0.0


class EtcdRecordError(PaddockError):
    """A key of the job holds something that Paddock did not write."""

    def __init__(self, data: bytes) -> None:
        super().__init__(
            f"etcd holds something Paddock did not write: {data[:60]!r}",
            hint="choose another --job-id, or delete the keys under /paddock/<job_id>/",
            exit_code=EXIT_USAGE,
        )


# Events for the launcher.


@value
class Elected:
    """This node leads. previous: the last attempt known to etcd, maybe of an earlier run."""

    generation: int
    previous: AttemptRecord | None


@value
class Reelected:
    """This node leads again: its key had gone, and no other node started an attempt since."""

    generation: int


@value
class Following:
    """Another node leads: join it."""

    record: LeaderRecord
    generation: int


@value
class SteppedDown:
    """Another node took over from this leader, which is fenced: its attempt must end."""

    reason: str


@value
class AttemptFenced:
    """The answer to FenceRequested. allowed: it may start, and no other leader can start it.

    reason: why it is not allowed.
    """

    attempt: int
    allowed: bool
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


# Inputs from the shell.


@value
class ElectionView:
    """Both keys at one moment, and the revisions and lease that go with them."""

    leader: LeaderRecord | None = None
    leader_created: int = 0
    leader_lease: int = 0
    attempt: AttemptRecord | None = None
    attempt_modified: int = 0


@value
class LeaseGranted:
    """A new lease, or an old one renewed."""

    lease: int
    ttl_seconds: int


@value
class LeaseGone:
    """The lease named in the request has expired, or was revoked by it."""


@value
class RequestFailed:
    """The request failed, though it may have been done."""

    error: PaddockError


@value
class FenceRequested:
    """Ask for the fence of an attempt; AttemptFenced answers, if need be after an outage of etcd.

    record.generation is that of the last Elected or Reelected. A second one replaces one not yet
    answered, which then gets AttemptFenced(allowed=False).
    """

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
class LeaderAlive:
    """The leader of that nonce answers this node, or no longer, whatever etcd says."""

    nonce: str
    lives: bool


@value
class StopRequested:
    """Leave the election. ended: the job is over, so write the tombstone."""

    ended: bool


@value
class ElectionTick:
    """Time has passed, and nothing else."""


# Orders to the shell.


@value
class PublishEvent:
    event: Event


@value
class ReadElection:
    pass


@value
class GrantLease:
    ttl_seconds: int


@value
class Campaign:
    record: LeaderRecord
    lease: int


@value
class KeepAlive:
    lease: int


@value
class FenceAttempt:
    """Record the attempt, if generation still leads and attempt's mod_revision is known."""

    record: AttemptRecord
    known: int


@value
class DeleteLeaderKey:
    """Delete the leader key, if it is still of that generation."""

    generation: int


@value
class WriteTombstone:
    """Replace the attempt record by its tombstone, for so long, if its generation still leads."""

    record: AttemptRecord
    ttl_seconds: int


@value
class RevokeLease:
    lease: int


@value
class ElectionDone:
    """The election is over; the shell's thread ends."""


if TYPE_CHECKING:
    Event: TypeAlias = (
        Elected | Reelected | Following | SteppedDown | AttemptFenced
        | EtcdDown | EtcdBack | ElectionFailed
    )  # fmt: skip
    Request: TypeAlias = (
        ReadElection
        | GrantLease
        | Campaign
        | KeepAlive
        | FenceAttempt
        | DeleteLeaderKey
        | WriteTombstone
        | RevokeLease
    )
    Order: TypeAlias = PublishEvent | Request | ElectionDone
    Answer: TypeAlias = ElectionView | LeaseGranted | LeaseGone | RequestFailed
    Input: TypeAlias = (
        Answer | FenceRequested | UidLearned | LeaderDied | LeaderAlive
        | StopRequested | ElectionTick
    )  # fmt: skip
