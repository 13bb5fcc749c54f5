"""Volcano on a real API server: control/volcano.go.txt, which writes through Volcano's own types.

Volcano and scheduler-plugins cannot be fetched as Go modules, Volcano's types can be. The
definitions here let any spec through. Kueue itself is in kueue.py.
"""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING, Any

from cluster.control.build import binaries
from paddock.kube.client import COSCHEDULING_GROUPS, VOLCANO_GROUPS, Resource

if TYPE_CHECKING:
    from cluster.control.cluster import Cluster
    from cluster.jobs import Place

QUEUES = Resource("scheduling.volcano.sh", "v1beta1", "queues", "Queue", dict[str, Any])
HOOK = "127.0.0.1:9443"  # of the control plane's own loopback
HOOK_NAME = "volcano-admission-service-podgroups-validate"


def definition(
    resource: Resource[Any], *, scope: str = "Namespaced", has_status: bool = True
) -> dict[str, Any]:
    """A stand-in for the definition of a kind: any spec, any status."""
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    served = {
        "name": resource.version, "served": True, "storage": True,
        "subresources": {"status": {}} if has_status else {},
        "schema": {"openAPIV3Schema": {
            "type": "object", "properties": {"spec": anything, "status": anything}
        }},
    }  # fmt: skip
    singular = resource.kind.lower()
    names = {"plural": resource.plural, "singular": singular, "kind": resource.kind}
    return {
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{resource.plural}.{resource.group}"},
        "spec": {"group": resource.group, "scope": scope, "names": names, "versions": [served]},
    }  # fmt: skip


DEFINITIONS = (
    definition(VOLCANO_GROUPS, has_status=False),  # as in its config/crd: the status is a field
    definition(QUEUES, scope="Cluster"),
    definition(COSCHEDULING_GROUPS),
)
CRDS = tuple(f"crd/{made['metadata']['name']}" for made in DEFINITIONS)


def queue(name: str, **capability: str) -> dict[str, Any]:
    """A queue of Volcano, with room for so much; without limit of what is not named."""
    return {
        "apiVersion": QUEUES.api_version, "kind": QUEUES.kind, "metadata": {"name": name},
        "spec": {"capability": capability},
    }  # fmt: skip


class PlayedVolcano:
    """Volcano's scheduler and its webhook for PodGroups; a context manager."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def __enter__(self) -> PlayedVolcano:
        plane = self._cluster.plane
        mine = plane.authority.issue("volcano", "volcano", addresses=["IP:127.0.0.1"])
        words = (binaries().volcano, plane.inner_kubeconfig, HOOK, mine.certificate, mine.key)
        with (plane.folder / "log" / "volcano.log").open("ab") as log:
            self._process = subprocess.Popen(
                [*self._cluster.enter, *map(str, words)], stdin=subprocess.DEVNULL, stdout=log,
                stderr=log,
            )  # fmt: skip
        rule = {"apiGroups": [VOLCANO_GROUPS.group], "apiVersions": [VOLCANO_GROUPS.version],
                "operations": ["CREATE"], "resources": [VOLCANO_GROUPS.plural]}  # fmt: skip
        plane.apply(queue("default"), {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "ValidatingWebhookConfiguration", "metadata": {"name": HOOK_NAME},
            "webhooks": [{
                "name": "validatepodgroup.volcano.sh", "rules": [rule], "sideEffects": "None",
                "clientConfig": {"url": f"https://{HOOK}/podgroups/validate",
                                 "caBundle": plane.authority.bundle()},
                "failurePolicy": "Fail", "admissionReviewVersions": ["v1"],
            }],
        })  # fmt: skip
        return self

    def __exit__(self, *_: object) -> None:
        self._cluster.plane.kubectl("delete", "validatingwebhookconfiguration", HOOK_NAME)
        self._process.kill()
        self._process.wait()


def evict(place: Place, pod: str) -> None:
    """As a drain does."""
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod}}
    path = f"/api/v1/namespaces/{place.namespace}/pods/{pod}/eviction"
    place.kubectl("create", "--raw", path, "-f", "-", stdin=json.dumps(eviction))


def suspend_and_resume(place: Place, name: str) -> None:
    """Nothing of it is left in between, and it runs again."""
    place.patch(name, {"suspend": True})
    place.soon("its pods are gone", lambda: not place.pods(name), name)
    place.patch(name, {"suspend": False})
    place.wait(name, "Running")


def finish(place: Place, name: str, workers: int) -> None:
    """The workers succeed; the job is Completed, and no pod of it is left, Terminating or not."""
    for number in range(workers):
        place.probe(f"{name}-worker-{number}", "release")
    place.wait(name, "Completed")
    place.soon("its pods are gone", lambda: not place.pods(name), name)
