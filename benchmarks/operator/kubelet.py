"""A fake kubelet: gives pods a node and an IP, and lets them run and succeed. Counts what it did.

It patches pods/status as a kubelet does; the scheduler's part is the binding.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from paddock.kube.client import PODS, KubeError, Query
from paddock.operator.names import LABEL_JOB

if TYPE_CHECKING:
    from paddock.kube.client import KubeClient
    from paddock.kube.objects import Pod

IN_FLIGHT = 32


class Kubelet:
    """Plays every pod that has our label. changes: status changes it made."""

    def __init__(self, client: KubeClient, *, finishes: bool) -> None:
        self._client = client
        self._finishes = finishes
        self._slots = asyncio.Semaphore(IN_FLIGHT)
        self._tasks: set[asyncio.Task[None]] = set()
        self._seen: set[str] = set()
        self.changes = 0

    async def run(self) -> None:
        """Play until cancelled."""
        query = Query(labels=LABEL_JOB)
        page = await self._client.page(PODS, query)
        for pod in page.items:
            self._take(pod)
        version = page.resource_version
        while True:
            try:
                async for change in self._client.watch(
                    PODS, query, resource_version=version, timeout_seconds=300
                ):
                    version = change.object.metadata.resourceVersion
                    if change.kind in ("added", "modified"):
                        self._take(change.object)
            except KubeError:
                page = await self._client.page(PODS, query)
                version = page.resource_version

    def _take(self, pod: Pod) -> None:
        uid = pod.metadata.uid
        if pod.metadata.deletionTimestamp is not None:
            uid += "-gone"
        if uid in self._seen:
            return
        self._seen.add(uid)
        task = asyncio.create_task(self._play(pod))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _play(self, pod: Pod) -> None:
        meta = pod.metadata
        async with self._slots:
            try:
                if meta.deletionTimestamp is not None:
                    await self._client.delete(
                        PODS, meta.namespace, meta.name, uid=meta.uid, grace_seconds=0
                    )
                    return
                number = len(self._seen)
                ip = f"10.{64 + (number >> 16)}.{(number >> 8) & 255}.{number & 255}"
                await self._say(pod, "Running", ip)
                if self._finishes:
                    await self._say(pod, "Succeeded", ip)
            except KubeError as error:
                if error.status not in (404, 409):
                    raise

    async def _say(self, pod: Pod, phase: str, ip: str) -> None:
        is_running = phase == "Running"
        ended = {"terminated": {"exitCode": 0, "reason": "Completed"}}
        state = {"running": {}} if is_running else ended
        status = {
            "phase": phase,
            "podIP": ip,
            "hostIP": "192.0.2.1",
            "conditions": [{"type": "Ready", "status": "True" if is_running else "False"}],
            "containerStatuses": [
                {
                    "name": "paddle", "ready": is_running, "started": is_running,
                    "restartCount": 0, "image": "x", "imageID": "", "state": state,
                }
            ],
        }  # fmt: skip
        meta = pod.metadata
        change = {"metadata": {"uid": meta.uid}, "status": status}
        await self._client.patch(PODS, meta.namespace, meta.name, change, subresource="status")
        self.changes += 1
