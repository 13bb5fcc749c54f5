"""Leadership by a Lease, as client-go's leaderelection has it, with a fence.

state       event                                       next
---------   -----------------------------------------   -----------------------------------------
candidate   nobody holds it, it was released, or its    leader (the write is on the version seen,
            holder showed no life for its duration       so of two candidates one is refused)
leader      renewed                                     leader; the fence moves on
leader      not renewed for RENEW_SECONDS               candidate: the fence is shut by the clock
                                                         itself, the work is cancelled
leader      someone else holds it                       candidate, the same
leader      asked to stop                               the work ends, the lease is given back

Times in the Lease are never compared with this machine's clock: a holder is alive when its record
changes, as timed here. Candidates watch the record, so a lease given back is taken at once, and a
dead holder's at the end of its duration.
Source: k8s.io/client-go/tools/leaderelection/leaderelection.go
"""

from __future__ import annotations

import asyncio
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Any

from paddock.kube.client import LEASES, KubeError, Query
from paddock.kube.objects import micro_time
from paddock.operator.names import LEASE
from paddock.operator.runtime.clock import TimeLimit, end
from paddock.operator.runtime.guard import Fence
from paddock.operator.runtime.informer import ObjectCache, Reflector

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from random import Random

    from paddock.kube.client import KubeClient
    from paddock.kube.objects import Lease
    from paddock.operator.runtime.clock import Clock
    from paddock.operator.runtime.log import Logger

# `paddock operator check` finds the leases of all releases by it.
LABELS = {"app.kubernetes.io/part-of": "paddock"}
# As client-go demands: a duration is longer than a renewal may take, that longer than a pause and
# its jitter. The first two are shorter than its 15 and 10 s, so that the jobs of a leader that was
# killed wait 10 s at most; to lose the lease costs ours a list of the caches, no restart.
DURATION_SECONDS = 8.0
RENEW_SECONDS = 5.0
RETRY_SECONDS = 2.0
REFUSED_SECONDS = 0.5  # after a renewal that failed: there is little time left
RELEASE_SECONDS_MAX = 2.0


