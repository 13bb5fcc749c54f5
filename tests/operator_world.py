"""A cluster in memory with one operator that looks at jobs: what stories and properties drive.

``look`` is one pass over one job by the real caches and executor. What holds for every pass
is asserted there (operator_rules.py). Nodes are played: a pod that was told to run waits for its
ConfigMap as a kubelet does, and goes when it was deleted. Nothing here asks for the time.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from gang_kueue import Kueue, gated
from gang_volcano import Volcano
from kube_memory import Call, MemoryClient, MemoryServer, Rule
from kube_memory.server import no_pause
from operator_rules import check_rules, check_same
from paddock.kube.client import (
    CONFIG_MAPS,
    COSCHEDULING_GROUPS,
    PADDLE_JOBS,
    PODS,
    VOLCANO_GROUPS,
    KubeError,
    Resource,
)
from paddock.kube.objects import PaddleJob
from paddock.operator import names
from paddock.operator.decision import Create, Decision, Kind, OperatorSettings
from paddock.operator.reconcile import reconcile
from paddock.operator.runtime.caches import Caches
from paddock.operator.runtime.executor import RESOURCES, Executor, canonical
from paddock.operator.runtime.job_record import FailedCalls, JobRecord, call_of
from paddock.operator.runtime.log import Logger
from paddock.operator.runtime.metrics import Metrics

if TYPE_CHECKING:
    from collections.abc import Callable

    from paddock.operator.decision import Action

T = TypeVar("T")
Document = dict[str, Any]
NAMESPACE = "ml"
POD_GC_SECONDS = 20.0
START = 1_767_225_600.0  # 2026-01-01T00:00:00Z
ROUNDS_MAX = 60  # looks at every job until nothing is left to do
GROUPS: dict[Kind, Resource[Any]] = {
    "VolcanoGroup": VOLCANO_GROUPS,
    "CoschedulingGroup": COSCHEDULING_GROUPS,
}


class Even(random.Random):
    """No jitter, so that a story has round numbers."""

    def uniform(self, a: float, b: float) -> float:
        """The least."""
        del b
        return a


@dataclass
class Look:
    """What one look at one job did. before, after: the status; the same when it was left alone."""

    job: str
    before: Document
    after: Document
    decision: Decision
    taken: tuple[Action, ...] = ()
    refused: tuple[str, ...] = ()
    taken_back: tuple[str, ...] = ()  # names of those taken that were there, without our label
    is_killed: bool = False

    @property
    def did_anything(self) -> bool:
        """Whether the cluster is another than before."""
        return self.before != self.after or bool(self.taken or self.refused or self.is_killed)


class OfOperator(MemoryClient):
    """The operator's client. asked: its calls, until somebody clears them."""

    def __init__(self, server: MemoryServer) -> None:
        super().__init__(server, "operator", idle_seconds=75.0, pause=no_pause)
        self.asked: list[Call] = []

    async def _asked(self, call: Call, carry_out: Callable[[], T]) -> T:
        self.asked.append(call)
        return await super()._asked(call, carry_out)


@dataclass
class Watch:
    """The clock of a world; it stands still while the operator looks."""

    world: World

    def now(self) -> float:
        """Seconds since 1970."""
        return self.world.now

    monotonic = now

    async def sleep(self, seconds: float) -> None:
        """Until somebody ends it: nothing here is waited for."""
        if seconds > 0:
            await asyncio.Event().wait()


