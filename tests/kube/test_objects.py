"""The slim shapes: whatever the API server leaves out or adds is taken, and little is kept."""

from __future__ import annotations

import msgspec
import pytest

from paddock.kube import objects
from paddock.kube.objects import Meta, OwnerReference, PaddleJob, Pod, rfc3339, seconds

SHAPES = (
    objects.Pod, objects.Object, objects.ConfigMap, objects.PodGroup, objects.PaddleJob,
    objects.Lease,
)  # fmt: skip

# As the API server 1.34 gave it, shortened.
REAL_POD = b"""{
 "kind": "Pod", "apiVersion": "v1",
 "metadata": {"name": "j-worker-0", "namespace": "ml", "uid": "u1", "resourceVersion": "77",
  "generation": 1, "creationTimestamp": "2026-11-21T08:00:00Z",
  "labels": {"paddle-res-type": "worker"}, "managedFields": [{"manager": "paddock-operator"}],
  "ownerReferences": [
   {"apiVersion": "v1", "kind": "Other", "name": "o", "uid": "u2"},
   {"apiVersion": "batch.paddlepaddle.org/v1", "kind": "PaddleJob", "name": "j", "uid": "u3",
    "controller": true, "blockOwnerDeletion": true}]},
 "spec": {"nodeName": "node-0", "containers": [{"name": "main"}], "hostNetwork": true},
 "status": {"phase": "Running", "podIP": "10.0.0.7", "podIPs": [{"ip": "10.0.0.7"}],
  "conditions": [{"type": "Ready", "status": "True", "lastProbeTime": null,
    "lastTransitionTime": "2026-11-21T08:00:02Z", "observedGeneration": 1}],
  "containerStatuses": [{"name": "main", "ready": true, "started": true, "restartCount": 1,
    "image": "i", "imageID": "x", "lastState": {"terminated": {"exitCode": 137, "reason":
    "OOMKilled", "containerID": "c", "startedAt": null, "finishedAt": "2026-11-21T08:00:01Z"}},
    "state": {"running": {"startedAt": "2026-11-21T08:00:02Z"}}}]}}"""


def test_real_pod_is_read_by_what_matters() -> None:
    """Thousands of pods are cached, so only these fields are kept."""
    pod = msgspec.json.decode(REAL_POD, type=Pod)
    assert pod.metadata.controller_uid == "u3"
    assert pod.metadata.label("paddle-res-type") == "worker"
    assert pod.spec == objects.PodSpec(
        nodeName="node-0", containers=(objects.PodContainer("main"),)
    )
    assert pod.status.containerStatuses is not None
    container = pod.status.containerStatuses[0]
    assert container.lastState.terminated is not None
    assert container.lastState.terminated.exitCode == 137
    assert container.state.running is not None
    assert container.state.terminated is None


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(
    "text",
    [b"{}", b'{"metadata": {"resourceVersion": "9", "creationTimestamp": null}}'],
)
def test_every_shape_takes_the_object_of_a_bookmark(shape: type[PaddleJob], text: bytes) -> None:
    """It carries a version only; a required field would end every watch."""
    assert msgspec.json.decode(text, type=shape).metadata.name == ""


def test_bookmark_with_null_containers_is_a_pod() -> None:
    """The real server writes `"spec": {"containers": null}` into the bookmark of pods."""
    text = b'{"metadata": {}, "spec": {"containers": null}, "status": {}}'
    assert msgspec.json.decode(text, type=Pod) == Pod()


@pytest.mark.parametrize("spec", [b"null", b"[1]", b'"x"', b'{"worker": {"replicas": "many"}}'])
def test_job_takes_any_spec_at_all(spec: bytes) -> None:
    """An old definition lets anything through; reading it must fail per job, not per list."""
    job = msgspec.json.decode(b'{"spec": %s, "status": %s}' % (spec, spec), type=PaddleJob)
    assert job.spec == job.status == msgspec.json.decode(spec)


def test_owner_that_is_no_controller_does_not_own_the_object() -> None:
    """Only one owner manages it; the others merely keep it from being collected."""
    owner = OwnerReference(uid="u", controller=None)
    assert Meta(ownerReferences=(owner,)).controller_uid == ""
    assert Meta().controller_uid == ""


def test_absent_labels_and_annotations_read_as_empty() -> None:
    """The server leaves out empty maps."""
    assert Meta().label("a") == Meta().annotation("a") == ""
    assert Meta(annotations={"a": "b"}).annotation("a") == "b"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-11-21T08:00:00Z", 1795248000.0),
        ("2026-11-21T08:00:00.250000Z", 1795248000.25),  # MicroTime of a Lease
        ("2026-11-21T10:00:00+02:00", 1795248000.0),
        ("", 0.0),
        (None, 0.0),
    ],
)
def test_times_are_read_as_the_server_writes_them(text: str | None, expected: float) -> None:
    """Plain times have seconds, those of a Lease microseconds."""
    assert seconds(text) == expected


def test_times_are_written_without_a_fraction() -> None:
    """metav1.Time takes no fraction; what is written reads back as the second it lies in."""
    assert seconds(rfc3339(1795248000.9)) == 1795248000.0
