"""PaddleJobs of a cluster that others have made, as runs: `paddock web` shows them."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from paddock.backends.kubernetes import api
from paddock.backends.kubernetes.forms import ORDER, PADDLE, file_pod_names
from paddock.backends.kubernetes.parse import ObservedJob, status_of
from paddock.backends.registry import RegisteredJob
from paddock.backends.types import Handle, JobStatus
from paddock.kube.client import KubeError, Query
from paddock.kube.http_client import HttpClient
from paddock.kube.objects import Pod, seconds


class WatchedJob(RegisteredJob):
    """A job without an entry in the registry: details are kept in memory only."""

    def keep(self, **details: object) -> None:
        """Add details."""
        self.details.update(details)


def paddle_jobs(
    kubeconfig: str, context: str, folder: Path
) -> list[tuple[RegisteredJob, JobStatus]]:
    """Return the PaddleJobs of all namespaces that may be read, the latest first.

    Somebody who may not list all namespaces gets those of the context's. folder: has copies of
    histories. Raises PaddockError.
    """
    namespace = api.namespace_of(kubeconfig, context)

    async def look(client: HttpClient) -> tuple[tuple[dict[str, Any], ...], tuple[Pod, ...]]:
        for place in ("", namespace):
            try:
                jobs = (await client.page(PADDLE, Query(place))).items
                return jobs, await api.pods_of_others(client, place)
            except KubeError as error:
                if error.status != 403 or place:
                    raise
        raise AssertionError("unreachable")

    try:
        jobs, pods = api.ask(kubeconfig, context, look)
    except KubeError as error:
        raise api.explained(error, "list PaddleJobs", namespace) from error
    of: dict[str, list[Pod]] = {}
    for pod in pods:
        of.setdefault(pod.metadata.controller_uid, []).append(pod)
    found = []
    for job in jobs:
        meta = job["metadata"]
        details = {"form": "paddlejob", "uid": meta["uid"], "is_of_others": True, "roles": {},
                   "names": file_pod_names(job, meta["name"]), "kubeconfig": kubeconfig,
                   "context": context}  # fmt: skip
        id_ = f"{meta['namespace']}.{meta['name']}"
        run = WatchedJob(
            folder / id_, id_, meta["name"], Handle("kubernetes", meta["namespace"], meta["name"]),
            _in_words(job), len(details["names"]), seconds(meta.get("creationTimestamp")), details,
        )  # fmt: skip
        seen = ObservedJob("paddlejob", job, of.get(meta["uid"], ()), details["names"], {},
                           time.time())  # fmt: skip
        found.append((run, status_of(seen)))
    return sorted(found, key=lambda pair: -pair[0].created_at)


def _in_words(job: Mapping[str, Any]) -> str:
    """Say the phase of a job, and how many replicas of each role run.

    >>> _in_words({"spec": {"worker": {"replicas": 2}},
    ...            "status": {"phase": "Running", "worker": {"running": 1}}})
    'PaddleJob · Running · worker 1/2'
    """
    spec, status = job.get("spec") or {}, job.get("status") or {}
    roles = [
        f"{role} {(status.get(role) or {}).get('running', 0)}/{spec[role].get('replicas', 1)}"
        for role in ORDER
        if spec.get(role)
    ]
    return " · ".join(["PaddleJob", status.get("phase") or "Pending", *roles])
