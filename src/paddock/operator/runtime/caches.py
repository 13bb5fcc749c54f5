"""Caches: one store a kind, the reflectors that fill them, and what is read of them for a job."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from paddock.kube.client import KubeError, Query, Resource
from paddock.operator.decision import ObservedState
from paddock.operator.names import ELASTIC_ETCD, ELASTIC_ETCD_PORT, LABEL_JOB, job_uid
from paddock.operator.runtime.clock import end
from paddock.operator.runtime.executor import GROUPS, RESOURCES, SEEN_BY
from paddock.operator.runtime.informer import (
    ANY,
    LATEST,
    SILENT_SECONDS_MAX,
    ObjectCache,
    Reflector,
)
from paddock.operator.spec import field_of
from paddock.operator.status import has_ended

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from random import Random

    from paddock.kube.client import KubeClient
    from paddock.kube.objects import PaddleJob
    from paddock.operator.decision import Kind
    from paddock.operator.runtime.clock import Clock
    from paddock.operator.runtime.informer import HasMeta
    from paddock.operator.runtime.job_record import JobRecord
    from paddock.operator.runtime.log import Logger
    from paddock.operator.runtime.metrics import Metrics

CHILDREN: tuple[Kind, ...] = ("Pod", "Service", "ConfigMap", *GROUPS)
HAS_PORT = "yes"


class Caches:
    """stores: by kind. Children are those with our label; who owns them is decided by uid.

    is_candidate: another process may be writing, so the first lists may be old ones: ``refresh``
    is called before any work is done on them.
    """

    def __init__(
        self,
        client: KubeClient,
        namespaces: Sequence[str],
        *,
        clock: Clock,
        rng: Random,
        log: Logger,
        metrics: Metrics,
        is_candidate: bool,
    ) -> None:
        self.jobs: ObjectCache[PaddleJob] = ObjectCache({
            "uid": lambda job: job.metadata.uid,
            "port": lambda job: HAS_PORT if holds_port(job) else "",
        })  # fmt: skip
        self.stores: dict[Kind, ObjectCache[Any]] = {
            k: ObjectCache({"owner": _owner_of}) for k in CHILDREN
        }
        self.stores["PaddleJob"] = self.jobs
        self._reflectors = [
            (kind, Reflector(
                client, RESOURCES[kind],
                Query(namespace, labels=SEEN_BY.get(kind, LABEL_JOB)),
                store,
                clock=clock, rng=rng, log=log, restarted=metrics.watch_restarts.add,
                first=ANY if is_candidate else LATEST,
                is_optional=kind in GROUPS,
            ))
            for kind, store in self.stores.items()
            for namespace in namespaces
        ]  # fmt: skip
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Follow the API server from now on, in tasks of the running loop."""
        self._tasks = [asyncio.create_task(r.run()) for _, r in self._reflectors]

    async def stop(self) -> None:
        """Follow it no longer."""
        await end(*self._tasks)

    async def refresh(self) -> None:
        """List everything anew, at least as new as any write that was answered before."""
        try:
            await self.stop()
        finally:
            for _, reflector in self._reflectors:
                reflector.reset()
            self.start()
        await self.wait_synced()

    async def wait_synced(self) -> None:
        """Return when every kind was listed once, those that are not served apart."""
        for _, reflector in self._reflectors:
            await reflector.synced.wait()

    def unsynced(self) -> list[str]:
        """The kinds that are not listed yet, one line each."""
        waiting = {r.name for _, r in self._reflectors if not r.synced.is_set()}
        return [f"{kind} are not listed yet" for kind in sorted(waiting)]

    def silent(self) -> list[str]:
        """Which reflectors hang, one line each."""
        return [
            f"{r.name}: nothing heard for {r.silent_seconds:.0f} s"
            for _, r in self._reflectors
            if r.silent_seconds > SILENT_SECONDS_MAX
        ]

    async def seek(self) -> bool:
        """Ask again for the kinds that were not served; whether one is now."""
        lacking = [r for _, r in self._reflectors if not r.is_served]
        return any(await asyncio.gather(*(reflector.seek() for reflector in lacking)))

    def chooses_etcd(self, job: PaddleJob) -> bool:
        """True while pods of an elastic job do not know their rendezvous yet (job_view.py)."""
        worker = field_of(job.spec, "worker")  # is the number of workers to change? read_spec.py
        is_elastic = field_of(worker, "limits") or field_of(worker, "requests")
        if (not is_elastic and field_of(job.spec, "elastic") is None) or is_over(job):
            return False
        owner = f"{job.metadata.namespace}/{job.metadata.uid}"
        return not (field_of(job.status, "rendezvous") and self.stores["Pod"].find("owner", owner))

    def observe(
        self, job: PaddleJob, memory: JobRecord, *, etcd: str, decided_ports: Iterable[int]
    ) -> ObservedState:
        """Everything of that job. decided_ports: of other jobs, perhaps not to be seen here yet."""
        uid, owner = job.metadata.uid, f"{job.metadata.namespace}/{job.metadata.uid}"
        pods, services, config_maps, volcano, coscheduling = (
            self.stores[kind].find("owner", owner) for kind in CHILDREN
        )
        taken = frozenset[int]()
        if field_of(job.spec, "intranet") == "Host":
            others = (j for j in self.jobs.find("port", HAS_PORT) if j.metadata.uid != uid)
            taken = frozenset((*map(host_port, others), *decided_ports))
        served = {kind for kind, reflector in self._reflectors if reflector.is_served}
        return ObservedState(
            job,
            pods,
            services,
            config_maps,
            (*volcano, *coscheduling),
            failed_calls=memory.faults.all(),
            has_volcano="VolcanoGroup" in served,
            has_coscheduling="CoschedulingGroup" in served,
            etcd=etcd,
            taken_ports=taken,
            allowed=frozenset(memory.allowed),
            unknown=memory.unknown,
        )


def host_port(job: PaddleJob) -> int:
    """status.hostPort; 0 without one."""
    port = field_of(job.status, "hostPort")
    return port if isinstance(port, int) else 0


def holds_port(job: PaddleJob) -> bool:
    """True while no other job may have its host ports: until it and its pods have ended."""
    leaves_pods = field_of(job.spec, "cleanPodPolicy") == "Never"
    return host_port(job) > 0 and (leaves_pods or not is_over(job))


def is_over(job: PaddleJob) -> bool:
    """True when the job has ended for good."""
    return has_ended(field_of(job.status, "phase"), field_of(job.status, "reason"))


def _owner_of(child: HasMeta) -> str:
    """With the namespace: anybody may write the uid of another namespace's job into a pod."""
    uid = job_uid(child.metadata)
    return f"{child.metadata.namespace}/{uid}" if uid else ""


ETCD_SERVICES: Resource[dict[str, Any]] = Resource("", "v1", "services", "Service", dict)


async def find_etcd(client: KubeClient, namespace: str) -> str:
    """ "host:port", or "" without that Service. Raises KubeError when it cannot be known.

    The client port by its name or number, else the first one.
    """
    try:
        service = await client.get(ETCD_SERVICES, namespace, ELASTIC_ETCD)
    except KubeError as error:
        if error.status != 404:
            raise
        return ""
    ports = service.get("spec", {}).get("ports") or ()
    is_clients = [p for p in ports if p.get("name") == "client" or p["port"] == ELASTIC_ETCD_PORT]
    for port in (*is_clients, *ports):
        return f"{ELASTIC_ETCD}.{namespace}.svc:{port['port']}"
    return f"{ELASTIC_ETCD}.{namespace}.svc:{ELASTIC_ETCD_PORT}"
