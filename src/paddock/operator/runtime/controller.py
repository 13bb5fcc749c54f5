"""Controller: from a change in the cluster to a job that is looked at, by one of several workers.

change of a job or its children -> queue (20 ms, so that a burst is one look) -> worker:
expectations open? wait -> observe -> reconcile (pure) -> executor -> events -> when to look again.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import TYPE_CHECKING

from paddock.kube.client import KubeError
from paddock.operator import messages
from paddock.operator.decision import EventNote
from paddock.operator.names import LABEL_JOB, job_uid
from paddock.operator.runtime.caches import (
    CHILDREN,
    Caches,
    find_etcd,
    holds_port,
    host_port,
)
from paddock.operator.runtime.clock import end
from paddock.operator.runtime.executor import Executor
from paddock.operator.runtime.guard import FencedError
from paddock.operator.runtime.informer import key_of
from paddock.operator.runtime.job_record import FailedCalls, JobRecord
from paddock.operator.runtime.queue import Queue
from paddock.operator.schema import PHASES, REPLICAS_MAX
from paddock.operator.spec import ROLES, field_of
from paddock.operator.status import TERMINAL

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from random import Random

    from paddock.kube.client import KubeClient
    from paddock.kube.objects import PaddleJob
    from paddock.operator.decision import (
        Decision,
        FailedCall,
        Kind,
        ObservedState,
        OperatorSettings,
    )
    from paddock.operator.runtime.clock import Clock
    from paddock.operator.runtime.events import Recorder
    from paddock.operator.runtime.informer import HasMeta, Key
    from paddock.operator.runtime.log import Logger
    from paddock.operator.runtime.metrics import Metrics

    Reconcile = Callable[[ObservedState, float, OperatorSettings], Decision]

WORKERS = 8
COALESCE_SECONDS = 0.02
DRAIN_SECONDS_MAX = 5.0
# A wall clock that is set forward must not make a job wait for hours: look at least so often.
WAKE_SECONDS_MAX = 60.0
WAKE_SECONDS_MIN = 0.05
HUNG_SECONDS = 300.0
LASTING_SECONDS = 1.0  # the pause of a refusal that is told: that of some six in two seconds
# A job of so many pods is decided in a thread: one of 10,000 takes a third of a second, several
# of them would keep the lease and everybody else's jobs waiting. One thread: half of a processor.
ASIDE_PODS = 2000


@dataclass(eq=False)
class Controller:
    """Give it a client whose writes are fenced; start its caches, then ``work`` while leading."""

    client: KubeClient
    reconcile: Reconcile
    settings: OperatorSettings
    _: KW_ONLY
    recorder: Recorder
    clock: Clock
    rng: Random
    log: Logger
    metrics: Metrics
    namespaces: Sequence[str] = ("",)
    workers: int = WORKERS
    is_candidate: bool = False

    def __post_init__(self) -> None:
        self._queue: Queue[Key] = Queue(self.clock, self.rng)
        self._memory: dict[str, JobRecord] = {}  # by uid
        self._busy_since: dict[int, float] = {}  # by worker
        self._aside = ThreadPoolExecutor(1, "decide")
        self._is_aside_busy = False
        self._aside_next: dict[Key, None] = {}  # jobs, each once, in the order they came
        self.caches = Caches(
            self.client, self.namespaces, clock=self.clock, rng=self.rng, log=self.log,
            metrics=self.metrics, is_candidate=self.is_candidate,
        )  # fmt: skip
        stores = self.caches.stores
        self._executor = Executor(self.client, stores, clock=self.clock, log=self.log)
        self.caches.jobs.listen(self._job_changed)
        for kind in CHILDREN:
            self._listen(kind)
        gauge = self.metrics.gauge
        gauge("paddock_jobs", "Jobs by phase.", self._phases, ("phase",))
        gauge(
            "paddock_queue_depth", "Jobs to be looked at.", lambda: {(): float(self._queue.depth)}
        )

    # --------------------------------------------------------------------- running

    async def work(self, stop: asyncio.Event) -> None:
        """Look at jobs until stopped, then finish what is being done, for DRAIN_SECONDS_MAX.

        Cancelling it ends everything at once. Call it again to lead again.
        """
        stopped = asyncio.create_task(stop.wait())
        ready = asyncio.create_task(self._prepare())
        workers: list[asyncio.Task[None]] = []
        try:
            await asyncio.wait({stopped, ready}, return_when=asyncio.FIRST_COMPLETED)
            if not ready.done():
                return
            ready.result()
            workers = [asyncio.create_task(self._work(n, stop)) for n in range(self.workers)]
            # A worker ends only by a bug in this file: then the process should.
            await asyncio.wait({stopped, *workers}, return_when=asyncio.FIRST_COMPLETED)
            if stop.is_set():
                for number, worker in enumerate(workers):
                    if number not in self._busy_since:
                        worker.cancel()
                await asyncio.wait(workers, timeout=DRAIN_SECONDS_MAX)
        finally:
            await end(stopped, ready, *workers)
            self._busy_since.clear()
        for worker in workers:
            if not worker.cancelled():
                worker.result()

    async def _prepare(self) -> None:
        """Caches that can be relied upon, and every job in the queue."""
        self._queue.clear()
        self._aside_next.clear()
        self._memory.clear()
        if self.is_candidate:
            await self.caches.refresh()
        else:
            await self.caches.wait_synced()
        for job in self.caches.jobs:
            self._queue.add(key_of(job))
        self.log.info("working", jobs=len(self.caches.jobs), workers=self.workers)

    async def stop(self) -> None:
        """The caches are followed no longer: call it after ``work`` has ended."""
        await self.caches.stop()
        self._queue.clear()
        self._aside.shutdown(wait=False, cancel_futures=True)

    def hung(self) -> list[str]:
        """Workers and watches that hang, for the liveness probe, one line each."""
        now = self.clock.monotonic()
        slow = [now - since for since in self._busy_since.values() if now - since > HUNG_SECONDS]
        found = [f"a worker is busy with one job for {seconds:.0f} s" for seconds in slow]
        return found + self.caches.silent()

    # ------------------------------------------------------------- what has changed

    def _job_changed(self, old: PaddleJob | None, new: PaddleJob | None) -> None:
        job = new or old
        assert job is not None
        memory = self._memory.get(job.metadata.uid)
        if memory is not None:
            memory.expectations.see("PaddleJob", old, new)
        if new is None:
            self._memory.pop(job.metadata.uid, None)
            self._queue.forget(key_of(job))
            return
        self._queue.add_after(key_of(job), COALESCE_SECONDS)

    def _listen(self, kind: Kind) -> None:
        def changed(old: HasMeta | None, new: HasMeta | None) -> None:
            # Two of them when an owner was replaced.
            for one in {job_uid(o.metadata): o for o in (old, new) if o is not None}.values():
                for job in self.caches.jobs.find("uid", job_uid(one.metadata)):
                    if job.metadata.namespace != one.metadata.namespace:
                        continue
                    memory = self._memory.get(job.metadata.uid)
                    if memory is not None:
                        memory.expectations.see(kind, old, new)
                    self._queue.add_after(key_of(job), COALESCE_SECONDS)
            if old is None or new is not None:
                return
            # A job that was deleted and made again need not sit out its pause for the old one's.
            meta = old.metadata
            key = meta.namespace, meta.label(LABEL_JOB)
            heir = self.caches.jobs.get(key)
            memory = self._memory.get(heir.metadata.uid) if heir is not None else None
            if memory is not None and memory.faults.release(("create", kind, meta.name)):
                self._queue.add_after(key, COALESCE_SECONDS)

        self.caches.stores[kind].listen(changed)

    # ---------------------------------------------------------------------- workers

    async def _work(self, number: int, stop: asyncio.Event) -> None:
        while not stop.is_set():
            key = await self._queue.get()
            began = self._busy_since[number] = self.clock.monotonic()
            try:
                await self._reconcile_once(key)
            except FencedError:
                self._queue.back_off(key)  # The elector ends all of this right now.
            except KubeError as error:
                # The status could not be written, or something could not be asked.
                self.metrics.reconcile_errors.add("refused")
                pause = self._queue.back_off(key, least_seconds=error.retry_after)
                self.log.warning(
                    "job could not be looked at to the end",
                    job="/".join(key), reason=error.message, again_in=f"{pause:.1f}s",
                )  # fmt: skip
                # An API server that has just begun says 403 until it has read the roles: no news.
                if not error.retryable and pause >= LASTING_SECONDS:
                    message = f"the API server refused the operator's call: {error.message}"
                    self._warn(self.caches.jobs.get(key), "StatusRefused", message)
            except Exception as error:  # noqa: BLE001  A bug in one job must not end the others.
                self.metrics.reconcile_errors.add("bug")
                pause = self._queue.back_off(key)
                self.log.error(
                    "a bug in paddock", job="/".join(key), again_in=f"{pause:.1f}s", cause=error
                )
                message = (
                    f"the operator failed on this job ({type(error).__name__}) and tries again; "
                    "its log has the details, please report them"
                )
                self._warn(self.caches.jobs.get(key), "InternalError", message)
            finally:
                self._queue.done(key)
                self._busy_since.pop(number, None)
            self.metrics.reconcile_seconds.observe(self.clock.monotonic() - began)

    async def _reconcile_once(self, key: Key) -> None:
        job = self.caches.jobs.get(key)
        if job is None:
            self._queue.forget(key)
            return
        etcd = await find_etcd(self.client, key[0]) if self.caches.chooses_etcd(job) else ""
        job = self.caches.jobs.get(key)  # it may have changed since
        if job is None:
            return
        memory = self._remembered(job)
        wait = memory.expectations.wait_seconds(self.clock.monotonic())
        if wait > 0:
            self._queue.add_after(key, wait)
            return
        others = (m for m in self._memory.values() if m is not memory)
        ports = tuple(m.host_port for m in others if m.host_port)
        observe = partial(self.caches.observe, job, memory, etcd=etcd, decided_ports=ports)
        decision = await self._decide(key, observed := observe())
        is_lacking = decision and field_of(decision.status, "reason") == "SchedulerMissing"
        if is_lacking and await self.caches.seek():
            decision = await self._decide(key, observed := observe())
        if decision is None:
            return
        if decision.status is not None:
            port = decision.status.get("hostPort")
            # Of one that has ended the cache tells whether it still has them.
            is_over = decision.status.get("phase") in TERMINAL
            memory.host_port = port if isinstance(port, int) and not is_over else 0
        before = memory.faults.all()
        ended = await self._executor.carry_out(job, memory, decision)
        if ended == "gone":
            return
        if ended == "conflict":
            self._queue.back_off(key)
            return
        self._queue.forget(key)
        self._report(job, decision)
        for note in decision.notes:
            self.recorder.record(job.metadata, note)
        known = {fault.identity for fault in before}
        news = [fault for fault in memory.faults.all() if fault.identity not in known]
        if memory.allowed != observed.allowed:
            self._queue.add(key)  # Nothing else will tell that a question was answered.
        if memory.unknown and memory.unknown != observed.unknown:
            self._warn(job, "UnknownField", messages.unknown_fields_text(memory.unknown))
        for fault in news:  # of a job that is over, say, no status tells
            is_lasting = 400 <= fault.status < 500 and fault.status not in (409, 429)
            if fault.verb != "create" and is_lasting:
                reason = messages.failed_call_reason(fault)
                self._warn(job, reason, messages.failed_call_text(fault))
        self._plan_next(key, memory, decision, news)

    async def _decide(self, key: Key, observed: ObservedState) -> Decision | None:
        """Reconcile a job; None while the thread is busy, and the job has to come again.

        It is pure, so it does not matter where it is done, and nobody else acts on this job.
        """
        now = self.clock.now()
        if _pods_wanted(observed.job) + len(observed.pods) < ASIDE_PODS:
            return self.reconcile(observed, now, self.settings)
        if self._is_aside_busy:
            self._aside_next[key] = None  # The workers are for the others.
            return None
        self._is_aside_busy = True
        try:
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(
                self._aside, self.reconcile, observed, now, self.settings
            )
        finally:
            self._is_aside_busy = False
            if self._aside_next:
                following = next(iter(self._aside_next))
                del self._aside_next[following]
                self._queue.add(following)

    def _plan_next(
        self, key: Key, memory: JobRecord, decision: Decision, news: Sequence[FailedCall]
    ) -> None:
        """When time alone, and nothing that happens, makes another look worthwhile."""
        if news:
            self._queue.add(key)  # The status should say so.
        elif len(memory.faults):
            wait = memory.faults.wait_seconds(self.clock.monotonic())
            self._queue.add_after(key, wait or WAKE_SECONDS_MIN)
        if decision.wake_at is not None:
            wait = decision.wake_at - self.clock.now()
            self._queue.add_after(key, min(max(wait, WAKE_SECONDS_MIN), WAKE_SECONDS_MAX))

    def _warn(self, job: PaddleJob | None, reason: str, message: str) -> None:
        if job is not None:
            self.recorder.record(job.metadata, EventNote("Warning", reason, message))

    def _remembered(self, job: PaddleJob) -> JobRecord:
        meta = job.metadata
        memory = self._memory.get(meta.uid)
        if memory is None:
            faults = FailedCalls(self.rng)
            port = host_port(job) if holds_port(job) else 0
            memory = JobRecord(meta.generation, faults, host_port=port)
            self._memory[meta.uid] = memory
        if memory.generation != meta.generation:
            memory.generation = meta.generation
            memory.faults.keep(())
            memory.allowed.clear()
            memory.unknown = None
        return memory

    def _report(self, job: PaddleJob, decision: Decision) -> None:
        """The decision in the log, and an attempt that it begins among the metrics."""
        name = "/".join(key_of(job))
        self.log.debug("looked at", job=name, why=decision.why)
        if decision.status is None:
            return
        old, new = field_of(job.status, "phase"), decision.status.get("phase")
        if new is not None and new != old:
            self.log.info("phase", job=name, old=old or "-", new=new, why=decision.why)
        old, new = field_of(job.status, "attempt"), decision.status.get("attempt")
        if isinstance(new, int) and new > (old if isinstance(old, int) else 0):
            cause = field_of(decision.status.get("lastFailure"), "cause")
            self.metrics.restarts.add(str(cause or "Other"))

    def _phases(self) -> Mapping[tuple[str, ...], float]:
        counts = dict.fromkeys(PHASES, 0.0)
        for job in self.caches.jobs:
            phase = field_of(job.status, "phase")
            name = phase if isinstance(phase, str) and phase in counts else "Pending"
            counts[name] += 1
        return {(phase,): count for phase, count in counts.items()}


def _pods_wanted(job: PaddleJob) -> int:
    """About how many pods the job asks for."""
    roles = [field_of(job.spec, role) for role in ROLES]
    counts = [field_of(role, name) for role in roles for name in ("replicas", "requests")]
    return sum(count for count in counts if isinstance(count, int) and count <= REPLICAS_MAX)
