"""Slim shapes of Kubernetes objects, since the operator caches thousands of them.

Everything has a default: the API server leaves out what is empty, and the object of a bookmark
carries a resourceVersion only. Times are RFC 3339 text, as they came; ``seconds`` reads them.

Source: https://kubernetes.io/docs/reference/kubernetes-api/ (core/v1, meta/v1).
"""

from __future__ import annotations

from datetime import datetime, timezone

import msgspec


class OwnerReference(msgspec.Struct, frozen=True, gc=False):
    """An owner of an object; ``controller`` is true for the one that manages it."""

    uid: str = ""
    kind: str = ""
    name: str = ""
    apiVersion: str = ""
    controller: bool | None = None


NOBODY = OwnerReference()


class Meta(msgspec.Struct, frozen=True):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resourceVersion: str = ""
    generation: int = 0
    creationTimestamp: str | None = None
    deletionTimestamp: str | None = None
    deletionGracePeriodSeconds: int | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    ownerReferences: tuple[OwnerReference, ...] | None = None
    finalizers: tuple[str, ...] | None = None

    @property
    def controller(self) -> OwnerReference:
        """The owner that manages it; all empty without one."""
        for owner in self.ownerReferences or ():
            if owner.controller:
                return owner
        return NOBODY

    @property
    def controller_uid(self) -> str:
        """The uid of the controlling owner, "" without one."""
        return self.controller.uid

    def label(self, name: str) -> str:
        """A label's value, "" when it is not set."""
        return (self.labels or {}).get(name, "")

    def annotation(self, name: str) -> str:
        """An annotation's value, "" when it is not set."""
        return (self.annotations or {}).get(name, "")


class KubeCondition(msgspec.Struct, frozen=True, gc=False):
    """A condition of a pod, or of a PodGroup."""

    type: str = ""
    status: str = ""
    reason: str | None = None
    message: str | None = None
    lastTransitionTime: str | None = None


class ContainerStateWaiting(msgspec.Struct, frozen=True, gc=False):
    """Why a container has not started."""

    reason: str | None = None
    message: str | None = None


class ContainerStateRunning(msgspec.Struct, frozen=True, gc=False):
    startedAt: str | None = None


class ContainerStateTerminated(msgspec.Struct, frozen=True, gc=False):
    """How a container ended. message: its termination message, here the end of its log."""

    exitCode: int = 0
    signal: int | None = None
    reason: str | None = None
    message: str | None = None
    finishedAt: str | None = None


class ContainerState(msgspec.Struct, frozen=True, gc=False):
    """Exactly one of the three is set; none means waiting."""

    waiting: ContainerStateWaiting | None = None
    running: ContainerStateRunning | None = None
    terminated: ContainerStateTerminated | None = None


class ContainerStatus(msgspec.Struct, frozen=True, gc=False):
    """A container's state. started: False while its startup probe has not passed."""

    name: str = ""
    ready: bool = False
    started: bool | None = None
    restartCount: int = 0
    state: ContainerState = ContainerState()
    lastState: ContainerState = ContainerState()


class PodContainer(msgspec.Struct, frozen=True, gc=False):
    """A container of a pod's spec. restartPolicy: Always makes an init container a sidecar."""

    name: str = ""
    restartPolicy: str | None = None


class SchedulingGate(msgspec.Struct, frozen=True, gc=False):
    """No scheduler looks at a pod that has any."""

    name: str = ""


class PodSpec(msgspec.Struct, frozen=True, gc=False):
    """The only part of a pod's spec that is read back."""

    nodeName: str | None = None
    schedulerName: str | None = None
    schedulingGates: tuple[SchedulingGate, ...] | None = None
    restartPolicy: str | None = None
    containers: tuple[PodContainer, ...] | None = None
    initContainers: tuple[PodContainer, ...] | None = None


class PodStatus(msgspec.Struct, frozen=True, gc=False):
    phase: str = ""
    reason: str | None = None
    message: str | None = None
    podIP: str | None = None
    hostIP: str | None = None
    conditions: tuple[KubeCondition, ...] | None = None
    initContainerStatuses: tuple[ContainerStatus, ...] | None = None
    containerStatuses: tuple[ContainerStatus, ...] | None = None


class Pod(msgspec.Struct, frozen=True, gc=False):
    """A pod, as much of it as the operator looks at."""

    metadata: Meta = Meta()
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()


class Object(msgspec.Struct, frozen=True, gc=False):
    """Any object of which only the metadata matters (Service, Event)."""

    metadata: Meta = Meta()


class ConfigMap(msgspec.Struct, frozen=True, gc=False):
    metadata: Meta = Meta()
    data: dict[str, str] | None = None


class PodGroupStatus(msgspec.Struct, frozen=True, gc=False):
    """status of a PodGroup. Volcano and scheduler-plugins have the phase, Volcano says why, too."""

    phase: str = ""
    conditions: tuple[KubeCondition, ...] | None = None


class PodGroup(msgspec.Struct, frozen=True, gc=False):
    """A gang, of Volcano or of scheduler-plugins: apiVersion tells."""

    apiVersion: str = ""
    metadata: Meta = Meta()
    spec: dict[str, object] = {}
    status: PodGroupStatus = PodGroupStatus()


class PaddleJob(msgspec.Struct, frozen=True):
    """A PaddleJob. spec and status are as they came: an older schema lets anything through."""

    metadata: Meta = Meta()
    spec: object = None
    status: object = None


class LeaseSpec(msgspec.Struct, frozen=True, gc=False):
    holderIdentity: str | None = None
    leaseDurationSeconds: int | None = None
    acquireTime: str | None = None
    renewTime: str | None = None
    leaseTransitions: int | None = None


class Lease(msgspec.Struct, frozen=True, gc=False):
    """A lock with an owner and an end."""

    metadata: Meta = Meta()
    spec: LeaseSpec = LeaseSpec()


def seconds(text: str | None) -> float:
    """RFC 3339 text as seconds since 1970; 0.0 for nothing.

    >>> seconds("1970-01-01T00:01:00Z"), seconds(None)
    (60.0, 0.0)
    """
    if not text:
        return 0.0
    return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()


def rfc3339(at: float) -> str:
    """Seconds since 1970 as the API server writes a time, without a fraction.

    >>> rfc3339(60.9)
    '1970-01-01T00:01:00Z'
    """
    # Not strftime: its year 1, which is Go's time 0, has one digit.
    return datetime.fromtimestamp(int(at), timezone.utc).replace(tzinfo=None).isoformat() + "Z"


def micro_time(at: float) -> str:
    """The same as a metav1.MicroTime.

    >>> micro_time(60.5)
    '1970-01-01T00:01:00.500000Z'
    """
    return datetime.fromtimestamp(at, timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
