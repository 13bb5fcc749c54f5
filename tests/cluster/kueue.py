"""Kueue itself on a test cluster: its own manifests, and its manager as a pod.

    with InstalledKueue(cluster, folder):
        add_queue(place, "research", pods=3)

Its webhooks are asked about every pod of the cluster while it is there, and refuse all of them when
it does not answer: it is installed for the tests that need it, and removed after them.
"""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import yaml

from cluster.control.archive import write_image
from cluster.control.build import binaries, kueue_manifests
from cluster.control.ground import ClusterError

if TYPE_CHECKING:
    from pathlib import Path

    from cluster.control.cluster import Cluster
    from cluster.jobs import Place

IMAGE = "localhost/paddock/kueue:test"
NAMESPACE = "kueue-system"
GROUP = "kueue.x-k8s.io"
VERSION = f"{GROUP}/v1beta2"
READY_SECONDS_MAX = 240.0
END_SECONDS_MAX = 60
POLL_SECONDS = 1.0
USER = 65532  # the image has no line that names one
FLAVOR: dict[str, Any] = {
    "apiVersion": VERSION, "kind": "ResourceFlavor", "metadata": {"name": "any"},
}  # fmt: skip
FRAMEWORKS = ("batch/job", "pod")
HOOKS = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")


class InstalledKueue:
    """A context manager; inside, pods with a queue wait for their turn."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        """Nothing is started yet. folder: for the image, 90 MB."""
        self._cluster = cluster
        self._folder = folder

    def __enter__(self) -> InstalledKueue:
        program = binaries().kueue.read_bytes()
        archive = write_image(
            self._folder / "kueue.tar", IMAGE, {"/manager": program}, ["/manager"]
        )
        self._cluster.load_image(archive)
        archive.unlink()
        self._objects = [one for one in kueue_manifests() if one["kind"] != "APIService"]
        plane = self._cluster.plane
        listed = {"apiVersion": "v1", "kind": "List", "items": list(map(adapted, self._objects))}
        # Server-side: the definition of a Workload is too large for an annotation.
        plane.kubectl("apply", "--server-side", "-f", "-", stdin=json.dumps(listed))
        crds = [f"crd/{name}" for name in self._names("CustomResourceDefinition")]
        plane.kubectl("wait", "--for=condition=Established", *crds, "--timeout=60s")
        self._wait_ready()
        return self

    def __exit__(self, *_: object) -> None:
        kubectl = self._cluster.plane.kubectl
        # While the manager can still take its finalizers off.
        kinds = "clusterqueues,resourceflavors,workloadpriorityclasses"
        kubectl("delete", kinds, "--all", f"--timeout={END_SECONDS_MAX}s")
        for kind in HOOKS:
            kubectl("delete", kind, *self._names(kind))
        kubectl("delete", "namespace", NAMESPACE)
        kubectl("delete", "crd", *self._names("CustomResourceDefinition"))

    def _names(self, kind: str) -> list[str]:
        return [one["metadata"]["name"] for one in self._objects if one["kind"] == kind]

    def _wait_ready(self) -> None:
        """Come back when its webhooks answer, which is a moment after the pod is ready.

        The manager waits until the certificates that it has made are in its volume. A kubelet looks
        after a pod's volumes every minute or two, and at once when the pod changes.
        """
        plane = self._cluster.plane
        until = time.monotonic() + READY_SECONDS_MAX
        nudge = ("annotate", "pods", "--all", "-n", NAMESPACE, "--overwrite")
        while True:
            plane.kubectl(*nudge, f"nudged={time.monotonic()}", check=False)
            try:
                plane.apply(FLAVOR)
                return
            except ClusterError as error:
                if time.monotonic() > until:
                    pods = plane.kubectl("describe", "pods", "-n", NAMESPACE, check=False).stdout
                    raise ClusterError(f"Kueue does not answer: {error}\n{pods}") from error
            time.sleep(POLL_SECONDS)  # sleep: what the API server reaches tells nobody


def adapted(manifest: dict[str, Any]) -> dict[str, Any]:
    """A manifest of Kueue for a cluster that lasts minutes: our image, and one manager at once."""
    if manifest["kind"] == "ConfigMap":
        ((name, text),) = manifest["data"].items()
        settings = yaml.safe_load(text)
        settings["integrations"]["frameworks"] = list(FRAMEWORKS)
        # Another manager is never there. A lease lost on a busy machine would end this one.
        settings["leaderElection"]["leaderElect"] = False
        return {**manifest, "data": {name: yaml.safe_dump(settings)}}
    if manifest["kind"] != "Deployment":
        return manifest
    pod = manifest["spec"]["template"]["spec"]
    pod["securityContext"]["runAsUser"] = USER
    pod["containers"][0] |= {
        "image": IMAGE, "imagePullPolicy": "Never", "livenessProbe": None,
        "readinessProbe": {"httpGet": {"path": "/readyz", "port": 8081}, "periodSeconds": 1},
        "resources": {"requests": {"cpu": "10m", "memory": "128Mi"}},
    }  # fmt: skip
    return manifest


def add_queue(place: Place, name: str, *, pods: int) -> None:
    """A LocalQueue of a namespace, in front of room for so many pods of any size."""
    whole = f"{place.namespace}-{name}"
    quotas = {"cpu": "100", "memory": "100Gi", "pods": str(pods)}
    resources = [{"name": what, "nominalQuota": amount} for what, amount in quotas.items()]
    place.apply(
        {
            "apiVersion": VERSION, "kind": "ClusterQueue", "metadata": {"name": whole},
            "spec": {
                "namespaceSelector": {}, "preemption": {"withinClusterQueue": "LowerPriority"},
                "resourceGroups": [{
                    "coveredResources": list(quotas),
                    "flavors": [{"name": FLAVOR["metadata"]["name"], "resources": resources}],
                }],
            },
        },
        {
            "apiVersion": VERSION, "kind": "LocalQueue", "metadata": {"name": name},
            "spec": {"clusterQueue": whole},
        },
    )  # fmt: skip
