"""What the API server checks and fills in, for the kinds an operator writes. Pure.

Less than the real one checks, never more, and in its words where people read them.
Source: k8s.io/kubernetes/pkg/apis/core/validation/validation.go, Kubernetes 1.34.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from kube_memory.selectors import Document

Cause = tuple[str, str]  # field, message

LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")  # RFC 1123
SERVICE = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")  # RFC 1035
SUBDOMAIN = re.compile(rf"{LABEL.pattern}(\.{LABEL.pattern})*")
KEY_NAME = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")
VALUE = re.compile(r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?")
VARIABLE = re.compile(r"[ -<>-~]+")
DATA_KEY = re.compile(r"[-._a-zA-Z0-9]+")
LABEL_MAX = 63
NAME_MAX = 253
ANNOTATIONS_MAX = 256 * 1024
DATA_MAX = 1024 * 1024
EVENT_FIELD_MAX = 128
NOTE_MAX = 1024

SAYS_PORT = "must be between 1 and 65535, inclusive"
SAYS_VARIABLE = (
    "a valid environment variable name must consist only of printable ASCII characters other than"
    " '='"
)
SAYS_LABEL = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and"
    " must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used"
    " for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)
SAYS_SUBDOMAIN = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or"
    " '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used"
    " for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
SAYS_SERVICE = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an"
    " alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or"
    " 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')"
)
SAYS_VALUE = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or"
    " '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value', "
    " or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)


POD_DEFAULTS: dict[str, str | int] = {
    "restartPolicy": "Always",
    "terminationGracePeriodSeconds": 30,
    "dnsPolicy": "ClusterFirst",
    "schedulerName": "default-scheduler",
}


def filled_in(kind: str, document: Document) -> None:
    """Set, in place, the defaults that are read back. kind: as refusals.qualified says it."""
    if kind == "pods":
        spec = document["spec"] = document.get("spec") or {}
        for name, value in POD_DEFAULTS.items():
            if spec.get(name) is None:
                spec[name] = value
        # What is negative means 1 (SetDefaults_PodSpec).
        if spec["terminationGracePeriodSeconds"] < 0:
            spec["terminationGracePeriodSeconds"] = 1
        document["status"] = {"phase": "Pending", "qosClass": "BestEffort"}
        if spec.get("schedulingGates"):  # applySchedulingGatedCondition
            gated = {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}
            document["status"]["conditions"] = [gated]


def causes(kind: str, document: Document) -> list[Cause]:
    """Everything that is wrong with an object, as (field, message)."""
    found = list(_metadata(kind, document["metadata"]))
    check = CHECKS.get(kind)
    if check is not None:
        found += check(document)
    return found


def _metadata(kind: str, metadata: Document) -> Iterator[Cause]:
    name = metadata.get("name", "")
    pattern, longest, says = (
        (SERVICE, LABEL_MAX, SAYS_SERVICE) if kind == "services"
        else (SUBDOMAIN, NAME_MAX, SAYS_SUBDOMAIN)
    )  # fmt: skip
    prefix = metadata.get("generateName") or ""
    if prefix:
        # A dash at its end is fine, since more comes after it; a dot is not.
        yield from _worded("metadata.generateName", _undashed(prefix), pattern, 10**6, says)
    yield from _worded("metadata.name", name, pattern, longest, says)
    labels = metadata.get("labels") or {}
    yield from _labels("metadata.labels", labels)
    notes = metadata.get("annotations") or {}
    if sum(len(key.encode()) + len(str(text).encode()) for key, text in notes.items()) > (
        ANNOTATIONS_MAX
    ):
        yield "metadata.annotations", f"Too long: may not be more than {ANNOTATIONS_MAX} bytes"
    for key in notes:
        yield from _key("metadata.annotations", key)
    owners = metadata.get("ownerReferences") or ()
    for owner in owners:
        for part in ("apiVersion", "kind", "name", "uid"):
            if not owner.get(part):
                yield f"metadata.ownerReferences.{part}", 'Invalid value: "": must not be empty'
    if sum(bool(one.get("controller")) for one in owners) > 1:
        yield (
            "metadata.ownerReferences",
            "Invalid value: Only one reference can have Controller set to true",
        )


def _undashed(prefix: str) -> str:
    return f"{prefix[:-1]}a" if prefix.endswith("-") else prefix


def _worded(
    field: str, text: str, pattern: re.Pattern[str], longest: int, says: str
) -> Iterator[Cause]:
    """A name of that pattern, not longer than that."""
    if len(text) > longest:
        yield field, f'Invalid value: "{text}": must be no more than {longest} characters'
    if not pattern.fullmatch(text):
        yield field, f'Invalid value: "{text}": {says}'


def _labels(field: str, labels: Document) -> Iterator[Cause]:
    for key, value in labels.items():
        yield from _key(field, key)
        if len(value) > LABEL_MAX:
            yield field, f'Invalid value: "{value}": must be no more than {LABEL_MAX} bytes'
        if not VALUE.fullmatch(value):
            yield field, f'Invalid value: "{value}": {SAYS_VALUE}'


def _key(field: str, key: str) -> Iterator[Cause]:
    prefix, slash, name = key.rpartition("/")
    if slash and not SUBDOMAIN.fullmatch(prefix):
        yield field, f'Invalid value: "{key}": prefix part {SAYS_SUBDOMAIN}'
    if len(name) > LABEL_MAX:
        yield (
            field,
            f'Invalid value: "{key}": name part must be no more than {LABEL_MAX} bytes',
        )
    if not KEY_NAME.fullmatch(name):
        yield field, f'Invalid value: "{key}": name part must consist of alphanumeric characters'


def pod_causes(document: Document) -> Iterator[Cause]:
    """What is wrong with a pod's spec."""
    spec = document.get("spec") or {}
    for field in ("hostname", "subdomain"):
        if spec.get(field):
            yield from _worded(f"spec.{field}", spec[field], LABEL, LABEL_MAX, SAYS_LABEL)
    if spec["restartPolicy"] not in ("Always", "OnFailure", "Never"):
        yield (
            "spec.restartPolicy",
            f'Unsupported value: "{spec["restartPolicy"]}": supported values: "Always",'
            ' "OnFailure", "Never"',
        )
    volumes: set[str] = set()
    for i, volume in enumerate(spec.get("volumes") or ()):
        name = volume.get("name") or ""
        if not name:
            yield f"spec.volumes[{i}].name", "Required value"
        if name in volumes:
            yield f"spec.volumes[{i}].name", f'Duplicate value: "{name}"'
        volumes.add(name)
    if not spec.get("containers"):
        yield "spec.containers", "Required value"
    names: set[str] = set()
    for group in ("containers", "initContainers"):
        for i, container in enumerate(spec.get(group) or ()):
            yield from _container(f"spec.{group}[{i}]", container, names, volumes)


