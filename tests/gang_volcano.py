"""Volcano's part in a gang, played after its sources: the phases of a PodGroup, and who is bound.

Volcano itself cannot be had as a Go module. What is here is one session of its scheduler (`step`),
for stories in memory. A place holds one pod, whatever it asks. On a real API server
tests/cluster/control/volcano.go.txt plays it, with quantities, queues and conditions.

Source (volcano-sh/volcano, branch master after v1.12): pkg/scheduler/framework/session.go
(jobStatus), pkg/scheduler/plugins/gang/gang.go, pkg/scheduler/actions/enqueue/enqueue.go and
allocate/allocate.go, pkg/scheduler/api/helpers.go (getTaskStatus, AllocatedStatus),
pkg/webhooks/admission/pods/validate/admit_pod.go.

| phase | when, at the end of a session |
|---|---|
| Unknown   | pods run, and fewer than minMember are placed or have succeeded |
| Completed | enough are placed or over, and all of them are over |
| Running   | enough are placed or over |
| Inqueue   | enqueued from Pending, where the places allow; kept until it is Running |
| Pending   | otherwise |
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from paddock.kube.client import KubeError, Query, Resource

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from paddock.kube.client import KubeClient

Document = dict[str, Any]
PODS = Resource("", "v1", "pods", "Pod", dict[str, Any])
GROUPS = Resource("scheduling.volcano.sh", "v1beta1", "podgroups", "PodGroup", dict[str, Any])
GROUP_NAME = "scheduling.k8s.io/group-name"
PLACED = ("Bound", "Running")  # AllocatedStatus
OVER = ("Succeeded", "Failed")  # CompletedStatus


@dataclass
class Volcano:
    """The scheduler, in one namespace. places: pods that the nodes can hold.

    bind: how a pod gets its node; the name of the pod, and the number of its place.
    """

    client: KubeClient
    namespace: str
    bind: Callable[[str, int], Awaitable[None]]
    places: int = 100

    async def step(self) -> bool:
        """One session; whether anything was written."""
        query = Query(self.namespace)
        try:
            groups = (await self.client.page(GROUPS, query)).items
        except KubeError as error:
            if error.status == 404:  # not installed
                return False
            raise
        pods = [p for p in (await self.client.page(PODS, query)).items if is_ours(p)]
        taken = sum(task_of(p) in (*PLACED, "Releasing") for p in pods)
        wrote = False
        for group in sorted(groups, key=lambda g: (g["metadata"]["creationTimestamp"], name_of(g))):
            mine = [p for p in pods if annotation(p, GROUP_NAME) == name_of(group)]
            tasks = Counter(map(task_of, mine))
            least = group.get("spec", {}).get("minMember", 1)
            phase = group.get("status", {}).get("phase") or "Pending"
            if phase == "Pending" and self.places - taken >= least:
                phase = "Inqueue"
            if phase != "Pending" and self._may_be_placed(tasks, least, self.places - taken):
                waiting = sorted(name_of(p) for p in mine if task_of(p) == "Pending")
                for name in waiting[: self.places - taken]:
                    await self.bind(name, taken)
                    taken += 1
                    tasks["Bound"] += 1
                    tasks["Pending"] -= 1
                    wrote = True
            status = status_after(phase, tasks, least)
            if status != group.get("status"):
                await self._write(group, status)
                wrote = True
        return wrote

    async def _write(self, group: Document, status: Document) -> None:
        change = {"status": {**dict.fromkeys(group.get("status") or {}), **status}}
        try:
            await self.client.patch(
                GROUPS, self.namespace, name_of(group), change, subresource="status"
            )
        except KubeError as error:
            if error.status != 404:  # deleted meanwhile
                raise

    @staticmethod
    def _may_be_placed(tasks: Counter[str], least: int, free: int) -> bool:
        """allocate: the group is valid, and would be ready with what is placed now (Statement)."""
        ready = sum(tasks[t] for t in (*PLACED, "Succeeded"))
        is_valid = ready + tasks["Pending"] >= least  # ValidTaskNum
        return is_valid and ready + min(tasks["Pending"], free) >= least


def status_after(phase: str, tasks: Counter[str], least: int) -> Document:
    """jobStatus, after the gang plugin has said whether the group is unschedulable."""
    ready = sum(tasks[t] for t in (*PLACED, "Succeeded"))
    allocated = sum(tasks[t] for t in (*PLACED, *OVER))
    if tasks["Running"] and ready < least:
        phase = "Unknown"
    elif allocated >= least:
        is_over = allocated == sum(tasks[t] for t in OVER)
        phase = "Completed" if is_over else "Running"
    elif phase != "Inqueue":
        phase = "Pending"
    counts = {t.lower(): tasks[t] for t in ("Running", *OVER) if tasks[t]}
    return {"phase": phase, **counts}


def task_of(pod: Document) -> str:
    """getTaskStatus: how the scheduler sees a pod."""
    phase, is_going = pod["status"].get("phase"), pod["metadata"].get("deletionTimestamp")
    if phase in OVER:
        return str(phase)
    if is_going:
        return "Releasing"
    if phase == "Running":
        return "Running"
    return "Bound" if pod["spec"].get("nodeName") else "Pending"


def is_ours(pod: Document) -> bool:
    """A pod without a group of its own gets one from Volcano's controller: not played here."""
    return bool(pod["spec"].get("schedulerName") == "volcano" and annotation(pod, GROUP_NAME))


def annotation(pod: Document, name: str) -> str:
    """An annotation's value, "" without it."""
    return str((pod["metadata"].get("annotations") or {}).get(name, ""))


def name_of(found: Document) -> str:
    """metadata.name."""
    return str(found["metadata"]["name"])
