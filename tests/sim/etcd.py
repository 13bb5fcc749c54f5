"""What etcd holds for one job, and its transactions, each at one instant. A model, no client."""

from __future__ import annotations

from typing import Protocol

from paddock.agent.etcd_election import messages as w
from paddock.core.value import replace


class Clock(Protocol):
    """The world an etcd is in."""

    now: float


class Etcd:
    """One member, or a quorum that answers as one."""

    def __init__(self, world: Clock) -> None:
        self.world = world
        self.up = True
        self.revision = 1
        self.leases: dict[int, tuple[float, int]] = {}  # id: (expiry, ttl)
        self.leader: w.LeaderRecord | None = None
        self.leader_created = self.leader_lease = 0
        self.attempt: w.AttemptRecord | None = None
        self.attempt_modified = self.attempt_lease = 0
        self.era = 0  # How often the data were lost.
        self._ids = 100

    def apply(self, request: w.Request) -> w.Input:
        self.expire()
        match request:
            case w.GrantLease(ttl_seconds):
                return w.LeaseGranted(self.grant(ttl_seconds), ttl_seconds)
            case w.KeepAlive(lease):
                if lease not in self.leases:
                    return w.LeaseGone()
                ttl = self.leases[lease][1]
                self.leases[lease] = (self.world.now + ttl, ttl)
                return w.LeaseGranted(lease, ttl)
            case w.RevokeLease(lease):
                self.drop_lease(lease)
                return w.LeaseGone()
            case w.Campaign(record, lease):
                if self.leader is None:
                    if lease not in self.leases:
                        return w.LeaseGone()
                    self.revision += 1
                    self.leader, self.leader_lease = record, lease
                    self.leader_created = self.revision
            case w.FenceAttempt(record, known):
                if (self.leader_created, self.attempt_modified) == (record.generation, known):
                    self.put_attempt(record, 0)
            case w.WriteTombstone(record, ttl_seconds):
                if self.leader_created == record.generation:
                    self.put_attempt(record, self.grant(ttl_seconds))
                    self.delete_leader()
            case w.DeleteLeaderKey(generation):
                if self.leader_created == generation:
                    self.delete_leader()
            case w.ReadElection():
                pass
        return w.ElectionView(
            self.leader,
            self.leader_created,
            self.leader_lease,
            self.attempt,
            self.attempt_modified,
        )

    def grant(self, ttl_seconds: int) -> int:
        self._ids += 1
        self.leases[self._ids] = (self.world.now + ttl_seconds, ttl_seconds)
        return self._ids

    def put_attempt(self, record: w.AttemptRecord, lease: int) -> None:
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