def _container(
    field: str, container: Document, names: set[str], volumes: set[str]
) -> Iterator[Cause]:
    name = container.get("name") or ""
    if not name:
        yield f"{field}.name", "Required value"
    else:
        yield from _worded(f"{field}.name", name, LABEL, LABEL_MAX, SAYS_LABEL)
    if name in names:
        yield f"{field}.name", f'Duplicate value: "{name}"'
    names.add(name)
    if not container.get("image"):
        yield f"{field}.image", "Required value"
    for i, variable in enumerate(container.get("env") or ()):
        name = variable.get("name") or ""
        if not name:
            yield f"{field}.env[{i}].name", "Required value"
        elif not VARIABLE.fullmatch(name):
            yield f"{field}.env[{i}].name", f'Invalid value: "{name}": {SAYS_VARIABLE}'
        if variable.get("value") and variable.get("valueFrom"):
            yield (
                f"{field}.env[{i}].valueFrom",
                'Invalid value: "": may not be specified when `value` is not empty',
            )
    yield from _ports(field, container.get("ports") or ())
    for i, mount in enumerate(container.get("volumeMounts") or ()):
        if mount.get("name") not in volumes:
            yield f"{field}.volumeMounts[{i}].name", f'Not found: "{mount.get("name")}"'
        if not mount.get("mountPath"):
            yield f"{field}.volumeMounts[{i}].mountPath", "Required value"
    resources = container.get("resources") or {}
    for part in ("limits", "requests"):
        for resource, quantity in (resources.get(part) or {}).items():
            if str(quantity).startswith("-"):
                yield (
                    f"{field}.resources.{part}[{resource}]",
                    f'Invalid value: "{quantity}": must be greater than or equal to 0',
                )


def _ports(field: str, ports: Sequence[Document]) -> Iterator[Cause]:
    names: set[str] = set()
    for i, port in enumerate(ports):
        number, name = port.get("containerPort") or 0, port.get("name") or ""
        if len(name) > 15:
            yield (
                f"{field}.ports[{i}].name",
                f'Invalid value: "{name}": must be no more than 15 characters',
            )
        if name and name in names:
            yield f"{field}.ports[{i}].name", f'Duplicate value: "{name}"'
        names.add(name)
        if not number:
            yield f"{field}.ports[{i}].containerPort", "Required value"
        elif not 1 <= number <= 65535:
            yield f"{field}.ports[{i}].containerPort", f"Invalid value: {number}: {SAYS_PORT}"


