"""`paddock rec -m config.yaml -b backend.yaml` on real nodes: the two files of examples/rec.

With the demo image (PaddlePaddle and paddock, no numba); each worker makes its data. The command
stays with the job and ends with its code. And the two files of PaddleRec's page about clusters.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from cluster.conftest import new_namespace
from cluster.jobs import Place
from paddock import __version__

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cluster.control.cluster import Cluster
    from cluster.control.operators import Operator

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "rec"
FILES = "generated:criteo?files=2&examples="
SMALL = (
    "-o", f"train_data_dir={FILES}20000&seed=1", "-o", f"test_data_dir={FILES}4000&seed=2",
)  # fmt: skip
IMAGE = f"localhost/paddock-demo:{__version__}"
# What PaddleRec's page writes, but for the image and the sizes of what is made of it here.
CONFIG_OF_PADDLEREC = """\
train:
  epochs: 2
  # engine: single
  engine: cluster
  workspace: "paddlerec.models.rank.dnn"

  trainer:
    # for cluster training
    strategy: "async"
    threads: 2
"""
BACKEND_OF_PADDLEREC = f"""\
engine:
  backend: "k8s"
  job_name: "k8s-ctr-dnn"

  submit:
    server_num: 2
    trainer_num: 2
    docker_image: "{IMAGE}"
    memory: "2Gi"
    storage: "1Gi"
    log_level: 0
"""
LIMIT_SECONDS = 420.0
STEP = re.compile(r"epoch 0, batch \d+, loss [\d.]+, auc [\d.]+, [\d,]+ examples/s")
# Of worker 0; and of the other, which does not see the checkpoints.
JUDGED = re.compile(r"(?:step-\d+|checkpoint 1 of 1), loss [\d.]+, auc ([\d.]+)")
DONE = re.compile(r"epoch 1 done, loss ([\d.]+), auc ([\d.]+)")


class Desk:
    """A user with the two files, and a namespace."""

    def __init__(self, folder: Path, place: Place, kubeconfig: Path) -> None:
        self.place = place
        self.folder = folder / "job"
        shutil.copytree(EXAMPLE, self.folder)
        backend = self.folder / "backend.yaml"
        backend.write_text(re.sub(r"localhost/paddock-demo:[\d.]+", IMAGE, backend.read_text()))
        self.env = {
            "PATH": os.environ["PATH"], "HOME": str(folder), "KUBECONFIG": str(kubeconfig),
            "XDG_STATE_HOME": str(folder / "state"), "PYTHONPATH": str(ROOT / "src"),
        }  # fmt: skip

    def paddock(self, *words: str) -> subprocess.CompletedProcess[str]:
        """A command, to its end."""
        return subprocess.run(
            [sys.executable, "-m", "paddock", *words], cwd=self.folder, env=self.env,
            capture_output=True, text=True, timeout=LIMIT_SECONDS, check=False,
        )  # fmt: skip

    def rec(self, *more: str, form: str = "job") -> subprocess.CompletedProcess[str]:
        """`paddock rec` with both files."""
        where = f"backend.yaml,form={form},namespace={self.place.namespace}"
        engine = ("-o", "engine=cluster")
        return self.paddock("rec", "-m", "config.yaml", "-b", where, *engine, *SMALL, *more)

    def status(self) -> dict[str, Any]:
        """Of the last job."""
        found: dict[str, Any] = json.loads(self.paddock("status", "last", "--json").stdout)
        return found


@pytest.fixture
def desk(cluster: Cluster, large_images: None, tmp_path: Path) -> Iterator[Desk]:
    with new_namespace(cluster.plane) as namespace:
        yield Desk(tmp_path, Place(cluster.plane, namespace), cluster.kubeconfig)


@pytest.mark.limit(480)
def test_the_two_files_train_on_the_cluster(desk: Desk) -> None:
    """One server, two workers; a line of progress, and an AUC over both workers at the end."""
    done = desk.rec()
    assert done.returncode == 0, done.stdout + done.stderr
    status = desk.status()
    assert status["state"] == "succeeded"
    roles = sorted(rank["role"] for node in status["nodes"] for rank in node["ranks"])
    assert roles == ["server", "worker", "worker"]
    said = desk.paddock("logs", "last").stdout
    assert STEP.search(said), said
    found = DONE.findall(said)
    assert len(found) == 2 and found[0] == found[1], said  # of both workers, over both
    assert float(found[0][1]) > 0.53, said


@pytest.mark.limit(480)
def test_servers_in_pods_of_their_own_save_a_model_that_scores(
    desk: Desk, operator: Operator
) -> None:
    """Without a volume. Before the first batch all of them refused the directory of worker 0."""
    (desk.folder / "config.yaml").write_text(CONFIG_OF_PADDLEREC)
    (desk.folder / "backend.yaml").write_text(BACKEND_OF_PADDLEREC)
    judge = ("-o", "framework=paddle", "-o", "evaluate.evaluate_model_path=output_model_dnn")
    done = desk.rec(*judge, form="paddlejob,cpu=300m")  # Two threads would be two processors.
    assert done.returncode == 0, done.stdout + done.stderr
    assert "output_model_dnn: worker 0's pod writes this on its own disk" in done.stderr
    status = desk.status()
    roles = sorted(rank["role"] for node in status["nodes"] for rank in node["ranks"])
    assert (status["state"], roles) == ("succeeded", ["server"] * 2 + ["worker"] * 2)
    said = desk.paddock("logs", "last").stdout
    assert "servers that do not see output_model_dnn: 0, 1; this worker fetches" in said, said
    scores = JUDGED.findall(said)
    assert len(scores) == 2 and scores[0] == scores[1], said
    assert float(scores[0]) > 0.53, said


def test_what_is_wrong_with_the_files_is_said_before_anything_is_made(desk: Desk) -> None:
    """Exit code 2, and no object in the namespace."""
    (desk.folder / "config.yaml").write_text(
        (desk.folder / "config.yaml").read_text().replace('"async"', '"asink"')
    )
    done = desk.rec()
    assert done.returncode == 2
    assert "asink" in done.stderr
    assert desk.place.pods() == {}
