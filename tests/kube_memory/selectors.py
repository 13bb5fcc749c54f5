"""Label and field selectors. Pure.

Source: https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/,
https://kubernetes.io/docs/concepts/overview/working-with-objects/field-selectors/.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kube_memory.refusals import bad_request

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

Document = dict[str, Any]  # an object as JSON has it

# What a fieldSelector may name: of every kind, and of these.
EVERY_KIND = ("metadata.name", "metadata.namespace")
FIELDS: dict[str, tuple[str, ...]] = {
    "pods": (
        "spec.nodeName", "spec.restartPolicy", "spec.schedulerName", "spec.serviceAccountName",
        "spec.hostNetwork", "status.phase", "status.podIP", "status.nominatedNodeName",
    ),
    "paddlejobs.batch.paddlepaddle.org": ("status.phase", "status.mode"),
    "events.events.k8s.io": ("reason", "reportingController", "type"),
}  # fmt: skip

# Commas separate requirements, but for those inside the brackets of a set.
COMMA = re.compile(r",(?![^()]*\))")
SET = re.compile(r"^(\S+)\s+(in|notin)\s+\(([^)]*)\)$")


@dataclass(frozen=True, slots=True)
class Requirement:
    """One part of a selector. values: which the label may (or may not) have."""

    name: str
    does: str  # "in", "notin", "exists", "absent"
    values: tuple[str, ...] = ()

    def fits(self, labels: Mapping[str, str]) -> bool:
        """Whether these labels meet it. A label that is not there is not in any set."""
        if self.does == "exists":
            return self.name in labels
        if self.does == "absent":
            return self.name not in labels
        return (labels.get(self.name, None) in self.values) == (self.does == "in")


def requirements(text: str) -> tuple[Requirement, ...]:
    """A selector's parts, all of which must hold. Raises KubeError 400.

    >>> [r.does for r in requirements("a=b,c notin (d, e),!f,g")]
    ['in', 'notin', 'absent', 'exists']
    """
    return tuple(_requirement(part.strip()) for part in COMMA.split(text) if part.strip())


def _requirement(part: str) -> Requirement:
    found = SET.match(part)
    if found:
        values = tuple(value.strip() for value in found[3].split(","))
        return Requirement(found[1], found[2], values)
    for sign, does in (("!=", "notin"), ("==", "in"), ("=", "in")):
        if sign in part:
            name, _, value = part.partition(sign)
            return Requirement(name.strip(), does, (value.strip(),))
    if part.startswith("!"):
        return Requirement(part[1:].strip(), "absent")
    if " " in part:
        raise bad_request(f"unable to parse requirement: {part!r}")
    return Requirement(part, "exists")


def matcher(kind: str, labels: str, fields: str) -> Callable[[Document], bool]:
    """Whether an object of that kind is selected. kind: as refusals.qualified says it.

    Raises KubeError 400 for a selector that the server would not take.
    """
    by_label = requirements(labels)
    by_field = requirements(fields)
    known = EVERY_KIND + FIELDS.get(kind, ())
    for part in by_field:
        if part.name not in known:
            raise bad_request(f"field label not supported: {part.name}")

    def fits(document: Document) -> bool:
        found = document["metadata"].get("labels") or {}
        return all(part.fits(found) for part in by_label) and all(
            part.fits({part.name: _field(document, part.name)}) for part in by_field
        )

    return fits


def _field(document: Document, path: str) -> str:
    value: Any = document
    for step in path.split("."):
        value = value.get(step) if isinstance(value, dict) else None
    if isinstance(value, bool):
        return str(value).lower()
    return "" if value is None else str(value)
