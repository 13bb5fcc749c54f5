"""Types of the fields that are checked: what the real server cannot even decode is 400. Pure.

The server's own kinds are Go structs; a number where text belongs is refused before anything else
is looked at. Custom kinds have a schema instead; of theirs only the metadata is typed here.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from kube_memory.refusals import bad_request

if TYPE_CHECKING:
    from kube_memory.selectors import Document
    from paddock.kube.client import Resource

Texts = dict[str, str] | None
# metav1.MicroTime: six digits, or it is no time.
MicroTime = Annotated[
    str, msgspec.Meta(pattern=r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}(Z|[+-]\d\d:\d\d)$")
]
Quantity = (
    Annotated[str, msgspec.Meta(pattern=r"^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$")]
    | int
    | float
)
Whole = Annotated[int, msgspec.Meta(ge=-(2**31), lt=2**31)]


class Owner(msgspec.Struct):
    """One of metadata.ownerReferences."""

    apiVersion: str | None = None
    kind: str | None = None
    name: str | None = None
    uid: str | None = None
    controller: bool | None = None
    blockOwnerDeletion: bool | None = None


class Metadata(msgspec.Struct):
    """metadata, as clients send it."""

    name: str | None = None
    generateName: str | None = None
    namespace: str | None = None
    uid: str | None = None
    resourceVersion: str | None = None
    labels: Texts = None
    annotations: Texts = None
    finalizers: list[str] | None = None
    ownerReferences: list[Owner] | None = None


class Variable(msgspec.Struct):
    """One of env."""

    name: str | None = None
    value: str | None = None
    valueFrom: dict[str, Any] | None = None


class Port(msgspec.Struct):
    """One of a container's, or of a Service's, ports."""

    name: str | None = None
    protocol: str | None = None
    containerPort: Whole | None = None
    hostPort: Whole | None = None
    port: Whole | None = None
    targetPort: int | str | None = None


class Mount(msgspec.Struct):
    """One of volumeMounts."""

    name: str | None = None
    mountPath: str | None = None
    subPath: str | None = None
    readOnly: bool | None = None


class Resources(msgspec.Struct):
    """What a container asks for."""

    limits: dict[str, Quantity] | None = None
    requests: dict[str, Quantity] | None = None


class Container(msgspec.Struct):
    """A container of a pod."""

    name: str | None = None
    image: str | None = None
    command: list[str] | None = None
    args: list[str] | None = None
    workingDir: str | None = None
    imagePullPolicy: str | None = None
    env: list[Variable] | None = None
    envFrom: list[dict[str, Any]] | None = None
    ports: list[Port] | None = None
    volumeMounts: list[Mount] | None = None
    resources: Resources | None = None
    securityContext: dict[str, Any] | None = None
    livenessProbe: dict[str, Any] | None = None
    readinessProbe: dict[str, Any] | None = None
    lifecycle: dict[str, Any] | None = None


class Volume(msgspec.Struct):
    """One of a pod's volumes."""

    name: str | None = None


class Named(msgspec.Struct):
    """Something of which only the name is looked at."""

    name: str | None = None


class PodSpec(msgspec.Struct):
    """spec of a pod."""

    containers: list[Container] | None = None
    initContainers: list[Container] | None = None
    volumes: list[Volume] | None = None
    schedulingGates: list[Named] | None = None
    nodeSelector: Texts = None
    tolerations: list[dict[str, Any]] | None = None
    affinity: dict[str, Any] | None = None
    securityContext: dict[str, Any] | None = None
    imagePullSecrets: list[Named] | None = None
    restartPolicy: str | None = None
    hostname: str | None = None
    subdomain: str | None = None
    nodeName: str | None = None
    schedulerName: str | None = None
    serviceAccountName: str | None = None
    priorityClassName: str | None = None
    dnsPolicy: str | None = None
    hostNetwork: bool | None = None
    terminationGracePeriodSeconds: int | None = None
    activeDeadlineSeconds: int | None = None


