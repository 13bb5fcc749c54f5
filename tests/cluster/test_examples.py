"""The files of deploy/examples, and the documents' own, applied as they are: pods that train.

Real images (made here, without a registry), real containers on two nodes, real PaddlePaddle on the
processor. Volcano is a stand-in: its definition of a PodGroup, and a hand that admits it.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml

if TYPE_CHECKING:
    from cluster.control.cluster import Cluster
    from cluster.jobs import Place

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
END_SECONDS_MAX = 400.0  # several jobs share two cores
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


def apply(place: Place, name: str) -> str:
    """Apply a file as it is; the job's name."""
    if name in ("document", "names"):
        text = DOCUMENT if name == "document" else by_names()
        place.kubectl("apply", "-f", "-", stdin=text)
    else:
        place.kubectl("apply", "-f", DEPLOY / name)
        text = (DEPLOY / name).read_text("utf-8")
    (job,) = [d for d in yaml.safe_load_all(text) if d["kind"] == "PaddleJob"]
    return str(job["metadata"]["name"])


@pytest.fixture
def examples(place: Place, large_images: None, accelerators: None) -> Place:
    """In a namespace of the test's own."""
    return place


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
def test_examples_train_to_their_end(examples: Place, files: tuple[str, ...]) -> None:
    """`kubectl apply -f` and nothing else: pods that learn, and a job that is Completed."""
    jobs = {file: apply(examples, file) for file in files}
    for file, job in jobs.items():
        status = examples.end(job, seconds=END_SECONDS_MAX)
        logs = examples.logs_of(job)
        assert status["phase"] == "Completed", f"{job}: {status}\n{logs}"
        assert re.search(LEARNED[file], logs), f"{job}:\n{logs}"
        examples.kubectl("delete", "pdj", job, "--wait=false")


@pytest.mark.limit(600)
def test_volcano_is_asked_before_pods_are_made(examples: Place) -> None:
    """wide_and_deep_volcano.yaml: nothing runs until the group is admitted, then it trains."""
    examples.kubectl("apply", "-f", "-", stdin=json.dumps(VOLCANO))
    try:
        job = apply(examples, "examples/wide_and_deep_volcano.yaml")
        examples.wait(job, reason="WaitingForGang")
        assert not examples.pods()
        # The status comes first. In the first 2 s of a definition its API server holds each create.
        group = f"podgroups.scheduling.volcano.sh/{job}"
        examples.kubectl("wait", "--for=create", group, "--timeout=60s")
        admitted = json.dumps({"status": {"phase": "Inqueue"}})
        words = ("--subresource=status", "--type=merge", "-p", admitted)
        examples.kubectl("patch", group, *words)
        examples.soon("four pods", lambda: len(examples.pods()) == 4, job)
        assert {pod["spec"]["schedulerName"] for pod in examples.pods().values()} == {"volcano"}
        examples.kubectl("delete", "pdj", job, "--wait=false")
    finally:
        examples.kubectl("delete", "crd", "podgroups.scheduling.volcano.sh", "--wait=false")


@pytest.mark.limit(600)
def test_an_elastic_job_grows_and_outlives_its_first_worker(examples: Place) -> None:
    """deploy/elastic/digits.yaml with `kubectl scale`: ranks start again with the new size.

    Then the first worker is deleted. The next one coordinates, without etcd; the deleted one comes
    back to it, and nobody else's container ends.
    """
    job = apply(examples, "elastic/digits.yaml")
    examples.wait_logged(job, r"world size 2|world_size 2|of 2", seconds=END_SECONDS_MAX)
    before = _lives(examples, f"{job}-worker-0", f"{job}-worker-1")
    examples.kubectl("scale", "pdj", job, "--replicas=3")
    examples.wait_logged(job, r"world size 3|world_size 3|of 3", seconds=END_SECONDS_MAX)
    assert _lives(examples, f"{job}-worker-0", f"{job}-worker-1") == before, "one was made again"
    first = f"{job}-worker-0"
    examples.kubectl("delete", "pod", first, "--wait=false")
    examples.wait_logged(job, "this node goes on for it", seconds=END_SECONDS_MAX)
    status = examples.end(job, seconds=END_SECONDS_MAX)
    assert status["phase"] == "Completed", f"{status}\n{examples.logs_of(job)}"
    after = _lives(examples, first, f"{job}-worker-1")
    assert after[0] != before[0]
    assert after[1] == before[1], "it ended with the first one"
    assert "joined the coordinator at" in examples.logs(first)


def _lives(examples: Place, *pods: str) -> list[tuple[str, int]]:
    """What tells one life of each pod's container from the next."""
    found = [examples.pods()[pod] for pod in pods]
    return [(p["metadata"]["uid"], p["status"]["containerStatuses"][0]["restartCount"])
            for p in found]  # fmt: skip