@dataclass
class World:
    """One cluster. lets_go: deleted pods of living nodes go by themselves.

    asks_twice: each decision is made a second time and must be the same to the byte.
    """

    settings: OperatorSettings = field(default_factory=OperatorSettings)
    now: float = START
    lets_go: bool = True
    is_ipv6: bool = False
    etcd: str = ""
    asks_twice: bool = False

    def __post_init__(self) -> None:
        self.server = MemoryServer(now=lambda: self.now)
        self.kubelet = self.server.kubelet
        self.status_writes = 0
        self.killed_at = ""  # the job after whose next status the operator ends
        self.without: set[Kind] = set()
        self._starting: set[str] = set()  # pods whose containers wait for their variables
        self._held: list[Rule] = []
        self._memory: dict[str, JobRecord] = {}
        self._client = OfOperator(self.server)
        self._clock = Watch(self)
        self._log = Logger(lambda _: None, self._clock, level="error", form="text")
        self.last: dict[str, Decision] = {}  # by job
        self._addresses = 0
        self._gangs: list[Volcano | Kueue] = []

    # ------------------------------------------------------------------ the operator

    def jobs(self) -> list[str]:
        """Names of the jobs, sorted."""
        return [s.peek["metadata"]["name"] for s in self.server.all(PADDLE_JOBS, NAMESPACE)]

    def job(self, name: str) -> PaddleJob:
        """A job as the API server has it."""
        return self.server.get(PADDLE_JOBS, NAMESPACE, name).read(PaddleJob)

    def look(self, name: str) -> Look:
        """One pass over one job, carried out by the operator's own caches and executor."""
        loop = asyncio.new_event_loop()
        try:
            return loop.run_until_complete(self._look(name))
        finally:
            loop.close()

    async def _look(self, name: str) -> Look:
        caches = Caches(
            self._client, (NAMESPACE,), clock=self._clock, rng=Even(), log=self._log,
            metrics=Metrics(), is_candidate=False,
        )  # fmt: skip
        caches.start()
        try:
            await caches.wait_synced()
            return await self._carried_out(caches, name)
        finally:
            await caches.stop()

    async def _carried_out(self, caches: Caches, name: str) -> Look:
        job = caches.jobs.get((NAMESPACE, name))
        assert job is not None
        memory = self._memory_of(job)
        for kind, store in caches.stores.items():
            store.listen(partial(memory.expectations.see, kind))
        observed = caches.observe(job, memory, etcd=self.etcd, decided_ports=())
        decision = reconcile(observed, self.now, self.settings)
        check_rules(observed, decision)
        if self.asks_twice:
            check_same(decision, reconcile(observed, self.now, self.settings))
        self.last[name] = decision
        is_killed = self.killed_at == name
        if is_killed:
            self.killed_at = ""
            decision = replace(decision, actions=())
        self._client.asked.clear()
        executor = Executor(self._client, caches.stores, clock=self._clock, log=self._log)
        assert await executor.carry_out(job, memory, decision) == "done"
        for _ in range(ROUNDS_MAX):
            # sleep: the watches bring what was written
            await asyncio.sleep(0)
        assert len(memory.expectations) == 0, "written, and not to be seen"
        return self._told(job, decision, memory.faults, is_killed=is_killed)

    def _told(
        self, job: PaddleJob, decision: Decision, faults: FailedCalls, *, is_killed: bool
    ) -> Look:
        """What was asked of the server, and what it took."""
        before: Document = job.status if isinstance(job.status, dict) else {}
        after = before if decision.status is None else canonical(decision.status)
        assert isinstance(after, dict)
        is_there = job.metadata.name in self.jobs()
        assert not is_there or canonical(self.job(job.metadata.name).status) == canonical(after)
        asked = Counter((call.verb, call.resource.kind, call.name) for call in self._client.asked)
        self.status_writes += sum(call.subresource == "status" for call in self._client.asked)
        refused = {(f.verb, f.kind, f.name): f for f in faults.all()}
        tried = [a for a in decision.actions if asked[_call_of(a)]]
        return Look(
            job.metadata.name, before, after, decision, is_killed=is_killed,
            taken=tuple(a for a in tried if call_of(a) not in refused),
            refused=tuple(
                f"{' '.join(call_of(a))}: {refused[call_of(a)].message}"
                for a in tried if call_of(a) in refused
            ),
            taken_back=tuple(
                a.name for a in tried
                if isinstance(a, Create) and asked[("patch", *_call_of(a)[1:])]
            ),
        )  # fmt: skip

    def settle(self) -> list[Look]:
        """Look at every job, and let pods go on, until nothing is left to do; what was done."""
        looks: list[Look] = []
        for _ in range(ROUNDS_MAX):
            done = [look for look in map(self.look, self.jobs()) if look.did_anything]
            looks += done
            if not self._go_on() and not done:
                return looks
        raise AssertionError(f"does not settle: {[look.decision for look in looks[-3:]]}")

    def _memory_of(self, job: PaddleJob) -> JobRecord:
        meta = job.metadata
        key = f"{meta.uid}/{meta.generation}"
        if key not in self._memory:
            self._memory[key] = JobRecord(meta.generation, FailedCalls(Even()))
        return self._memory[key]

    def forget(self) -> None:
        """The operator is started anew: whatever was in memory only is gone."""
        self._memory.clear()

    # -------------------------------------------------------------------- the people

    def create_job(self, name: str, spec: object, **metadata: object) -> None:
        """kubectl apply. intranet is PodIP unless given: there most has to be waited for."""
        if isinstance(spec, dict) and spec:
            spec = {"intranet": "PodIP", **spec}
        manifest: Document = {"metadata": {"name": name, **metadata}, "spec": spec}
        self.server.create(PADDLE_JOBS, NAMESPACE, manifest)

    def edit(self, name: str, change: Document) -> None:
        """Merge a change into the spec."""
        self.server.patch(PADDLE_JOBS, NAMESPACE, name, {"spec": change})

    def serve(self, kind: Kind, is_served: bool) -> None:
        """Install or remove a kind of PodGroup."""
        self.server.serve(GROUPS[kind], is_served)
        (self.without.discard if is_served else self.without.add)(kind)

    def start_volcano(self, places: int) -> None:
        """Volcano's scheduler places pods from now on."""

        async def bind(pod: str, place: int) -> None:
            self.run(pod, f"node-{place}")

        client = self.server.client("volcano")
        self._gangs = [Volcano(client, NAMESPACE, bind, places)]

    def start_kueue(self, quota: int) -> Kueue:
        """Kueue looks after pods with a queue from now on."""
        found = Kueue(self.server.client("kueue"), NAMESPACE, quota)
        self._gangs = [found]
        self.server.mutates["pods"] = gated
        return found

    def delete(self, resource: Resource[Any], name: str) -> None:
        """Somebody deletes an object."""
        self.server.delete(resource, NAMESPACE, name)

    # --------------------------------------------------------------------- the nodes

    def pods(self, job: str) -> list[str]:
        """Names of the pods that look like those of a job, sorted by role and number."""
        found = [
            (place, stored.peek["metadata"]["name"])
            for stored in self.server.all(PODS, NAMESPACE)
            if (place := names.replica_of(job, stored.peek["metadata"]["name"])) is not None
        ]
        return [name for _, name in sorted(found)]

    def pod(self, name: str) -> Document:
        """A pod as the API server has it, to be looked at only."""
        return self.server.get(PODS, NAMESPACE, name).peek

    def schedule(self, name: str, node: str = "") -> None:
        """Bind a pod and give it its addresses, as a node does that prepares it."""
        found = self.pod(name)
        if not found["spec"].get("nodeName"):
            number = name.rpartition("-")[2]
            self.kubelet.schedule(
                f"{NAMESPACE}/{name}", node or f"node-{int(number) % 2 if number.isdigit() else 0}"
            )
            found = self.pod(name)
        if found["status"].get("podIP"):
            return
        host = self.host_address(found["spec"]["nodeName"])
        address = host if found["spec"].get("hostNetwork") else self._next_address()
        status = {"status": {"podIP": address, "hostIP": host}}
        self.server.patch(PODS, NAMESPACE, name, status, subresource="status")

    def run(self, name: str, node: str = "") -> None:
        """Start a pod; it waits for its variables if they are not there yet."""
        self.schedule(name, node)
        self._starting.add(name)
        self._start(name, is_first=True)

    def host_address(self, node: str) -> str:
        """The address of a node."""
        number = int("0" + "".join(c for c in node if c.isdigit())) + 1
        return f"fd00::{number:x}" if self.is_ipv6 else f"192.168.0.{number}"

    def environment(self, name: str) -> dict[str, str] | None:
        """What the first container of a pod sees; None while a variable cannot be had."""
        found = self.pod(name)
        result: dict[str, str] = {}
        for entry in found["spec"]["containers"][0].get("env") or ():
            source = entry.get("valueFrom")
            if source is None:
                result[entry["name"]] = entry.get("value", "")
            elif "fieldRef" in source:
                assert source["fieldRef"]["fieldPath"] == "status.podIP"
                result[entry["name"]] = found["status"].get("podIP", "")
            else:
                text = self._in_map(**source["configMapKeyRef"])
                if text is None:
                    return None
                if text:
                    result[entry["name"]] = text[0]
        return result

    def _in_map(self, *, name: str, key: str, optional: bool = False) -> tuple[str, ...] | None:
        try:
            data = self.server.get(CONFIG_MAPS, NAMESPACE, name).document.get("data") or {}
        except KubeError:
            data = {}
        if key in data:
            return (data[key],)
        return () if optional else None

    def _next_address(self) -> str:
        self._addresses += 1
        if self.is_ipv6:
            return f"fd00:a::{self._addresses:x}"
        return f"10.0.{self._addresses // 250}.{self._addresses % 250 + 1}"

    def pass_time(self, seconds: float) -> None:
        """The clock moves; what waits for it goes on."""
        self.now += seconds
        self.server.tick()
        if seconds >= POD_GC_SECONDS:
            self.kubelet.collect_unbound()
        for name in sorted(self._starting):
            self._start(name, is_first=True)

    def _go_on(self) -> bool:
        """Pods that may start do, deleted ones go; whether any did."""
        moved = [self._start(name, is_first=False) for name in sorted(self._starting)]
        for gang in self._gangs:
            moved += [asyncio.run(gang.step()), bool(self.server.collect())]
        if not self.lets_go:
            return any(moved)
        for stored in self.server.all(PODS, NAMESPACE):
            metadata, spec = stored.peek["metadata"], stored.peek["spec"]
            is_reachable = spec.get("nodeName") not in self.kubelet.lost
            if metadata.get("deletionTimestamp") and is_reachable:
                moved.append(self._let_go(metadata["name"]))
            elif self._gangs and is_placed_by_default(spec):
                self.run(metadata["name"])
                moved.append(True)
        return any(moved)

    def _let_go(self, name: str) -> bool:
        """The kubelet's last word on a deleted pod; what a finalizer holds has no other."""
        before = self.pod(name)
        if before["spec"].get("nodeName"):
            self.kubelet.let_go(f"{NAMESPACE}/{name}")
        stored = self.server.store.get("pods", (NAMESPACE, name))
        return stored is None or stored.peek != before

    def _start(self, name: str, *, is_first: bool) -> bool:
        """A kubelet looks at once, and again when the pod changes or after some time."""
        if self.server.store.get("pods", (NAMESPACE, name)) is None:
            self._starting.discard(name)
            return False
        found = self.pod(name)
        is_told = names.ANNOTATION_GO in (found["metadata"].get("annotations") or {})
        if found["metadata"].get("deletionTimestamp") or not (is_first or is_told):
            return False
        if self.environment(name) is not None:
            self._starting.discard(name)
            self.kubelet.run(f"{NAMESPACE}/{name}")
            return True
        message = f'configmap "{name.rsplit("-", 2)[0]}" not found'
        self.kubelet.wait(f"{NAMESPACE}/{name}", "CreateContainerConfigError", message)
        return False


