"""The files of deploy/examples, and the documents' own, applied as they are: pods that train.

Real images (made here, without a registry), real containers on two nodes, real PaddlePaddle on the
processor. Volcano is a stand-in: its definition of a PodGroup, and a hand that admits it.
"""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from cluster.control.cluster import Cluster
    from cluster.control.operators import Operator

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
END_SECONDS_MAX = 400.0  # several jobs share two cores
TRIES = 5  # of kubectl logs
# demo-wide-and-deep.yaml of the users' documents, with another name and the pods kept.
DOCUMENT = """
apiVersion: batch.paddlepaddle.org/v1
kind: PaddleJob
metadata:
  name: document
spec:
  withGloo: 1
  intranet: PodIP
  cleanPodPolicy: Never
  worker:
    replicas: 2
    template:
      spec:
        containers:
          - name: paddle
            image: registry.baidubce.com/paddle-operator/demo-wide-and-deep:v1
  ps:
    replicas: 2
    template:
      spec:
        containers:
          - name: paddle
            image: registry.baidubce.com/paddle-operator/demo-wide-and-deep:v1
"""
# A stand-in: volcano's definition cannot be had here (PodGroup scheduling.volcano.sh/v1beta1).
VOLCANO = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "podgroups.scheduling.volcano.sh"},
    "spec": {
        "group": "scheduling.volcano.sh",
        "names": {"kind": "PodGroup", "plural": "podgroups", "singular": "podgroup"},
        "scope": "Namespaced",
        "versions": [
            {
                "name": "v1beta1",
                "served": True,
                "storage": True,
                "subresources": {"status": {}},
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "x-kubernetes-preserve-unknown-fields": True,
                    }
                },
            }
        ],
    },
}
# file -> what the end of some pod's log says when it has learned something.
LEARNED = {
    "examples/wide_and_deep.yaml": r"AUC 0\.[6-9]",
    "examples/wide_and_deep_podip.yaml": r"AUC 0\.[6-9]",
    "examples/wide_and_deep_service.yaml": r"AUC 0\.[6-9]",
    "examples/deepfm.yaml": r"AUC 0\.[6-9]",
    "examples/pserver.yaml": r"AUC|auc",
    "examples/resnet.yaml": r"accuracy 0\.9",
    "examples/simple.yaml": r"successfully",
    "../examples/paddlejob.yaml": r"accuracy 0\.9",
    "document": r"AUC 0\.[6-9]",
    "names": r"accuracy 0\.9",
}


@pytest.fixture(scope="module")
def accelerators(cluster: Cluster) -> None:
    """Nodes that say they have a GPU: resnet.yaml asks for one, and trains without using it."""
    capacity = json.dumps({"status": {"capacity": {"nvidia.com/gpu": "2"}}})
    for node in ("node0", "node1"):
        cluster.kubectl(
            "patch", "node", node, "--subresource=status", "--type=merge", "-p", capacity
        )


def by_names() -> str:
    """policies.yaml: `paddock launch` in pods that start before the others' names are known."""
    made = yaml.safe_load((DEPLOY / "examples/policies.yaml").read_text("utf-8"))
    made["spec"].update(intranet="DNS", backoffLimit=0, cleanPodPolicy="Never")
    return json.dumps(made)


class Examples:
    """Applies files and follows their jobs in one namespace."""

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self.kubectl = cluster.kubectl
        self.namespace = namespace

    def apply(self, name: str) -> str:
        """Apply a file as it is; the job's name."""
        if name in ("document", "names"):
            text = DOCUMENT if name == "document" else by_names()
            self.kubectl("apply", "-n", self.namespace, "-f", "-", stdin=text)
        else:
            self.kubectl("apply", "-n", self.namespace, "-f", DEPLOY / name)
            text = (DEPLOY / name).read_text("utf-8")
        (job,) = [d for d in yaml.safe_load_all(text) if d["kind"] == "PaddleJob"]
        return str(job["metadata"]["name"])

    def status(self, job: str) -> Mapping[str, Any]:
        """Its status."""
        said = self.kubectl("get", "pdj", job, "-n", self.namespace, "-o", "json").stdout
        found: Mapping[str, Any] = json.loads(said).get("status") or {}
        return found

    def end(self, job: str) -> Mapping[str, Any]:
        """Its status when it is over."""
        until = time.monotonic() + END_SECONDS_MAX
        while (found := self.status(job)).get("phase") not in ("Completed", "Failed"):
            assert time.monotonic() < until, f"{job}: {found}\n{self.logs(job)}"
            time.sleep(0.5)  # sleep: kubectl has no wait for one of two phases
        return found

    def logs(self, job: str) -> str:
        """The end of the log of every pod that is there."""
        words = ("-l", f"batch.paddlepaddle.org/job-name={job}", "--prefix", "--tail=15")
        for _ in range(TRIES):
            read = self.kubectl("logs", "-n", self.namespace, *words, check=False)
            if read.returncode == 0:
                break  # else a server's pod was removed while kubectl read one after the other
        return str(read.stdout)

    def delete(self, job: str) -> None:
        """The job, and with it its pods."""
        self.kubectl("delete", "pdj", job, "-n", self.namespace, "--wait=false")


@pytest.fixture
def examples(
    operator: Operator, cluster: Cluster, large_images: None, accelerators: None, namespace: str
) -> Iterator[Examples]:
    """In a namespace of the test's own."""
    yield Examples(cluster, namespace)


