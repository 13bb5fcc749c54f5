"""`paddock rec -m config.yaml -b backend.yaml` on real nodes: the two files of examples/rec.

A server and two workers with the demo image (PaddlePaddle and paddock, no numba); each worker makes
its data. The command stays with the job and ends with its code.
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

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "rec"
FILES = "generated:criteo?files=2&examples="
SMALL = (
    "-o", f"train.reader.train_data_path={FILES}20000&seed=1",
    "-o", f"evaluate.reader.test_data_path={FILES}4000&seed=2",
)  # fmt: skip
LIMIT_SECONDS = 420.0
STEP = re.compile(r"epoch 0, batch \d+, loss [\d.]+, auc [\d.]+, [\d,]+ examples/s")
DONE = re.compile(r"epoch 1 done, loss ([\d.]+), auc ([\d.]+)")


class Desk:
    """A user with the two files, and a namespace."""

    def __init__(self, folder: Path, place: Place, kubeconfig: Path) -> None:
        self.place = place
        self.folder = folder / "job"
        shutil.copytree(EXAMPLE, self.folder)
        backend = self.folder / "backend.yaml"
        image = f"localhost/paddock-demo:{__version__}"
        backend.write_text(re.sub(r"localhost/paddock-demo:[\d.]+", image, backend.read_text()))
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

    def rec(self, *more: str) -> subprocess.CompletedProcess[str]:
        """`paddock rec` with both files."""
        where = f"backend.yaml,form=job,namespace={self.place.namespace}"
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


def test_what_is_wrong_with_the_files_is_said_before_anything_is_made(desk: Desk) -> None:
    """Exit code 2, and no object in the namespace."""
    (desk.folder / "config.yaml").write_text(
        (desk.folder / "config.yaml").read_text().replace('"async"', '"asink"')
    )
    done = desk.rec()
    assert done.returncode == 2
    assert "asink" in done.stderr
    assert desk.place.pods() == {}
