"""The examples beyond the documents' own: elastic training with etcd, and all policies at once."""

from __future__ import annotations

import json
import re
import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from cluster.control.cluster import Cluster
    from cluster.control.operators import Operator

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
SECONDS_MAX = 300.0
TRAINED = r"accuracy 0\.9\d\d on 360 unseen digits"


@pytest.fixture
def checkpoints() -> Iterator[Path]:
    """The folder of the nodes that elastic/resnet.yaml names: empty before, and gone after."""
    job = yaml.safe_load((DEPLOY / "elastic" / "resnet.yaml").read_text("utf-8"))
    (volume,) = job["spec"]["worker"]["template"]["spec"]["volumes"]
    folder = Path(volume["hostPath"]["path"])
    shutil.rmtree(folder, ignore_errors=True)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


def eventually(found: Callable[[], Any], what: str) -> Any:
    """What it returns, as soon as that is true."""
    until = time.monotonic() + SECONDS_MAX
    while not (value := found()):
        assert time.monotonic() < until, f"never {what}"
        time.sleep(0.5)  # sleep: another process tells nobody
    return value


class Space:
    """A namespace, seen by kubectl."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        self._cluster = cluster
        self._name = name

    def kubectl(self, *words: object) -> str:
        """What a command says; "" when it fails."""
        done = self._cluster.kubectl(*words, "-n", self._name, check=False)
        return done.stdout if done.returncode == 0 else ""

    def end(self, job: str) -> dict[str, Any]:
        """The status of a job that is over."""

        def ended() -> dict[str, Any] | None:
            said = self.kubectl("get", "pdj", job, "-o", "json")
            status: dict[str, Any] = json.loads(said).get("status", {})
            return status if status.get("phase") in ("Completed", "Failed") else None

        found: dict[str, Any] = eventually(ended, f"the end of {job}")
        return found

    def log(self, job: str) -> str:
        """The logs of its workers, one after another."""
        return self.kubectl(
            "logs", "-l", f"batch.paddlepaddle.org/job-name={job}", "--prefix", "--tail=60"
        )


@pytest.fixture
def space(cluster: Cluster, operator: Operator, large_images: None, namespace: str) -> Space:
    """With an operator that looks after it."""
    assert operator.pid
    return Space(cluster, namespace)


def test_an_elastic_job_with_etcd_trains_and_keeps_its_checkpoint(
    space: Space, checkpoints: Path
) -> None:
    """Both files of deploy/elastic as they are: etcd comes up, three workers find one another."""
    for name in ("etcd", "resnet"):
        assert space.kubectl("apply", "-f", DEPLOY / "elastic" / f"{name}.yaml")
    eventually(lambda: "of 3 is up" in space.log("elastic-resnet"), "three ranks")
    status = space.end("elastic-resnet")
    log = space.log("elastic-resnet")
    assert status["phase"] == "Completed", f"{status}\n{log}"
    assert re.search(TRAINED, log), log
    assert list(checkpoints.iterdir())


def test_a_job_with_every_policy_trains(space: Space) -> None:
    """policies.yaml is what people copy from; suspending it and going on is in its first lines."""
    suspend = '{"spec": {"suspend": %s}}'
    words = ("patch", "pdj", "policies", "--type=merge", "-p")
    assert space.kubectl("apply", "-f", DEPLOY / "examples" / "policies.yaml")
    eventually(
        lambda: "pod/policies-worker-1" in space.kubectl("get", "pods", "-o", "name"), "pods"
    )
    assert space.kubectl(*words, suspend % "true")
    eventually(lambda: not space.kubectl("get", "pods", "-o", "name").strip(), "no pods")
    # Its pods are removed when it is complete; the log is read before that.
    assert space.kubectl(*words, suspend % "false")
    eventually(lambda: re.search(r"rank 0 epoch \d", space.log("policies")), "an epoch")
    status = space.end("policies")
    assert status["phase"] == "Completed", f"{status}\n{space.log('policies')}"