def service_causes(document: Document) -> Iterator[Cause]:
    """What is wrong with a Service. A headless one needs no ports."""
    spec = document.get("spec") or {}
    ports = spec.get("ports") or ()
    if not ports and spec.get("clusterIP") != "None" and spec.get("type") != "ExternalName":
        yield "spec.ports", "Required value"
    seen: set[str] = set()
    for i, port in enumerate(ports):
        name = port.get("name") or ""
        if len(ports) > 1 and not name:
            yield f"spec.ports[{i}].name", "Required value"
        elif name and (len(name) > LABEL_MAX or not LABEL.fullmatch(name)):
            yield f"spec.ports[{i}].name", f'Invalid value: "{name}": {SAYS_LABEL}'
        if name and name in seen:
            yield f"spec.ports[{i}].name", f'Duplicate value: "{name}"'
        seen.add(name)
        number = port.get("port") or 0
        if not 1 <= number <= 65535:
            yield f"spec.ports[{i}].port", f"Invalid value: {number}: {SAYS_PORT}"
    yield from _labels("spec.selector", spec.get("selector") or {})


def config_map_causes(document: Document) -> Iterator[Cause]:
    """What is wrong with a ConfigMap."""
    data = document.get("data") or {}
    for key in data:
        if len(key) > NAME_MAX or not DATA_KEY.fullmatch(key):
            yield (
                f"data[{key}]",
                f'Invalid value: "{key}": a valid config key must consist of alphanumeric'
                " characters, '-', '_' or '.'",
            )
    if sum(len(key) + len(str(text).encode()) for key, text in data.items()) > DATA_MAX:
        yield "[]", f"Too long: may not be more than {DATA_MAX} bytes"


def lease_causes(document: Document) -> Iterator[Cause]:
    """What is wrong with a Lease."""
    spec = document.get("spec") or {}
    seconds, transitions = spec.get("leaseDurationSeconds"), spec.get("leaseTransitions")
    if seconds is not None and seconds <= 0:
        yield "spec.leaseDurationSeconds", f"Invalid value: {seconds}: must be greater than 0"
    if transitions is not None and transitions < 0:
        yield (
            "spec.leaseTransitions",
            f"Invalid value: {transitions}: must be greater than or equal to 0",
        )


def event_causes(document: Document) -> Iterator[Cause]:
    """What is wrong with an event. Source: pkg/apis/core/validation/events.go."""
    if not document.get("eventTime"):
        yield "eventTime", "Required value"
    controller = document.get("reportingController") or ""
    if not controller:
        yield "reportingController", "Required value"
    else:
        yield from _key("reportingController", controller)
    for field in ("reportingInstance", "action", "reason"):
        text = document.get(field) or ""
        if not text:
            yield field, "Required value"
        elif len(text) > EVENT_FIELD_MAX:
            yield field, f'Invalid value: "": can have at most {EVENT_FIELD_MAX} characters'
    if document.get("type") not in ("Normal", "Warning"):
        yield "type", f'Invalid value: "": has invalid value: {document.get("type") or ""}'
    if len(document.get("note") or "") > NOTE_MAX:
        # Its name in core/v1, by which the server checks it.
        yield "message", f'Invalid value: "": can have at most {NOTE_MAX} characters'
    series = document.get("series")
    if series and (series.get("count") or 0) < 2:
        yield "series.count", 'Invalid value: "": should be at least 2'
    if series and not series.get("lastObservedTime"):
        yield "series.lastObservedTime", "Required value"


CHECKS: dict[str, Callable[[Document], Iterator[Cause]]] = {
    "pods": pod_causes,
    "services": service_causes,
    "configmaps": config_map_causes,
    "leases.coordination.k8s.io": lease_causes,
    "events.events.k8s.io": event_causes,
}

# Pods may change only these of their spec (ValidatePodUpdate).
POD_CHANGES = ("activeDeadlineSeconds", "tolerations")


def change_causes(kind: str, before: Document, after: Document) -> list[Cause]:
    """What may not be changed once an object exists."""
    if kind == "pods":
        return _pod_change(before.get("spec") or {}, after.get("spec") or {})
    if kind == "events.events.k8s.io":
        names = (before.keys() | after.keys()) - {"metadata", "series"}
        return [
            ("message" if name == "note" else name, 'Invalid value: "": field is immutable')
            for name in sorted(names)
            if before.get(name) != after.get(name)
        ]
    if kind == "configmaps" and before.get("immutable"):
        return (
            []
            if before.get("data") == after.get("data")
            else [("data", "Forbidden: field is immutable when `immutable` is set")]
        )
    return []


def _pod_change(before: Document, after: Document) -> list[Cause]:
    def fixed(spec: Document) -> Document:
        rest = {key: value for key, value in spec.items() if key not in POD_CHANGES}
        for group in ("containers", "initContainers"):
            rest[group] = [
                {key: value for key, value in container.items() if key != "image"}
                for container in spec.get(group) or ()
            ]
        gates = {gate.get("name") for gate in rest.pop("schedulingGates", None) or ()}
        old = {gate.get("name") for gate in before.get("schedulingGates") or ()}
        return rest | {"gates": "added" if gates - old else ""}

    if fixed(before) == fixed(after):
        return []
    return [(
        "spec",
        "Forbidden: pod updates may not change fields other than `spec.containers[*].image`,"
        " `spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only"
        " additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be"
        " set to 1 if it was previously negative)",
    )]  # fmt: skip
