"""What etcd holds for one job, and its transactions, each at one instant. A model, no client."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from paddock.agent.election_values import (
    AttemptRecord,
    Bury,
    Campaign,
    Fence,
    Grant,
    Granted,
    KeepAlive,
    Kept,
    LeaderRecord,
    LeaseGone,
    Look,
    Revoke,
    Revoked,
    Unseat,
    View,
)
from paddock.core.value import replace

if TYPE_CHECKING:
    from paddock.agent.election_values import Input, Request


class Clock(Protocol):
    """The world an etcd is in."""

    now: float

    def tell_watchers(self, revision: int) -> None:
        """The leader key has changed."""


class Etcd:
    """One member, or a quorum that answers as one."""

    def __init__(self, world: Clock) -> None:
        self.world = world
        self.up = True
        self.revision = 1
        self.leases: dict[int, tuple[float, int]] = {}  # id: (expiry, ttl)
        self.leader: LeaderRecord | None = None
        self.leader_created = self.leader_lease = 0
        self.attempt: AttemptRecord | None = None
        self.attempt_modified = self.attempt_lease = 0
        self.era = 0  # How often the data were lost.
        self._ids = 100

    def apply(self, request: Request) -> Input:
        self.expire()
        match request:
            case Grant(ttl_seconds):
                self._ids += 1
                self.leases[self._ids] = (self.world.now + ttl_seconds, ttl_seconds)
                return Granted(self._ids, ttl_seconds)
            case KeepAlive(lease):
                if lease not in self.leases:
                    return Kept(0)
                ttl = self.leases[lease][1]
                self.leases[lease] = (self.world.now + ttl, ttl)
                return Kept(ttl)
            case Revoke(lease):
                self.drop_lease(lease)
                return Revoked()
            case Campaign(record, lease):
                if self.leader is None:
                    if lease not in self.leases:
                        return LeaseGone()
                    self.revision += 1
                    self.leader, self.leader_lease = record, lease
                    self.leader_created = self.revision
                    self.world.tell_watchers(self.revision)
            case Fence(record, known):
                if (self.leader_created, self.attempt_modified) == (record.generation, known):
                    self.put_attempt(record, 0)
            case Bury(record, lease):
                if self.leader_created == record.generation:
                    if lease not in self.leases:
                        return LeaseGone()
                    self.put_attempt(record, lease)
                    self.delete_leader()
            case Unseat(generation):
                if self.leader_created == generation:
                    self.delete_leader()
            case Look():
                pass
        return View(
            self.revision,
            self.leader,
            self.leader_created,
            self.leader_lease,
            self.attempt,
            self.attempt_modified,
        )

    def put_attempt(self, record: AttemptRecord, lease: int) -> None:
        self.revision += 1
        before = self.attempt
        if before is not None and not record.ended and not before.ended:
            # The same may be written again: a reply was lost, maybe the key with it.
            again = replace(record, generation=before.generation) == before
            assert record.attempt > before.attempt or again, (before, record)
        self.attempt, self.attempt_modified, self.attempt_lease = record, self.revision, lease

    def delete_leader(self) -> None:
        if self.leader is not None:
            self.revision += 1
            self.leader, self.leader_created, self.leader_lease = None, 0, 0
            self.world.tell_watchers(self.revision)

    def drop_lease(self, lease: int) -> None:
        self.leases.pop(lease, None)
        if lease == self.leader_lease and lease:
            self.delete_leader()
        if lease == self.attempt_lease and lease:
            self.revision += 1
            self.attempt, self.attempt_modified, self.attempt_lease = None, 0, 0

    def expire(self) -> None:
        for lease in [i for i, (at, _) in self.leases.items() if at <= self.world.now]:
            self.drop_lease(lease)

    def lose_data(self) -> None:
        """As after a restart with an empty data directory; other ids and lower revisions."""
        self.leases, self.revision = {}, 1
        self.leader, self.leader_created, self.leader_lease = None, 0, 0
        self.attempt, self.attempt_modified, self.attempt_lease = None, 0, 0
        self._ids += 1000
        self.era += 1
