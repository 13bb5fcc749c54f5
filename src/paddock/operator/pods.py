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
from typing import TYPE_CHECKING, cast

from paddock.operator import names
from paddock.operator.environment import (
    GATE,
    IDENTITY,
    TOKEN,
    VALUE_MAX,
    Environments,
    PodSlot,
    elastic_variables,
    first_slots,
    gate_key,
    key_of,
    pod_slots,
)
from paddock.operator.spec import ROLES, RoleSpec, as_mapping

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from paddock.kube.client import Manifest
    from paddock.kube.objects import PaddleJob, Pod
    from paddock.operator.spec import JobSpec, RoleName

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
    """Makes the manifests of one attempt. host_port: first port of the job with intranet Host.

    is_again: all pods of the attempt have had addresses before.
    """

    job: PaddleJob
    spec: JobSpec
    attempt: int
    host_port: int = 0
    init_image: str = ""
    rendezvous: str = ""
    is_again: bool = False

    @cached_property
    def slots(self) -> tuple[PodSlot, ...]:
        """Every pod wanted."""
        return pod_slots(self.job.metadata.name, self.spec, self._accelerated)

    def world(self) -> str:
        """The size of every role, as pods carry it; another size is another world."""
        if self.spec.is_elastic:
            return ELASTIC_WORLD
        counts = {role.name: role.replicas for role in self.spec.roles}
        return ".".join(f"{counts.get(role, 0)}" for role in ROLES)

    def port(self, pod: str) -> int:
        """First port of a pod's block."""
        if self.spec.intranet != "Host":
            return names.PORT
        place = names.replica_of(self.job.metadata.name, pod)
        assert place is not None
        before = 0
        for role in self.spec.roles:
            if role.name == place.role:
                break
            before += role.replicas
        return self.host_port + names.PORTS_NUM * ((before + place.index) % HOST_BLOCKS)

    def pods(self, wanted: tuple[PodSlot, ...]) -> dict[str, Manifest]:
        """These pods, by name."""
        if self.spec.is_elastic:
            found = elastic_variables(self.job.metadata, self.spec, self.rendezvous)
            address = {"fieldRef": {"fieldPath": "status.podIP"}}
            own: Manifest = {"name": "POD_IP", "valueFrom": address}
            entries = [own, *_literal_entries(found)]
            return {slot.name: self._pod(slot, entries) for slot in wanted}
        blank = self._environments(TOKEN.__add__)
        env = self._environments(self.known_address) if self.spec.is_named else blank
        # Of the ConfigMap: addresses that are not known yet, or lists of them.
        firsts, most = first_slots(wanted), 1 if self.spec.is_named else 0
        later = {first.role: blank.addressed(first, above=most) for first in firsts}
        gate = gate_key(self.job.metadata.uid, self.attempt)
        made: dict[str, Manifest] = {}
        for slot in wanted:
            from_map = {name: key_of(name, slot) for name in later[slot.role]} | {GATE: gate}
            literal = {n: text for n, text in env.of(slot).items() if n not in from_map}
            entries = _map_entries(self.job.metadata.name, from_map)
            made[slot.name] = self._pod(slot, entries + _literal_entries(literal))
        return made

    def known_address(self, pod: str) -> str:
        """The name of a pod, where addresses are names: of its own Service, or the gang's."""
        if self.spec.intranet != "Service":
            return self.dns_address(pod)
        return f"{pod}.{self.job.metadata.namespace}"  # Paddle's rewrite_host_ip wants a dot

    def _environments(self, address: Callable[[str], str]) -> Environments:
        return Environments(
            self.job.metadata, self.spec, self.slots, attempt=self.attempt, address=address,
            port=self.port,
        )  # fmt: skip

    def config_map(self, pods: Mapping[str, Pod]) -> Manifest:
        """The addresses of the gang; pods: all that are there, each with its addresses known.

        Not looked at where addresses are names.
        """
        return self.config_map_at(self._address_of(pods))

    def config_map_at(self, address: Callable[[str], str]) -> Manifest:
        """The same, with the address of each pod by its name."""
        name = self.job.metadata.name
        labels = {names.LABEL_POD: name, names.LABEL_ATTEMPT: str(self.attempt)}
        return {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": self.meta(name, labels, {}),
            "data": self._environments(address).shared(self.slots),
        }

    def too_long(self, pods: Mapping[str, Pod]) -> dict[str, int]:
        """Lists that are left out, being too long for a variable, with their length.

        pods: as for config_map.
        """
        meta = self.job.metadata
        longest = len(f"{meta.name}-worker-99999.:36000,") + max(
            len(meta.name), len(meta.namespace)
        )
        if self.spec.is_elastic or longest * self.spec.replicas <= VALUE_MAX:
            return {}
        return self._environments(self._address_of(pods)).too_long(self.slots)

    def _address_of(self, pods: Mapping[str, Pod]) -> Callable[[str], str]:
        """Paddle's readers split an endpoint at ":" (ps/the_one_ps.py), and its launcher takes the
        number of different addresses for that of the nodes (launch/plugins, 3.3.1). Where IPs are
        not fit for that, on IPv6 or with two workers on one node's network, names are given.
        """
        if self.spec.is_named:
            return self.known_address
        ips: dict[str, str] = {}
        for slot in self.slots:
            pod = pods.get(slot.name)
            if pod is None:  # it has succeeded and is gone: nobody is there to be called
                ips[slot.name] = self.dns_address(slot.name)
                continue
            ip = pod.status.hostIP if self.spec.intranet == "Host" else pod.status.podIP
            ips[slot.name] = ip or ""
        workers = [ips[slot.name] for slot in self.slots if slot.role == "worker"]
        is_shared = self.spec.mode != "PS" and len(set(workers)) < len(workers)
        is_fit = not is_shared and not any(":" in ip for ip in ips.values())
        return ips.__getitem__ if is_fit else self.dns_address

    def gang_service(self) -> Manifest:
        """The headless Service that gives every pod the name <pod>.<job>."""
        name = self.job.metadata.name
        ports = [{"name": "p-0", "port": names.PORT, "targetPort": names.PORT}]
        return self._service(name, {names.LABEL_UID: self.job.metadata.uid}, ports)

    def pod_service(self, pod: str) -> Manifest:
        """The headless Service of one pod, of the same name (intranet Service)."""
        ports = [
            {"name": f"p-{i}", "port": names.PORT + i, "targetPort": names.PORT + i}
            for i in range(names.PORTS_NUM)
        ]
        selector = {names.LABEL_POD: pod, names.LABEL_UID: self.job.metadata.uid}
        return self._service(pod, selector, ports)

    def dns_address(self, pod: str) -> str:
        """The name of a pod inside the gang's Service."""
        return f"{pod}.{self.job.metadata.name}"

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
        template = copy.deepcopy(dict(role.template))
        spec = cast("Manifest", template["spec"])  # the reader has seen that it is a mapping
        metadata = as_mapping(template.get("metadata"))
        labels = {
            **_texts(metadata.get("labels")),
            names.LABEL_POD: slot.name,
            names.LABEL_ROLE: slot.role,
            names.LABEL_JOB: self.job.metadata.name,
            names.LABEL_UID: self.job.metadata.uid,
            names.LABEL_ATTEMPT: str(self.attempt),
            names.LABEL_INDEX: str(slot.index),
        }
        annotations = {
            **_texts(metadata.get("annotations")),
            names.ANNOTATION_ROLE: slot.role,
            names.ANNOTATION_WORLD: self.world(),
            names.ANNOTATION_INTRANET: self.spec.intranet,
            names.ANNOTATION_TEMPLATE: self.template_hash(slot.role),
            **({names.ANNOTATION_AGAIN: "true"} if self.is_again else {}),
        }
        self._place(slot, spec)
        self._fill(slot, spec, entries)
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": self.meta(slot.name, labels, annotations),
            "spec": spec,
        }

    def _place(self, slot: PodSlot, spec: Manifest) -> None:
        """Name, network and restarts of the pod."""
        if self.spec.intranet == "Host":
            spec["hostNetwork"] = True
            # ClusterFirst would mean the node's own DNS there, which knows no pods.
            spec["dnsPolicy"] = "ClusterFirstWithHostNet"
        spec.setdefault("hostname", slot.name)  # with subdomain: the name <pod>.<job>
        spec.setdefault("subdomain", self.job.metadata.name)  # its Service
        if self.spec.is_elastic:
            spec["restartPolicy"] = "OnFailure"
        elif not spec.get("restartPolicy"):
            # paddle-operator's rule, but without a backoffLimit a program's failure ends the job.
            in_place = slot.role == "worker" and self.spec.intranet == "Service"
            spec["restartPolicy"] = "OnFailure" if in_place and self.spec.backoff_limit else "Never"
        if self.spec.sample_set is not None:
            claim = {"claimName": self.spec.sample_set.name}
            volume = {"name": "sample-set", "persistentVolumeClaim": claim}
            spec["volumes"] = [*_list(spec.get("volumes")), volume]

    def _fill(self, slot: PodSlot, spec: Manifest, entries: list[Manifest]) -> None:
        """The first container: environment, ports, and where its last words go."""
        containers = cast("list[Manifest]", spec["containers"])
        first = containers[0]
        ours = {str(entry["name"]) for entry in entries}
        # A template may set anything but who the pod is; its own values come last and may use ours.
        theirs = [e for e in _list(first.get("env")) if isinstance(e, dict)]
        kept = [e for e in theirs if e.get("name") not in IDENTITY | {GATE}]
        set_there = {str(e.get("name")) for e in kept} & ours
        first["env"] = [e for e in entries if e["name"] not in set_there] + kept
        # The last lines of a failed container's log come with its status: no right to read logs.
        first.setdefault("terminationMessagePolicy", "FallbackToLogsOnError")
        if self.spec.intranet in ("Service", "Host"):
            port = self.port(slot.name)
            ports = [*_list(first.get("ports"))]
            taken = {p.get("containerPort") for p in ports if isinstance(p, dict)}
            if port not in taken:
                # With hostNetwork the scheduler keeps pods apart that declare the same port.
                ports.append({"name": "paddle", "containerPort": port, "protocol": "TCP"})
            first["ports"] = ports
        if self.spec.sample_set is not None:
            mount = {"name": "sample-set", "mountPath": self.spec.sample_set.mount_path}
            first["volumeMounts"] = [*_list(first.get("volumeMounts")), mount]
        if self.init_image:
            spec["initContainers"] = [self._waiter(slot), *_list(spec.get("initContainers"))]

    def _waiter(self, slot: PodSlot) -> Manifest:
        """--init-image: waits for the names of the pod's own role, as the old one did."""
        known = self.known_address if self.spec.is_named else self.dns_address
        peers = [known(s.name) for s in self.slots if s.role == slot.role]
        resources = {"cpu": "10m", "memory": "10Mi"}
        return {
            "name": "coord-paddle",
            "image": self.init_image,
            "imagePullPolicy": "IfNotPresent",
            "command": ["sh", "-c", WAITER],
            "env": [{"name": "PADDOCK_PEERS", "value": " ".join(peers)}],
            "resources": {"requests": resources, "limits": resources},
        }

    def _service(self, name: str, selector: dict[str, str], ports: list[Manifest]) -> Manifest:
        return {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": self.meta(name, {}, {}),
            "spec": {
                "clusterIP": "None",
                # Names resolve before programs are ready: they wait for one another.
                "publishNotReadyAddresses": True,
                "selector": selector,
                "ports": ports,
            },
        }

    def meta(self, name: str, labels: dict[str, str], annotations: dict[str, str]) -> Manifest:
        """metadata of an object of the job."""
        meta = self.job.metadata
        found: Manifest = {
            "name": name,
            "namespace": meta.namespace,
            "labels": {names.LABEL_JOB: meta.name, names.LABEL_UID: meta.uid, **labels},
            "ownerReferences": [owner_reference(self.job)],
        }
        if annotations:
            found["annotations"] = annotations
        return found

    def _accelerated(self, role: RoleName) -> bool:
        found = self.spec.role(role)
        for container in found.containers()[:1] if found is not None else ():
            for part in as_mapping(container.get("resources")).values():
                wanted = [str(name).lower() for name in as_mapping(part)]
                if any("/" in name and word in name for name in wanted for word in ACCELERATORS):
                    return True
        return False


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


def owner_reference(job: PaddleJob) -> Manifest:
    """The owner reference of the job's objects: the garbage collector removes them with the job."""
    return {
        "apiVersion": f"{names.GROUP}/v1",
        "kind": "PaddleJob",
        "name": job.metadata.name,
        "uid": job.metadata.uid,
        "controller": True,
        "blockOwnerDeletion": False,  # True would need the right to change finalizers
    }


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


def _literal_entries(found: Mapping[str, str]) -> list[Manifest]:
    return [{"name": name, "value": text} for name, text in sorted(found.items())]


def _map_entries(config_map: str, found: Mapping[str, str]) -> list[Manifest]:
    """The gate has to be there; a list that became too long for a variable may be missing."""
    entries: list[Manifest] = []
    for name, key in sorted(found.items()):
        source: Manifest = {"name": config_map, "key": key}
        if name != GATE:
            source["optional"] = True
        entries.append({"name": name, "valueFrom": {"configMapKeyRef": source}})
    return entries


def _texts(found: object) -> dict[str, str]:
    return {key: str(text) for key, text in as_mapping(found).items()}


def _list(found: object) -> list[object]:
    return found if isinstance(found, list) else []
