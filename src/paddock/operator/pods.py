"""The objects of a job: pods, Services and the ConfigMap, as manifests. No I/O.

A pod is the user's template with a name, a place in the gang, the environment of environment.py in
its first container, and what intranet and elastic ask for. Nothing else of it is changed.
"""

from __future__ import annotations

import copy
import hashlib
import json
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from paddock.operator import names
from paddock.operator.environment import (
    GATE,
    IDENTITY,
    TOKEN,
    Environments,
    PodSlot,
    elastic_variables,
    key_of,
)
from paddock.operator.policies.gang import Gang
from paddock.operator.spec import ROLES, RoleSpec

if TYPE_CHECKING:
    from collections.abc import Mapping

    from paddock.kube.client import Manifest
    from paddock.kube.objects import PaddleJob, Pod
    from paddock.operator.spec import JobSpec, RoleName
    from paddock.operator.status import ControllerState

# Resources of accelerators: a name with one of these words in it, as nvidia.com/gpu,
# kunlunxin.com/xpu, hygon.com/dcu, huawei.com/Ascend910.
ACCELERATORS = ("gpu", "xpu", "dcu", "npu", "ascend", "vcore", "mig-")
ELASTIC_WORLD = "elastic"  # the world of pods whose number may change
HOST_BLOCKS = 8  # pods of one job that may share a node with intranet Host
HOST_BLOCK_PORTS = names.PORTS_NUM * HOST_BLOCKS
HOST_PORT_MAX = 65536 - HOST_BLOCK_PORTS
WAITER = """i=0
for n in $PADDOCK_PEERS; do
  until nslookup "$n" >/dev/null 2>&1; do i=$((i+1)); [ $i -gt 1000 ] && exit 1; sleep 1; done
done"""