@pytest.mark.limit(900)
@pytest.mark.parametrize(
    "files",
    [
        ("examples/wide_and_deep.yaml", "examples/resnet.yaml", "document"),
        ("examples/wide_and_deep_service.yaml", "examples/simple.yaml", "examples/deepfm.yaml"),
        (
            "examples/wide_and_deep_podip.yaml",
            "examples/pserver.yaml",
            "../examples/paddlejob.yaml",
            "names",
        ),
    ],
    ids=["classic", "service", "podip"],
)
def test_examples_train_to_their_end(examples: Examples, files: tuple[str, ...]) -> None:
    """`kubectl apply -f` and nothing else: pods that learn, and a job that is Completed."""
    jobs = {file: examples.apply(file) for file in files}
    for file, job in jobs.items():
        status = examples.end(job)
        logs = examples.logs(job)
        assert status["phase"] == "Completed", f"{job}: {status}\n{logs}"
        assert re.search(LEARNED[file], logs), f"{job}:\n{logs}"
        examples.delete(job)


@pytest.mark.limit(600)
def test_volcano_is_asked_before_pods_are_made(examples: Examples) -> None:
    """wide_and_deep_volcano.yaml: nothing runs until the group is admitted, then it trains."""
    examples.kubectl("apply", "-f", "-", stdin=json.dumps(VOLCANO))
    try:
        job = examples.apply("examples/wide_and_deep_volcano.yaml")
        _wait_reason(examples, job, "WaitingForGang")
        pods = examples.kubectl("get", "pods", "-n", examples.namespace, "-o", "name").stdout
        assert pods == ""
        # The status comes first. In the first 2 s of a definition its API server holds each create.
        group = f"podgroups.scheduling.volcano.sh/{job}"
        examples.kubectl("wait", "--for=create", group, "-n", examples.namespace, "--timeout=60s")
        admitted = json.dumps({"status": {"phase": "Inqueue"}})
        words = ("-n", examples.namespace, "--subresource=status", "--type=merge", "-p", admitted)
        examples.kubectl("patch", group, *words)
        _wait_pods(examples, 4)
        names = (
            "get",
            "pods",
            "-n",
            examples.namespace,
            "-o",
            "jsonpath={.items[*].spec.schedulerName}",
        )
        assert set(examples.kubectl(*names).stdout.split()) == {"volcano"}
        examples.delete(job)
    finally:
        examples.kubectl("delete", "crd", "podgroups.scheduling.volcano.sh", "--wait=false")


@pytest.mark.limit(600)
def test_an_elastic_job_grows_and_outlives_its_first_worker(examples: Examples) -> None:
    """deploy/elastic/digits.yaml with `kubectl scale`: ranks start again with the new size.

    Then the first worker is deleted. The next one coordinates, without etcd; the deleted one comes
    back to it, and nobody else's container ends.
    """
    job = examples.apply("elastic/digits.yaml")
    _wait_logs(examples, job, r"world size 2|world_size 2|of 2")
    before = _lives(examples, f"{job}-worker-0", f"{job}-worker-1")
    examples.kubectl("scale", "pdj", job, "--replicas=3", "-n", examples.namespace)
    _wait_logs(examples, job, r"world size 3|world_size 3|of 3")
    assert _lives(examples, f"{job}-worker-0", f"{job}-worker-1") == before, "one was made again"
    first = f"{job}-worker-0"
    examples.kubectl("delete", "pod", first, "--wait=false", "-n", examples.namespace)
    _wait_logs(examples, job, "this node goes on for it")
    status = examples.end(job)
    assert status["phase"] == "Completed", f"{status}\n{examples.logs(job)}"
    after = _lives(examples, first, f"{job}-worker-1")
    assert after[0] != before[0]
    assert after[1] == before[1], "it ended with the first one"
    logs = examples.kubectl("logs", first, "-n", examples.namespace).stdout
    assert "joined the coordinator at" in logs


def _lives(examples: Examples, *pods: str) -> list[str]:
    """What tells one life of each pod's container from the next."""
    shown = "jsonpath={.metadata.uid} {.status.containerStatuses[0].restartCount}"
    words = ("-n", examples.namespace, "-o", shown)
    return [examples.kubectl("get", "pod", pod, *words).stdout for pod in pods]


def _wait_reason(examples: Examples, job: str, reason: str) -> None:
    until = time.monotonic() + 120
    while (found := examples.status(job)).get("reason") != reason:
        assert time.monotonic() < until, f"never {reason}: {found}"
        time.sleep(0.3)  # sleep: the operator looks for a new kind now and then


def _wait_pods(examples: Examples, count: int) -> None:
    until = time.monotonic() + 60
    words = ("get", "pods", "-n", examples.namespace, "-o", "name")
    while len(examples.kubectl(*words).stdout.split()) != count:
        assert time.monotonic() < until
        time.sleep(0.3)  # sleep: another process tells nobody


def _wait_logs(examples: Examples, job: str, pattern: str) -> None:
    until = time.monotonic() + END_SECONDS_MAX
    while not re.search(pattern, logs := examples.logs(job)):
        assert time.monotonic() < until, f"never {pattern}:\n{logs}"
        time.sleep(1.0)  # sleep: another process tells nobody
