"""A reconcile as simple as can be, which still has every kind of write: for tests of the runtime.

spec: {"worker": {"replicas": n}}. One Service and n pods; a failed pod begins the next attempt, in
which all pods are made again; the job is Completed when all pods of an attempt have succeeded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from paddock.operator.decision import Create, Decision, Delete, EventNote
from paddock.operator.names import LABEL_ATTEMPT, LABEL_JOB, LABEL_POD

if TYPE_CHECKING:
    from paddock.kube.client import Manifest
    from paddock.kube.objects import PaddleJob
    from paddock.operator.decision import Action, Kind, ObservedState, OperatorSettings


def job_manifest(name: str, replicas: int, **spec: object) -> Manifest:
    """A PaddleJob."""
    return {
        "apiVersion": "batch.paddlepaddle.org/v1",
        "kind": "PaddleJob",
        "metadata": {"name": name, "namespace": "ml"},
        "spec": {"worker": {"replicas": replicas}, **spec},
    }


def child(job: PaddleJob, kind: Kind, name: str, attempt: int) -> Create:
    """The order to make one object of the job."""
    labels = {LABEL_JOB: job.metadata.name, LABEL_ATTEMPT: str(attempt), LABEL_POD: name}
    owner = {
        "apiVersion": "batch.paddlepaddle.org/v1", "kind": "PaddleJob",
        "name": job.metadata.name, "uid": job.metadata.uid, "controller": True,
    }  # fmt: skip
    specs: dict[Kind, dict[str, object]] = {
        "Pod": {
            "restartPolicy": "Never",
            "containers": [{"name": "main", "image": "train"}],
        },
        "Service": {"clusterIP": "None", "selector": {LABEL_JOB: job.metadata.name}},
    }
    return Create(
        kind,
        name,
        {
            "apiVersion": "v1",
            "kind": kind,
            "metadata": {"name": name, "labels": labels, "ownerReferences": [owner]},
            "spec": specs[kind],
        },
    )


def reconcile(observed: ObservedState, now: float, settings: OperatorSettings) -> Decision:
    """The whole decision."""
    job = observed.job
    spec: Any = job.spec
    status: Any = job.status or {}
    attempt = status.get("attempt", 0)
    replicas = spec["worker"]["replicas"]
    if job.metadata.deletionTimestamp:
        return Decision({**status, "phase": "Terminating"})
    if status.get("phase") in ("Completed", "Failed"):
        return Decision()
    pods = {pod.metadata.name: pod for pod in observed.pods}
    notes: list[EventNote] = []
    if any(p.status.phase == "Failed" for p in pods.values() if _attempt(p) == attempt):
        attempt += 1
        notes.append(EventNote("Warning", "Restarting", f"attempt {attempt}"))
    wanted = [f"{job.metadata.name}-worker-{i}" for i in range(replicas)]
    present = [p for p in pods.values() if _attempt(p) == attempt]
    phases = [p.status.phase for p in present]
    phase = "Pending"
    if phases.count("Succeeded") == replicas:
        phase = "Completed"
        notes.append(EventNote("Normal", "Completed", "all pods have succeeded"))
    elif phases.count("Running") + phases.count("Succeeded") == replicas:
        phase = "Running"
    message = (
        observed.failed_calls[0].message
        if observed.failed_calls
        else f"{len(present)}/{replicas} pods"
    )
    actions: list[Action] = []
    if not any(s.metadata.name == job.metadata.name for s in observed.services):
        actions.append(child(job, "Service", job.metadata.name, attempt))
    actions += [
        Delete("Pod", name, pod.metadata.uid, why="old attempt")
        for name, pod in pods.items()
        if _attempt(pod) != attempt and not pod.metadata.deletionTimestamp
    ]
    actions += [child(job, "Pod", name, attempt) for name in wanted if name not in pods]
    return Decision(
        {
            "phase": phase,
            "attempt": attempt,
            "message": message,
            "worker": {"running": phases.count("Running")},
        },
        tuple(actions) if phase != "Completed" else (),
        tuple(notes),
    )


def _attempt(pod: Any) -> int:
    return int(pod.metadata.label(LABEL_ATTEMPT) or -1)