@dataclass(frozen=True)
class Builder:
    """Makes the manifests of one attempt."""

    job: PaddleJob
    spec: JobSpec
    state: ControllerState
    init_image: str = ""
    gang: Gang = Gang()  # noqa: RUF009 - frozen

    @cached_property
    def slots(self) -> tuple[PodSlot, ...]:
        """Every pod wanted, in the order ps, worker, heter."""
        job, found = self.job.metadata.name, list[PodSlot]()
        is_host = self.spec.intranet == "Host"
        first, blocks = (self.state.host_port, HOST_BLOCKS) if is_host else (names.PORT, 1)
        for role in self.spec.roles:
            resources = [c.get("resources", {}) for c in role.containers()[:1]]
            parts = [both.get(part, {}) for both in resources for part in ("limits", "requests")]
            asked = [name.lower() for part in parts for name in part]
            has_one = any("/" in name and word in name for name in asked for word in ACCELERATORS)
            for index in range(role.replicas):
                port = first + names.PORTS_NUM * (len(found) % blocks)
                pod = names.pod_name(job, role.name, index)
                found.append(PodSlot(role.name, index, pod, port, has_one))
        return tuple(found)

    def world(self) -> str:
        """The size of every role, as pods carry it; another size is another world."""
        if self.spec.is_elastic:
            return ELASTIC_WORLD
        counts = {role.name: role.replicas for role in self.spec.roles}
        return ".".join(f"{counts.get(role, 0)}" for role in ROLES)

    def pods(self, wanted: tuple[PodSlot, ...]) -> dict[str, Manifest]:
        """These pods, by name."""
        if self.spec.is_elastic:
            found = elastic_variables(self.job.metadata, self.spec, self.state.rendezvous)
            address = {"fieldRef": {"fieldPath": "status.podIP"}}
            own: Manifest = {"name": "POD_IP", "valueFrom": address}
            entries = [own, *self._entries(found, {})]
            return {slot.name: self._pod(slot, entries) for slot in wanted}
        blank = self._blank
        env = self.environments({}) if self.spec.is_named else blank
        # Of the ConfigMap: addresses that are not known yet, or lists of them.
        most = 1 if self.spec.is_named else 0
        later = {
            first.role: [n for n, text in blank.of(first).items() if text.count(TOKEN) > most]
            for first in blank.firsts
        }
        made: dict[str, Manifest] = {}
        for slot in wanted:
            from_map = {name: key_of(name, slot) for name in later[slot.role]} | {GATE: blank.gate}
            literal = {n: text for n, text in env.of(slot).items() if n not in from_map}
            made[slot.name] = self._pod(slot, self._entries(literal, from_map))
        return made

    def known_address(self, pod: str) -> str:
        """The name of a pod: of its own Service, or inside the gang's."""
        meta = self.job.metadata  # Paddle's rewrite_host_ip wants a dot
        return f"{pod}.{meta.namespace if self.spec.intranet == 'Service' else meta.name}"

    @cached_property
    def _blank(self) -> Environments:
        """The environments without addresses: a TOKEN stands for each."""
        return Environments(self, {slot.name: TOKEN + slot.name for slot in self.slots})

    def environments(self, pods: Mapping[str, Pod]) -> Environments:
        """The environments with addresses; pods: all that are there, each with its addresses known.

        Not looked at where addresses are names.

        Paddle's readers split an endpoint at ":" (ps/the_one_ps.py), and its launcher takes the
        number of different addresses for that of the nodes (launch/plugins, 3.3.1). Where IPs are
        not fit for that, on IPv6 or with two workers on one node's network, names are given.
        """
        addresses = {slot.name: self.known_address(slot.name) for slot in self.slots}
        if not self.spec.is_named:
            is_host = self.spec.intranet == "Host"
            ips = addresses | {  # one without a pod has succeeded: nobody is there to be called
                name: (pods[name].status.hostIP if is_host else pods[name].status.podIP) or ""
                for name in addresses.keys() & pods.keys()
            }
            workers = [ips[slot.name] for slot in self.slots if slot.role == "worker"]
            is_shared = self.spec.mode != "PS" and len(set(workers)) < len(workers)
            if not is_shared and not any(":" in ip for ip in ips.values()):
                addresses = ips
        return Environments(self, addresses)

    def config_map(self, pods: Mapping[str, Pod]) -> Manifest:
        """The addresses of the gang; pods: as for environments."""
        name = self.job.metadata.name
        labels = {names.LABEL_POD: name, names.LABEL_ATTEMPT: str(self.state.attempt)}
        return {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": meta_of(self.job, name, labels),
            "data": self.environments(pods).shared(self._blank),
        }

    def service(self, name: str) -> Manifest:
        """The headless Service of that name: the job's gives every pod the name <pod>.<job>, a
        pod's is its own (intranet Service)."""
        meta = self.job.metadata
        selector = {names.LABEL_UID: meta.uid}
        count = 1
        if name != meta.name:
            selector, count = {names.LABEL_POD: name, **selector}, names.PORTS_NUM
        ports = [
            {"name": f"p-{i}", "port": names.PORT + i, "targetPort": names.PORT + i}
            for i in range(count)
        ]
        return {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": meta_of(self.job, name),
            "spec": {
                "clusterIP": "None",
                # Names resolve before programs are ready: they wait for one another.
                "publishNotReadyAddresses": True,
                "selector": selector,
                "ports": ports,
            },
        }

    def template_hash(self, role: RoleName) -> str:
        """Changes with the role's template."""
        found = self.spec.role(role)
        assert found is not None
        text = json.dumps(found.template, sort_keys=True, default=str)
        return hashlib.sha256(text.encode()).hexdigest()[:10]

    # ------------------------------------------------------------------ parts

    def _pod(self, slot: PodSlot, entries: list[Manifest]) -> Manifest:
        role = self.spec.role(slot.role)
        assert role is not None
        spec, metadata = copy.deepcopy(role.template["spec"]), role.template["metadata"]
        labels, annotations = (dict(metadata.get(part, {})) for part in ("labels", "annotations"))
        name = self.job.metadata.name
        labels |= {
            names.LABEL_POD: slot.name,
            names.LABEL_ROLE: slot.role,
            names.LABEL_JOB: name,
            names.LABEL_UID: self.job.metadata.uid,
            names.LABEL_ATTEMPT: str(self.state.attempt),
            names.LABEL_INDEX: str(slot.index),
        }
        annotations |= {
            names.ANNOTATION_ROLE: slot.role,
            names.ANNOTATION_WORLD: self.world(),
            names.ANNOTATION_INTRANET: self.spec.intranet,
            names.ANNOTATION_TEMPLATE: self.template_hash(slot.role),
            names.ANNOTATION_CONTAINER: str(spec["containers"][0]["name"]),
        }
        if self.state.attempt_start_time > 0:  # all have had addresses before
            annotations[names.ANNOTATION_AGAIN] = "true"
        labels |= self.gang.labels
        annotations |= self.gang.annotations
        if self.gang.scheduler == "volcano":
            annotations["volcano.sh/task-spec"] = slot.role
        if self.spec.intranet == "Host":
            spec["hostNetwork"] = True
            # ClusterFirst would mean the node's own DNS there, which knows no pods.
            spec["dnsPolicy"] = "ClusterFirstWithHostNet"
        spec.setdefault("hostname", slot.name)  # with subdomain: the name <pod>.<job>
        spec.setdefault("subdomain", name)  # its Service
        if self.spec.is_elastic:
            spec["restartPolicy"] = "OnFailure"
        elif not spec.get("restartPolicy"):
            # paddle-operator's rule, but without a backoffLimit a program's failure ends the job.
            in_place = slot.role == "worker" and self.spec.intranet == "Service"
            spec["restartPolicy"] = "OnFailure" if in_place and self.spec.backoff_limit else "Never"
        if self.spec.sample_set is not None:
            claim = {"claimName": self.spec.sample_set.name}
            volume = {"name": "sample-set", "persistentVolumeClaim": claim}
            spec["volumes"] = [*spec.get("volumes", ()), volume]
        self._fill(slot, spec, entries)
        if self.gang.scheduler_name:
            spec.setdefault("schedulerName", self.gang.scheduler_name)
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": meta_of(self.job, slot.name, labels, annotations),
            "spec": spec,
        }

    def _fill(self, slot: PodSlot, spec: dict[str, Any], entries: list[Manifest]) -> None:
        """The first container: environment, ports, and where its last words go."""
        first = spec["containers"][0]
        ours = {str(entry["name"]) for entry in entries}
        # A template may set anything but who the pod is; its own values come last and may use ours.
        kept = [e for e in first.get("env", ()) if e.get("name") not in IDENTITY | {GATE}]
        set_there = {str(e.get("name")) for e in kept} & ours
        first["env"] = [e for e in entries if e["name"] not in set_there] + kept
        # The last lines of a failed container's log come with its status: no right to read logs.
        for each in (*spec["containers"], *(spec.get("initContainers") or ())):
            if isinstance(each, dict):  # of others than the first the API server knows the form
                each.setdefault("terminationMessagePolicy", "FallbackToLogsOnError")
        if self.spec.intranet in ("Service", "Host"):
            ports = [*first.get("ports", ())]
            if all(p.get("containerPort") != slot.port for p in ports):
                # With hostNetwork the scheduler keeps pods apart that declare the same port.
                ports.append({"name": "paddle", "containerPort": slot.port, "protocol": "TCP"})
            first["ports"] = ports
        if self.spec.sample_set is not None:
            mount = {"name": "sample-set", "mountPath": self.spec.sample_set.mount_path}
            first["volumeMounts"] = [*first.get("volumeMounts", ()), mount]
        if self.init_image:  # it waits for the names of the pod's own role, as the old one did
            peers = [self.known_address(s.name) for s in self.slots if s.role == slot.role]
            resources = {"cpu": "10m", "memory": "10Mi"}
            waiter = {
                "name": "coord-paddle",
                "image": self.init_image,
                "imagePullPolicy": "IfNotPresent",
                "command": ["sh", "-c", WAITER],
                "env": [{"name": "PADDOCK_PEERS", "value": " ".join(peers)}],
                "resources": {"requests": resources, "limits": resources},
            }
            spec["initContainers"] = [waiter, *spec.get("initContainers", ())]

    def _entries(self, literal: Mapping[str, str], from_map: Mapping[str, str]) -> list[Manifest]:
        """The variables of a container; from_map: those at a key of the ConfigMap.

        The gate has to be there; a list that became too long for a variable may be missing.
        """
        entries: list[Manifest] = []
        for name, key in sorted(from_map.items()):
            source: Manifest = {"name": self.job.metadata.name, "key": key}
            if name != GATE:
                source["optional"] = True
            entries.append({"name": name, "valueFrom": {"configMapKeyRef": source}})
        return entries + [{"name": name, "value": text} for name, text in sorted(literal.items())]