class ServiceSpec(msgspec.Struct):
    """spec of a Service."""

    clusterIP: str | None = None
    type: str | None = None
    selector: Texts = None
    ports: list[Port] | None = None
    publishNotReadyAddresses: bool | None = None


class LeaseSpec(msgspec.Struct):
    """spec of a Lease."""

    holderIdentity: str | None = None
    leaseDurationSeconds: Whole | None = None
    leaseTransitions: Whole | None = None
    acquireTime: MicroTime | None = None
    renewTime: MicroTime | None = None


class Series(msgspec.Struct):
    """series of an event."""

    count: Whole | None = None
    lastObservedTime: MicroTime | None = None


class Typed(msgspec.Struct):
    """An object of a custom kind."""

    metadata: Metadata


class Pod(Typed):
    """A pod."""

    spec: PodSpec | None = None


class Service(Typed):
    """A Service."""

    spec: ServiceSpec | None = None


class ConfigMap(Typed):
    """A ConfigMap."""

    data: Texts = None
    binaryData: Texts = None
    immutable: bool | None = None


class Lease(Typed):
    """A Lease."""

    spec: LeaseSpec | None = None


class Event(Typed):
    """An event of events.k8s.io/v1."""

    eventTime: MicroTime | None = None
    series: Series | None = None
    regarding: dict[str, Any] | None = None
    reportingController: str | None = None
    reportingInstance: str | None = None
    action: str | None = None
    reason: str | None = None
    type: str | None = None
    note: str | None = None


SHAPES: dict[str, type[Typed]] = {
    "pods": Pod,
    "services": Service,
    "configmaps": ConfigMap,
    "leases.coordination.k8s.io": Lease,
    "events.events.k8s.io": Event,
}
# What else they have, beside the fields above that are checked. Source: core/v1, Kubernetes 1.34.
POD_SPEC_MORE = """automountServiceAccountToken dnsConfig enableServiceLinks ephemeralContainers
    hostAliases hostIPC hostPID hostUsers hostnameOverride os overhead preemptionPolicy priority
    readinessGates resourceClaims resources runtimeClassName serviceAccount setHostnameAsFQDN
    shareProcessNamespace topologySpreadConstraints"""
CONTAINER_MORE = """resizePolicy restartPolicy restartPolicyRules startupProbe stdin stdinOnce
    terminationMessagePath terminationMessagePolicy tty volumeDevices"""
POD_SPEC = frozenset((*PodSpec.__struct_fields__, *POD_SPEC_MORE.split()))
CONTAINER = frozenset((*Container.__struct_fields__, *CONTAINER_MORE.split()))
PATH = re.compile(r" - at `\$?\.?(.*)`$")


def refuse_wrong_types(resource: Resource[Any], kind: str, document: Document) -> None:
    """Raises KubeError 400 for what cannot be decoded. kind: as refusals.qualified says it."""
    try:
        msgspec.convert(document, SHAPES.get(kind, Typed))
    except msgspec.ValidationError as error:
        raise bad_request(
            f'{resource.kind} in version "{resource.version}" cannot be handled as a'
            f" {resource.kind}: json: {_said(error)}"
        ) from error


def leave_out(kind: str, document: Document) -> list[str]:
    """Take out of a pod what its kind does not have, and is no mistake; where each was."""
    spec = document.get("spec") or {} if kind == "pods" else {}
    parts = [("spec", spec, POD_SPEC)]
    for name in ("containers", "initContainers"):
        listed = enumerate(spec.get(name) or ())
        parts += [(f"spec.{name}[{at}]", one, CONTAINER) for at, one in listed]
    found = [(where, part, name) for where, part, has in parts for name in part if name not in has]
    for _, part, name in found:
        del part[name]
    return [f"{where}.{name}" for where, _, name in found]


def _said(error: msgspec.ValidationError) -> str:
    text = str(error)
    found = PATH.search(text)
    return f"{text[: found.start()]} in field {found[1]}" if found else text