def is_placed_by_default(spec: Document) -> bool:
    """The default scheduler would bind such a pod."""
    is_free = not spec.get("nodeName") and not spec.get("schedulingGates")
    return is_free and bool(spec["schedulerName"] == "default-scheduler")


def full_spec(given: Any) -> Any:
    """A spec with its shorthands written out; what is no mapping is left as it is."""
    if not isinstance(given, dict):
        return given
    return {k: full_role(v) if k in ("ps", "worker", "heter") else v for k, v in given.items()}


def full_role(given: Any) -> Any:
    """A number, or a mapping with `image`, `pod` (fields of the pod) and `container`."""
    if isinstance(given, int) and not isinstance(given, bool):
        given = {"replicas": given, "image": "train:1"}
    if not isinstance(given, dict) or not {"image", "pod", "container"} & given.keys():
        return given
    role = dict(given)
    container = {"name": "paddle", "image": role.pop("image", "train:1")}
    container |= role.pop("container", {})
    pod = {"containers": [container], **role.pop("pod", {})}
    return {**role, "template": {"spec": pod}}


def _call_of(action: Action) -> tuple[str, str, str]:
    """As the server counts it: two Kinds are PodGroups there."""
    verb, kind, name = call_of(action)
    return verb, RESOURCES[kind].kind, name
