"""The silence of a pod: it has not begun for long, and nothing in it says why. Pure.

| what the pod shows | since | reason | comes by itself |
|---|---|---|---|
| no node, no condition PodScheduled              | it was made     | SchedulerSilent   | no |
| a node, nothing that a kubelet writes           | it was bound    | NodeSilent        | no |
| PodReadyToStartContainers False, or no address  | the same        | NotReadyToStart   | no |
| an init container runs                          | it started      | PodInitializing   | perhaps |
| a container waits to be made                    | it could be     | ContainerCreating | perhaps |
| a container runs, and is not ready              | it is not ready | NotReady          | perhaps |

Its events tell more, and the operator has no right to read those: the sentence says who can. Where
it may come by itself, an edit of the template does not end the pod.

Source: pkg/kubelet/status/generate.go of Kubernetes 1.34 (PodReadyToStartContainers, since 1.29).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from paddock.kube.objects import seconds
from paddock.operator.outcome import first_container

if TYPE_CHECKING:
    from collections.abc import Iterator

    from paddock.kube.objects import ContainerStatus, KubeCondition, Pod

NODE_SECONDS = 10.0  # a kubelet takes a pod of its node well within that
SILENT_SECONDS = 30.0  # longer than most pods take, image apart
CREATING = ("ContainerCreating", "PodInitializing")


@dataclass(frozen=True, slots=True)
class Silence:
    """Told from then on. clause: its reason and a clause for people. at: seconds since 1970.

    is_stuck: it will not come by itself.
    """

    at: float
    clause: str
    is_stuck: bool = True


def silence_of(pod: Pod) -> Silence | None:
    """Read a pod that has not begun, or is not ready, and does not say why."""
    if pod.status.phase == "Running":
        return min(_unready(pod), key=lambda silence: silence.at, default=None)
    scheduled = _condition(pod, "PodScheduled")
    made_at = seconds(pod.metadata.creationTimestamp)
    if not pod.spec.nodeName:
        if scheduled is not None:
            return None
        who = pod.spec.schedulerName or "default-scheduler"
        text = f"no scheduler has looked at it for {SILENT_SECONDS:g} s; does one called {who} run?"
        return Silence(made_at + SILENT_SECONDS, f"SchedulerSilent: {text} (schedulerName)")
    bound_at = _changed_at(scheduled) or made_at
    if not _is_taken(pod):
        ask = "is there such a node?" if scheduled is None else "does it answer?"
        text = f"no kubelet has taken it for {NODE_SECONDS:g} s; {ask}"
        node = f"(kubectl get node {pod.spec.nodeName})"
        return Silence(bound_at + NODE_SECONDS, f"NodeSilent: {text} {node}")
    prepared = _condition(pod, "PodReadyToStartContainers")
    prepared_at = _changed_at(prepared) or bound_at
    is_prepared = prepared.status == "True" if prepared is not None else pod.status.podIP
    if not is_prepared:
        text = (
            f"a volume or its network is not ready after {SILENT_SECONDS:g} s; is every Secret,"
            f" ConfigMap, claim and path there that it mounts? {_look(pod)}"
        )
        return Silence(prepared_at + SILENT_SECONDS, f"NotReadyToStart: {text}")
    return _creating(pod, prepared_at)


def _creating(pod: Pod, prepared_at: float) -> Silence | None:
    """The container that the others wait for."""
    since = prepared_at
    sidecars = {c.name for c in pod.spec.initContainers or () if c.restartPolicy == "Always"}
    for container in pod.status.initContainerStatuses or ():
        state = container.state
        if state.running is not None:
            if container.name in sidecars and container.started is not False:
                continue  # the next one begins beside it
            at = seconds(state.running.startedAt) + SILENT_SECONDS
            what = "the others wait for it"
            if container.name in sidecars:
                what = f"its startup probe has not passed {_look(pod)}"
            text = f"container {container.name} has run for {SILENT_SECONDS:g} s, and {what}"
            return Silence(at, f"PodInitializing: {text}", is_stuck=False)
        if state.terminated is None:
            return _pulled(pod, container, since)
        since = max(since, seconds(state.terminated.finishedAt))
    waiting = (c for c in pod.status.containerStatuses or () if c.state.waiting is not None)
    slow = next((c for c in waiting if _reason(c) in CREATING), None)
    return _pulled(pod, slow, since) if slow is not None else None


def _pulled(pod: Pod, container: ContainerStatus, since: float) -> Silence:
    text = (
        f"container {container.name} is not made after {SILENT_SECONDS:g} s; its image may still"
        f" be pulled {_look(pod)}"
    )
    return Silence(since + SILENT_SECONDS, f"ContainerCreating: {text}", is_stuck=False)


def _unready(pod: Pod) -> Iterator[Silence]:
    """Each container that runs and is not ready."""
    ready = _condition(pod, "ContainersReady") or _condition(pod, "Ready")
    unready_at = _changed_at(ready) if ready is not None and ready.status == "False" else 0.0
    first = first_container(pod)
    for container in pod.status.containerStatuses or ():
        running = container.state.running
        if running is None or container.ready:
            continue
        name = "its first container" if container is first else f"container {container.name}"
        probe = "startup" if container.started is False else "readiness"
        text = (
            f"{name} runs, and is not ready for {SILENT_SECONDS:g} s; its {probe} probe has not"
            f" passed {_look(pod)}"
        )
        at = max(seconds(running.startedAt), unready_at) + SILENT_SECONDS
        yield Silence(at, f"NotReady: {text}", is_stuck=False)


def _is_taken(pod: Pod) -> bool:
    """True when its kubelet has written something; of conditions the scheduler writes one."""
    status = pod.status
    others = (c for c in status.conditions or () if c.type != "PodScheduled")
    return bool(status.hostIP or status.containerStatuses) or any(others)


def _condition(pod: Pod, name: str) -> KubeCondition | None:
    return next((c for c in pod.status.conditions or () if c.type == name), None)


def _changed_at(condition: KubeCondition | None) -> float:
    return seconds(condition.lastTransitionTime) if condition is not None else 0.0


def _reason(container: ContainerStatus) -> str:
    waiting = container.state.waiting
    return (waiting.reason or "") if waiting is not None else ""


def _look(pod: Pod) -> str:
    return f"(kubectl describe pod {pod.metadata.name})"
