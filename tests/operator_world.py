"""A cluster in memory with one operator that looks at jobs: what stories and properties drive.

``look`` is one pass over one job: observe, decide, write the status, act. What holds for every pass
is asserted there (operator_rules.py). Nodes are played: a pod that was told to run waits for its
ConfigMap as a kubelet does, and goes when it was deleted. Nothing here asks for the time.
"""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from gang_kueue import Kueue, gated
from gang_volcano import Volcano
from kube_memory import Call, MemoryServer, Rule
from operator_rules import check_rules, check_same
from paddock.kube.client import (
    CONFIG_MAPS,
    COSCHEDULING_GROUPS,
    PADDLE_JOBS,
    PODS,
    SERVICES,
    VOLCANO_GROUPS,
    KubeError,
    Resource,
)
from paddock.kube.objects import NOBODY, OwnerReference, PaddleJob
from paddock.operator import names
from paddock.operator.decision import (
    Action,
    Create,
    Decision,
    Delete,
    Kind,
    Observed,
    Patch,
    Settings,
)
from paddock.operator.reconcile import reconcile
from paddock.operator.runtime.caches import holds_port, host_port
from paddock.operator.runtime.executor import RESOURCES
from paddock.operator.runtime.faults import OF_ONE_OBJECT, Faults, told_apart
from paddock.operator.runtime.status import canonical, merge_change

Document = dict[str, Any]
NAMESPACE = "ml"
POD_GC_SECONDS = 20.0
START = 1_767_225_600.0  # 2026-01-01T00:00:00Z
ROUNDS_MAX = 60  # looks at every job until nothing is left to do
CHILDREN: tuple[Resource[Any], ...] = (
    PODS, SERVICES, CONFIG_MAPS, VOLCANO_GROUPS, COSCHEDULING_GROUPS
)  # fmt: skip
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
    is_killed: bool = False

    @property
    def did_anything(self) -> bool:
        """Whether the cluster is another than before."""
        return self.before != self.after or bool(self.taken or self.refused or self.is_killed)


