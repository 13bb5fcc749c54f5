"""The examples beyond the documents' own: elastic training with etcd, and all policies at once."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cluster.jobs import Place

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


def test_an_elastic_job_with_etcd_trains_and_keeps_its_checkpoint(
    place: Place, large_images: None, checkpoints: Path
) -> None:
    """Both files of deploy/elastic as they are: etcd comes up, three workers find one another."""
    for name in ("etcd", "resnet"):
        place.kubectl("apply", "-f", DEPLOY / "elastic" / f"{name}.yaml")
    place.wait_logged("elastic-resnet", "of 3 is up", seconds=SECONDS_MAX, lines=60)
    status = place.end("elastic-resnet", seconds=SECONDS_MAX)
    log = place.logs_of("elastic-resnet", lines=60)
    assert status["phase"] == "Completed", f"{status}\n{log}"
    assert re.search(TRAINED, log), log
    assert list(checkpoints.iterdir())


def test_a_job_with_every_policy_trains(place: Place, large_images: None) -> None:
    """policies.yaml is what people copy from; suspending it and going on is in its first lines."""
    suspend = '{"spec": {"suspend": %s}}'
    words = ("patch", "pdj", "policies", "--type=merge", "-p")
    place.kubectl("apply", "-f", DEPLOY / "examples" / "policies.yaml")
    place.soon("pods", lambda: "policies-worker-1" in place.pods(), "policies")
    place.kubectl(*words, suspend % "true")
    place.soon("no pods", lambda: not place.pods(), "policies")
    # Its pods are removed when it is complete; the log is read before that.
    place.kubectl(*words, suspend % "false")
    place.wait_logged("policies", r"rank 0 epoch \d", seconds=SECONDS_MAX, lines=60)
    status = place.end("policies", seconds=SECONDS_MAX)
    assert status["phase"] == "Completed", f"{status}\n{place.logs_of('policies', lines=60)}"
