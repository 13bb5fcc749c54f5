"""Kueue's part for plain pods, played after its sources: gates, finalizers, and when they go.

It serves stories in memory, which ask what the operator decides: its webhook (`gated`) and one pass
of its controller over a namespace (`step`), over any Client. The quota counts pods, whatever they
ask. Kueue itself runs in tests/cluster/test_operator_kueue.py.

Source (kubernetes-sigs/kueue v0.17): pkg/controller/jobs/pod/pod_controller.go and pod_webhook.go,
pkg/controller/jobframework/reconciler.go (ReconcileGenericJob; the numbers below are its steps).

A pod with a queue gets a gate, the label managed and a finalizer of that name. When it goes again:

| pods | when |
|---|---|
| one without a group        | when it is being deleted, or is over |
| of a group without Workload | being deleted without a node, or failed |
| of a group | all, when the Workload is Finished: all have succeeded, or all are over and one |
|            | says retriable-in-group "false" |
| of a group | those that failed, or are being deleted without a node, when others replace them |
| of a group | all, when its Workload is being deleted |
| of a group | what is beyond the total count: it is deleted, too |
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gang_volcano import OVER, PODS, annotation, name_of
from paddock.kube.client import KubeError, Query, Resource

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gang_volcano import Document
    from paddock.kube.client import KubeClient

WORKLOADS = Resource("kueue.x-k8s.io", "v1beta2", "workloads", "Workload", dict[str, Any])
QUEUE, MANAGED = "kueue.x-k8s.io/queue-name", "kueue.x-k8s.io/managed"
GROUP, COUNT = "kueue.x-k8s.io/pod-group-name", "kueue.x-k8s.io/pod-group-total-count"
ROLE, RETRIABLE = "kueue.x-k8s.io/role-hash", "kueue.x-k8s.io/retriable-in-group"
GATE, IN_USE = "kueue.x-k8s.io/admission", "kueue.x-k8s.io/resource-in-use"


def gated(pod: Document) -> Document:
    """The pod after the mutating webhook (PodWebhook.Default), changed in place."""
    labels = pod["metadata"].get("labels") or {}
    if QUEUE not in labels:
        return pod
    labels[MANAGED] = "true"
    pod["metadata"]["finalizers"] = [*(pod["metadata"].get("finalizers") or ()), MANAGED]
    pod["spec"]["schedulingGates"] = [*(pod["spec"].get("schedulingGates") or ()), {"name": GATE}]
    if GROUP in labels:
        notes = pod["metadata"].setdefault("annotations", {})
        notes[ROLE] = role_hash(pod)
    return pod


def role_hash(pod: Document) -> str:
    """Pods of one shape are one pod set of the Workload (getRoleHash)."""
    spec = pod["spec"]
    shape = [spec.get(name) for name in ("nodeSelector", "affinity", "tolerations", "priority")]
    shape += [[c.get("resources"), c.get("ports")] for c in spec["containers"]]
    return hashlib.sha256(json.dumps(shape, sort_keys=True).encode()).hexdigest()[:8]


@dataclass
class Kueue:
    """The controller, in one namespace. quota: pods that may be admitted at a time."""

    client: KubeClient
    namespace: str
    quota: int = 100

    async def step(self) -> bool:
        """One pass over every group and every single pod, and one of the queue; whether it wrote.

        Each of them takes one step of ReconcileGenericJob.
        """
        query = Query(self.namespace)
        pods = [p for p in (await self.client.page(PODS, query)).items if label(p, MANAGED)]
        loads = {name_of(w): w for w in (await self.client.page(WORKLOADS, query)).items}
        keys = {workload_of(p) for p in pods} | loads.keys()
        wrote = False
        for key in sorted(keys):
            mine = [p for p in pods if workload_of(p) == key]
            wrote |= await self._reconcile(key, mine, loads.get(key))
        return wrote or await self._admit(tuple(loads.values()))

    async def evict(self, group: str, reason: str = "Preempted") -> None:
        """Its place is for somebody else now: the pods are deleted in the following passes."""
        await self._say(group, Evicted=reason)

    async def delete_workload(self, name: str) -> None:
        """A person deletes it."""
        await self.client.delete(WORKLOADS, self.namespace, name)

    # --------------------------------------------------------------- the steps of a pass

    async def _reconcile(self, key: str, pods: list[Document], load: Document | None) -> bool:
        is_group = any(label(p, GROUP) for p in pods)
        if not pods or (not is_group and is_going(pods[0])):  # 0. Load: removeFinalizers
            return await self._released(load) | await self._finalize(pods)
        if load is not None and is_group:  # 1. FindMatchingWorkloads
            pods, replaced, excess, fits = sorted_out(load, pods)
            if not fits:
                return await self._stop(pods) | await self._drop(load)
            if await self._finalize(replaced) | await self._remove(excess):
                return True
        if load is not None and says(load, "Finished"):
            return await self._finalize(pods) | await self._released(load)
        if load is not None and is_going(load):  # 1.1
            wrote = await self._stop(pods, also_over=True)
            return wrote | await self._finalize(pods) | await self._released(load)
        if is_finished(pods, is_group=is_group):  # 2.
            if load is not None:
                await self._say(key, Finished="JobFinished")
            return await self._finalize(pods) or load is not None
        if load is None:  # 3.
            return await self._construct(key, pods, is_group=is_group)
        if says(load, "Evicted"):  # 6.
            if await self._stop(pods):
                return True
            if says(load, "Admitted") and not any(p["status"]["phase"] == "Running" for p in pods):
                await self._say(key, Admitted="", Evicted="")
                return True
            return False
        if any(is_suspended(p) for p in pods):  # 7.
            return says(load, "Admitted") and await self._ungate(pods)
        return not says(load, "Admitted") and await self._stop(pods)  # 8.

    async def _construct(self, key: str, pods: list[Document], *, is_group: bool) -> bool:
        """ConstructComposableWorkload."""
        if is_group and await self._finalize([p for p in pods if not is_runnable(p)]):
            return True
        active = [p for p in pods if is_runnable(p)]
        if is_group:
            counts = {int(annotation(p, COUNT)) for p in active}
            if len(counts) != 1 or len(active) < max(counts):
                return False  # "has fewer runnable pods than expected", "different ... values"
            if len(active) > max(counts):
                return await self._remove(newest_first(active)[: len(active) - max(counts)])
        sets: dict[str, int] = {}
        for pod in active:
            role = annotation(pod, ROLE) or "main"
            sets[role] = sets.get(role, 0) + 1
        owners = [{"apiVersion": "v1", "kind": "Pod", "name": name_of(p),
                   "uid": p["metadata"]["uid"]} for p in pods]  # fmt: skip
        manifest = {
            "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload",
            "metadata": {"name": key, "finalizers": [IN_USE], "ownerReferences": owners},
            "spec": {"podSets": [{"name": r, "count": n} for r, n in sorted(sets.items())],
                     "queueName": label(pods[0], QUEUE)},
        }  # fmt: skip
        await self.client.create(WORKLOADS, self.namespace, manifest)
        return True

    async def _admit(self, loads: Sequence[Document]) -> bool:
        """The queue: the first that fits, and nobody behind the first that does not."""
        used = sum(size_of(w) for w in loads if says(w, "Admitted") and not says(w, "Finished"))
        waiting = [w for w in loads if not any(says(w, s) for s in ("Admitted", "Finished"))]
        waiting = [w for w in waiting if not is_going(w)]
        order = sorted(waiting, key=lambda w: (w["metadata"]["creationTimestamp"], name_of(w)))
        for load in order:
            if used + size_of(load) > self.quota:
                return False
            await self._say(name_of(load), Admitted="Admitted")
            return True
        return False

    async def _ungate(self, pods: list[Document]) -> bool:
        """Pod.Run."""
        closed = [p for p in pods if has_gate(p)]
        for pod in closed:
            rest = [g for g in pod["spec"]["schedulingGates"] if g["name"] != GATE]
            await self._patch(pod, {"spec": {"schedulingGates": rest or None}})
        return bool(closed)

    async def _stop(self, pods: list[Document], *, also_over: bool = False) -> bool:
        """Pod.Stop: those that run are deleted."""
        wrote = False
        for pod in pods:
            if is_going(pod) or (is_suspended(pod) and not also_over):
                continue
            condition = {"type": "TerminationTarget", "status": "True", "reason": "WorkloadEvicted",
                         "message": "Preempted to accommodate a workload"}  # fmt: skip
            conditions = [*(pod["status"].get("conditions") or ()), condition]
            await self._patch(pod, {"status": {"conditions": conditions}}, "status")
            await self._delete(pod)
            wrote = True
        return wrote

    async def _remove(self, pods: Sequence[Document]) -> bool:
        """removeExcessPods."""
        for pod in pods:
            await self._finalize([pod])
            if not is_going(pod):
                await self._delete(pod)
        return bool(pods)

    async def _finalize(self, pods: Sequence[Document]) -> bool:
        held = [p for p in pods if MANAGED in (p["metadata"].get("finalizers") or ())]
        for pod in held:
            rest = [f for f in pod["metadata"]["finalizers"] if f != MANAGED]
            await self._patch(pod, {"metadata": {"finalizers": rest or None}})
        return bool(held)

    # ------------------------------------------------------------------- Workloads

    async def _released(self, load: Document | None) -> bool:
        """RemoveFinalizer of the Workload: its owners gone, the garbage collector takes it."""
        if load is None or not load["metadata"].get("finalizers"):
            return False
        change = {"metadata": {"finalizers": None}}
        await _unless_gone(self.client.patch(WORKLOADS, self.namespace, name_of(load), change))
        return True

    async def _drop(self, load: Document) -> bool:
        await self._released(load)
        await _unless_gone(self.client.delete(WORKLOADS, self.namespace, name_of(load)))
        return True

    async def _say(self, name: str, **conditions: str) -> None:
        """Set conditions: a reason for True, "" for False."""
        load = await self.client.get(WORKLOADS, self.namespace, name)
        before = {c["type"]: c for c in (load.get("status") or {}).get("conditions") or ()}
        for type_, reason in conditions.items():
            status = "True" if reason else "False"
            before[type_] = {"type": type_, "status": status, "reason": reason or "Pending"}
        change = {"status": {"conditions": list(before.values())}}
        await self.client.patch(WORKLOADS, self.namespace, name, change, subresource="status")

    async def _patch(self, pod: Document, change: Document, subresource: str = "") -> None:
        change = {**change, "metadata": {**change.get("metadata", {}), "uid": uid_of(pod)}}
        await _unless_gone(
            self.client.patch(PODS, self.namespace, name_of(pod), change, subresource=subresource)
        )

    async def _delete(self, pod: Document) -> None:
        deleted = self.client.delete(PODS, self.namespace, name_of(pod), uid=uid_of(pod))
        await _unless_gone(deleted)


def sorted_out(
    load: Document, pods: list[Document]
) -> tuple[list[Document], list[Document], list[Document], bool]:
    """(kept, replaced, excess, whether the Workload fits them): FindMatchingWorkloads."""
    kept: list[Document] = []
    replaced: list[Document] = []
    excess: list[Document] = []
    known = {one["name"]: one["count"] for one in load["spec"]["podSets"]}
    for role, count in known.items():
        ours = [p for p in pods if annotation(p, ROLE) == role]
        active = newest_first([p for p in ours if is_runnable(p)])
        idle = newest_first([p for p in ours if not is_runnable(p)])
        excess += active[: max(len(active) - count, 0)]
        kept += active[max(len(active) - count, 0) :]
        done = max(min(len(idle), len(idle) + len(active) - count), 0)
        replaced += idle[len(idle) - done :]
        kept += idle[: len(idle) - done]
    strange = [p for p in pods if annotation(p, ROLE) not in known and is_runnable(p)]
    return kept, replaced, excess, bool(kept) and not strange


def is_finished(pods: Sequence[Document], *, is_group: bool) -> bool:
    """Pod.Finished."""
    over = [p["status"].get("phase") in OVER for p in pods]
    if not is_group:
        return over[0]
    succeeded = sum(p["status"].get("phase") == "Succeeded" for p in pods)
    is_final = any(annotation(p, RETRIABLE) == "false" for p in pods)
    return succeeded == int(annotation(pods[0], COUNT)) or (is_final and all(over))


def is_runnable(pod: Document) -> bool:
    """isPodRunnableOrSucceeded."""
    if is_going(pod) and not pod["spec"].get("nodeName"):
        return False
    return bool(pod["status"].get("phase") != "Failed")


def is_suspended(pod: Document) -> bool:
    """podSuspended."""
    return pod["status"].get("phase") in OVER or has_gate(pod)


def has_gate(pod: Document) -> bool:
    """Kueue's own, not another's."""
    return any(g["name"] == GATE for g in pod["spec"].get("schedulingGates") or ())


def is_going(found: Document) -> bool:
    """It is being deleted."""
    return bool(found["metadata"].get("deletionTimestamp"))


def newest_first(pods: list[Document]) -> list[Document]:
    """By creation, those without the finalizer and those with a gate before all others."""

    def order(pod: Document) -> tuple[bool, bool, str, str]:
        is_held = MANAGED in (pod["metadata"].get("finalizers") or ())
        made_at = str(pod["metadata"]["creationTimestamp"])
        return not is_held, has_gate(pod), made_at, name_of(pod)

    return sorted(pods, key=order, reverse=True)


def says(load: Document, type_: str) -> bool:
    """Whether that condition of a Workload is True."""
    found = (load.get("status") or {}).get("conditions") or ()
    return any(c["type"] == type_ and c["status"] == "True" for c in found)


def size_of(load: Document) -> int:
    """Pods of a Workload."""
    return sum(one["count"] for one in load["spec"]["podSets"])


def workload_of(pod: Document) -> str:
    """The name of a pod's Workload: its group's, or its own."""
    return label(pod, GROUP) or f"pod-{name_of(pod)}-{uid_of(pod)[:8]}"


def label(pod: Document, name: str) -> str:
    """A label's value, "" without it."""
    return str((pod["metadata"].get("labels") or {}).get(name, ""))


def uid_of(found: Document) -> str:
    """metadata.uid."""
    return str(found["metadata"]["uid"])


async def _unless_gone(call: Any) -> None:
    """The call's end; that there is no such object any more is one, too."""
    try:
        await call
    except KubeError as error:
        is_another = any(field == "metadata.uid" for field, _ in error.causes)
        if error.status not in (404, 409) and not is_another:
            raise