@dataclass
class World:
    """One cluster. lets_go: deleted pods of living nodes go by themselves.

    asks_twice: each decision is made a second time and must be the same to the byte.
    """

    settings: Settings = field(default_factory=Settings)
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
        self._faults: dict[str, Faults] = {}
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

    def observe(self, job: PaddleJob) -> Observed:
        """Everything of that job, by uid."""
        uid = job.metadata.uid
        pods, services, maps, *groups = (
            tuple(o for o in self._all(r) if names.job_uid(o.metadata) == uid) for r in CHILDREN
        )
        ports = {
            host_port(other)
            for other in map(self.job, self.jobs())
            if other.metadata.uid != uid and holds_port(other)
        }
        return Observed(
            job, pods, services, maps, tuple(g for of in groups for g in of),
            faults=self._faults_of(job).all(),
            has_volcano="VolcanoGroup" not in self.without,
            has_coscheduling="CoschedulingGroup" not in self.without,
            etcd=self.etcd,
            taken_ports=frozenset(ports - {0}),
        )  # fmt: skip

    def look(self, name: str) -> Look:
        """One pass over one job, carried out."""
        job = self.job(name)
        observed = self.observe(job)
        decision = reconcile(observed, self.now, self.settings)
        check_rules(observed, decision)
        if self.asks_twice:
            check_same(decision, reconcile(observed, self.now, self.settings))
        self.last[name] = decision
        before: Document = job.status if isinstance(job.status, dict) else {}
        after = self._write_status(job, decision)
        found = Look(name, before, after, decision)
        if self.killed_at == name:
            self.killed_at = ""
            found.is_killed = True
            return found
        faults = self._faults_of(job)
        faults.keep(decision.actions)
        wanted = [a for a in decision.actions if not faults.hold(a, self.now)]
        for _, group in groupby(wanted, key=lambda action: (type(action), action.kind)):
            if not self._take_group(found, faults, list(group)):
                break
        return found

    def settle(self) -> list[Look]:
        """Look at every job, and let pods go on, until nothing is left to do; what was done."""
        looks: list[Look] = []
        for _ in range(ROUNDS_MAX):
            done = [look for look in map(self.look, self.jobs()) if look.did_anything]
            looks += done
            if not self._go_on() and not done:
                return looks
        raise AssertionError(f"does not settle: {[look.decision for look in looks[-3:]]}")

    def _write_status(self, job: PaddleJob, decision: Decision) -> Document:
        present = canonical(job.status)
        wanted = canonical(decision.status)
        if decision.status is None or wanted == present:
            return job.status if isinstance(job.status, dict) else {}
        change = {
            "metadata": {
                "resourceVersion": job.metadata.resourceVersion, "uid": job.metadata.uid
            },
            "status": merge_change(present, wanted),
        }  # fmt: skip
        name = job.metadata.name
        self.server.patch(PADDLE_JOBS, NAMESPACE, name, change, subresource="status")
        self.status_writes += 1
        written = self.job(name).status
        assert written == wanted
        assert isinstance(written, dict)
        return written

    def _take_group(self, found: Look, faults: Faults, actions: list[Action]) -> bool:
        """False when the server is in trouble: the other groups wait, too."""
        for action in actions:
            try:
                self._take(action, found.job)
            except KubeError as error:
                fault = faults.record(action, error, now=self.now, monotonic=self.now)
                found.refused += (f"{fault.verb} {fault.kind} {fault.name}: {error.message}",)
                if error.reason in OF_ONE_OBJECT:
                    continue
                return not (error.status in (0, 429) or error.status >= 500)
            faults.succeed(action)
            found.taken += (action,)
        return True

    def _take(self, action: Action, job: str) -> None:
        resource = RESOURCES[action.kind]
        if isinstance(action, Create):
            call = Call("create", resource, NAMESPACE, action.name, content=action.manifest)
            rule = self.server.faults.take(call)
            if rule is not None:
                raise rule.error
            try:
                self.server.create(resource, NAMESPACE, action.manifest)
            except KubeError as error:
                controller = self._controller_of(action)
                if action.kind not in GROUPS or controller.uid:
                    raise told_apart(error, controller, job) from None
                labels = {names.LABEL_GROUP_OF: self.job(job).metadata.uid}
                change = {"metadata": {"labels": labels}}
                self.server.patch(resource, NAMESPACE, action.name, change)
        elif isinstance(action, Delete):
            self.server.delete(
                resource, NAMESPACE, action.name,
                uid=action.uid, grace_seconds=action.grace_seconds,
            )  # fmt: skip
        else:
            self._patch(resource, action)

    def _patch(self, resource: Resource[Any], action: Patch) -> None:
        if isinstance(action.change, tuple):
            self.server.patch(resource, NAMESPACE, action.name, list(action.change), kind="json")
            return
        metadata = {**_mapping(action.change.get("metadata")), "uid": action.uid}
        change = {**action.change, "metadata": metadata}
        self.server.patch(resource, NAMESPACE, action.name, change)

    def _controller_of(self, action: Create) -> OwnerReference:
        there = [o for o in self._all(RESOURCES[action.kind]) if o.metadata.name == action.name]
        owner: OwnerReference = there[0].metadata.controller if there else NOBODY
        return owner

    def _faults_of(self, job: PaddleJob) -> Faults:
        key = f"{job.metadata.uid}/{job.metadata.generation}"
        if key not in self._faults:
            self._faults[key] = Faults(Even())
        return self._faults[key]

    def forget(self) -> None:
        """The operator is started anew: whatever was in memory only is gone."""
        self._faults.clear()

    def _all(self, resource: Resource[Any]) -> list[Any]:
        if any(GROUPS[kind] == resource for kind in self.without):
            return []
        return [s.read(resource.shape) for s in self.server.all(resource, NAMESPACE)]

    # -------------------------------------------------------------------- the people

    def create_job(self, name: str, spec: object, **metadata: object) -> None:
        """kubectl apply."""
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
            if (place := names.place_of(job, stored.peek["metadata"]["name"])) is not None
        ]
        return [name for _, name in sorted(found, key=lambda f: (f[0].role, f[0].index))]

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


def _mapping(value: object) -> Document:
    return value if isinstance(value, dict) else {}