def sized(spec: JobSpec, world: str) -> JobSpec:
    """The spec with the roles and replicas of a world, as ``Builder.world`` gives it."""
    if world == ELASTIC_WORLD:
        return replace(spec, elastic_level=0)
    roles = []
    for name, count in zip(ROLES, world.split("."), strict=False):
        number = int(count) if count.isdecimal() else 0
        role = spec.role(name) or RoleSpec(name, number, number, number, {})
        if number:
            roles.append(replace(role, replicas=number, minimum=number, maximum=number))
    return replace(spec, roles=tuple(roles), elastic_level=None)


def meta_of(
    job: PaddleJob,
    name: str,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
) -> Manifest:
    """metadata of an object of the job; the garbage collector removes it with the job."""
    meta = job.metadata
    owner = {
        "apiVersion": f"{names.GROUP}/v1",
        "kind": "PaddleJob",
        "name": meta.name,
        "uid": meta.uid,
        "controller": True,
        "blockOwnerDeletion": False,  # True would need the right to change finalizers
    }
    found: Manifest = {
        "name": name,
        "namespace": meta.namespace,
        "labels": {names.LABEL_JOB: meta.name, names.LABEL_UID: meta.uid, **(labels or {})},
        "ownerReferences": [owner],
    }
    return found | ({"annotations": annotations} if annotations else {})


def choose_host_port(uid: str, taken: frozenset[int], ports: tuple[int, int]) -> int:
    """The first port of a job with intranet Host: its own block if one is free.

    When none is, the block that its uid names: the scheduler keeps equal ports on different nodes.

    >>> choose_host_port("a", frozenset(), (20000, 20320)) in (20000, 20160)
    True
    """
    first, last = ports
    blocks = max(1, (last - first) // HOST_BLOCK_PORTS)
    start = int(hashlib.sha256(uid.encode()).hexdigest()[:8], 16) % blocks
    for step in range(blocks):
        port = first + HOST_BLOCK_PORTS * ((start + step) % blocks)
        if port not in taken:
            return port
    return first + HOST_BLOCK_PORTS * start