@dataclass(eq=False)
class LeaderElector:
    """Runs ``work`` while this process holds the lease. client: one without the fence.

    ``fence`` is for the client of ``work``; it is shut unless the lease was renewed lately.
    """

    client: KubeClient
    _: KW_ONLY
    namespace: str
    identity: str
    clock: Clock
    rng: Random
    log: Logger
    name: str = LEASE

    def __post_init__(self) -> None:
        self.fence = Fence(self.clock, until=0.0)
        self._record: Lease | None = None  # as last seen, by whomever
        self._record_at = 0.0  # when it was seen to change, monotonic
        self._changed = asyncio.Event()
        store: ObjectCache[Lease] = ObjectCache({})
        store.listen(lambda _, new: self._observe(new))
        query = Query(self.namespace, fields=f"metadata.name={self.name}")
        self._reflector = Reflector(
            self.client, LEASES, query, store,
            clock=self.clock, rng=self.rng, log=self.log, restarted=lambda _: None,
            is_optional=True,  # An older role may not allow it: then the lease is polled.
        )  # fmt: skip

    async def run(self, work: Callable[[], Awaitable[None]], stop: asyncio.Event) -> None:
        """Be a candidate, lead, be one again, until stopped while not leading, or work returns.

        work must return soon after ``stop`` is set; it is cancelled when leadership is lost.
        """
        while await self._acquire(stop):
            self.log.info("leading", identity=self.identity, lease=self.name)
            working = asyncio.ensure_future(work())
            renewing = asyncio.ensure_future(self._renew_until_lost())
            try:
                await asyncio.wait({working, renewing}, return_when=asyncio.FIRST_COMPLETED)
                has_ended = working.done()
            finally:
                await end(working, renewing)
            if has_ended:
                await self._release()
                working.result()  # raises what work raised
                return
            self.fence.until = 0.0
            renewing.result()
            self.log.error("lost the lease, nothing is written any more", lease=self.name)

    # ------------------------------------------------------------------ candidate

    async def _acquire(self, stop: asyncio.Event) -> bool:
        """Wait until this process leads; False when it was stopped before."""
        self._reflector.reset()
        watching = asyncio.ensure_future(self._reflector.run())
        stopped = asyncio.ensure_future(stop.wait())
        try:
            while not stop.is_set():
                self._changed.clear()
                is_watched = self._reflector.is_served and self._reflector.synced.is_set()
                if (self._seconds_to_expiry() <= 0 or not is_watched) and await self._take():
                    return True
                left = self._seconds_to_expiry()
                pause = self.rng.uniform(1.0, 1.2) * RETRY_SECONDS
                if left > 0:
                    pause = left if is_watched else min(left, pause)
                changed = asyncio.ensure_future(self._changed.wait())
                waits: set[asyncio.Future[Any]] = {changed, stopped}
                try:
                    await asyncio.wait(waits, timeout=pause, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    await end(changed)
            return False
        finally:
            await end(watching, stopped)

    def _observe(self, record: Lease | None) -> None:
        old = self._record
        if old is None or record is None or old.metadata != record.metadata:
            self._record, self._record_at = record, self.clock.monotonic()
            self._changed.set()

    def _seconds_to_expiry(self) -> float:
        """Until the lease may be taken, as far as was seen; 0.0 when it may be now."""
        record = self._record
        if record is None or record.spec.holderIdentity in (None, "", self.identity):
            return 0.0
        duration = record.spec.leaseDurationSeconds or DURATION_SECONDS
        return max(0.0, self._record_at + duration - self.clock.monotonic())

    async def _take(self) -> bool:
        """Try to become the holder, after a fresh look: the watch may be behind."""
        try:
            async with TimeLimit(RENEW_SECONDS):
                self._observe(await self._read())
            if self._seconds_to_expiry() > 0:
                return False
            sent = self.clock.monotonic()
            async with TimeLimit(RENEW_SECONDS):
                self._observe(await self._write(self.identity))
        except KubeError as error:
            if error.reason not in ("Conflict", "AlreadyExists"):
                self.log.warning("lease could not be taken", reason=error.message)
            return False
        except asyncio.TimeoutError:
            self.log.warning("lease could not be taken", reason="no answer")
            return False
        self.fence.until = sent + RENEW_SECONDS
        return True

    # --------------------------------------------------------------------- leader

    async def _renew_until_lost(self) -> None:
        """Renew; returns when the lease is another's, or at the moment the fence is shut."""
        refused_seconds = 0.0
        while True:
            # From when the last was sent, so that two slow answers in a row are soon enough.
            due = self.fence.until - RENEW_SECONDS + RETRY_SECONDS - self.clock.monotonic()
            await self.clock.sleep(refused_seconds or max(0.0, due))
            sent, refused_seconds = self.clock.monotonic(), 0.0
            left = self.fence.until - sent
            if left <= 0:
                return
            try:
                async with TimeLimit(left):
                    is_ours = await self._renew()
            except KubeError as error:
                self.log.warning("lease could not be renewed", reason=error.message)
                refused_seconds = REFUSED_SECONDS
                continue
            except asyncio.TimeoutError:
                return
            if not is_ours:
                return
            self.fence.until = sent + RENEW_SECONDS

    async def _renew(self) -> bool:
        """Renew; False where the lease is another's. Raises KubeError when unknown."""
        try:
            self._observe(await self._write(self.identity))
            return True
        except KubeError as error:
            if error.status not in (404, 409):
                raise
        # Changed by another, perhaps only its labels; or deleted; or our own answer was lost.
        self._observe(await self._read())
        record = self._record
        if record is not None and record.spec.holderIdentity != self.identity:
            return False
        self._observe(await self._write(self.identity))
        return True

    async def _release(self) -> None:
        """Give it back, so that the next one starts at once."""
        self.fence.until = 0.0
        try:
            async with TimeLimit(RELEASE_SECONDS_MAX):
                await self._write("")
        except (KubeError, asyncio.TimeoutError) as error:
            self.log.warning("lease could not be given back", reason=error)
        else:
            self.log.info("gave the lease back", lease=self.name)

    # ---------------------------------------------------------------------- calls

    async def _read(self) -> Lease | None:
        try:
            return await self.client.get(LEASES, self.namespace, self.name)
        except KubeError as error:
            if error.status == 404:
                return None
            raise

    async def _write(self, holder: str) -> Lease:
        """Write the record on top of the one last seen; 409 when that is not the last one."""
        now = micro_time(self.clock.now())
        old = self._record
        spec: dict[str, object] = {
            "holderIdentity": holder,
            # As client-go releases: whoever sees it need not wait.
            "leaseDurationSeconds": int(DURATION_SECONDS) if holder else 1,
            "renewTime": now,
        }
        if old is None or old.spec.holderIdentity != holder:
            spec["acquireTime"] = now
            spec["leaseTransitions"] = (old.spec.leaseTransitions or 0) + 1 if old else 0
        if old is None:
            manifest: dict[str, object] = {
                "apiVersion": LEASES.api_version,
                "kind": LEASES.kind,
                "metadata": {"name": self.name, "namespace": self.namespace, "labels": LABELS},
                "spec": spec,
            }
            return await self.client.create(LEASES, self.namespace, manifest)
        metadata = {
            "resourceVersion": old.metadata.resourceVersion,
            "uid": old.metadata.uid,
            "labels": LABELS,  # one of before has none
        }
        return await self.client.patch(
            LEASES, self.namespace, self.name, {"metadata": metadata, "spec": spec}
        )
