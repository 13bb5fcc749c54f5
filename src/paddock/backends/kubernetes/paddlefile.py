"""A PaddleJob from -f, for a cluster that has an operator: it is created as it is written. Pure.

Only labels that find its pods, suspension until all objects exist, the variables of --env, and the
place for the launcher's last sentence are added. Its image has its code; --image replaces it.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from paddock.backends.kubernetes.pods import DEFAULT_CONTAINER, END_VARIABLE
from paddock.kube.resource import Manifest

ROLES = ("ps", "worker", "heter")


def metadata_of(document: Mapping[str, Any], name: str) -> dict[str, str]:
    """Return the labels or annotations that the file gives the job."""
    return dict(_table(_table(document, "metadata"), name))


def pod_names(document: Mapping[str, Any], name: str) -> list[str]:
    """Return the names that the operator gives the pods.

    >>> pod_names({"spec": {"ps": {"replicas": 1}, "worker": {"replicas": 2}}}, "a")
    ['a-ps-0', 'a-worker-0', 'a-worker-1']
    """
    spec = _table(document, "spec")
    counts = {role: _table(spec, role).get("replicas", 1) for role in ROLES if role in spec}
    return [f"{name}-{role}-{i}" for role, count in counts.items() for i in range(int(count or 0))]


def spec_of(
    document: Mapping[str, Any], *, image: str, secret: str, labels: Mapping[str, str]
) -> Manifest:
    """Return the spec of the job.

    Pods stay when they have ended, unless the file says otherwise.
    """
    spec: dict[str, Any] = {"cleanPodPolicy": "Never", **copy.deepcopy(_table(document, "spec"))}
    spec["suspend"] = True
    for role in ROLES:
        template = _table(_table(spec, role), "template")
        if not template:
            continue
        metadata = template.setdefault("metadata", {})
        metadata["labels"] = {**_table(metadata, "labels"), **labels}
        first = next(iter(_table(template, "spec").get("containers") or [{}]))
        metadata["annotations"] = {
            DEFAULT_CONTAINER: first.get("name", ""), **_table(metadata, "annotations"),
        }  # fmt: skip
        first["env"] = [*first.get("env", []), dict(END_VARIABLE)]
        first["envFrom"] = [*first.get("envFrom", []), {"secretRef": {"name": secret}}]
        if image:
            first["image"] = image
    return spec


def _table(what: Mapping[str, Any], name: str) -> dict[str, Any]:
    found = what.get(name)
    return found if isinstance(found, dict) else {}
