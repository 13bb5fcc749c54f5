"""examples/word2vec on three hosts, as its README has it: by ssh, and with mpirun."""

from __future__ import annotations

import json
import math
import re
import shutil
import subprocess
import sys

import pytest

from conformance.hosts import MPI, Hosts
from conformance.labs import Lab
from local.jobs import ROOT
from real.conftest import need_module
from real.hosts import need_hosts

EXAMPLE = ROOT / "examples" / "word2vec"
DATA = ("--data", "train_data_dir/train.txt-*", "--data", "test_data_dir/test.txt-*")
ROLES = ("--server_num", 1, "--worker_num", 1)


def make_workspace(lab: Lab) -> int:
    """Generated sentences, prepared for three trainers; the number of words."""
    for words in (
        ("-m", "paddock", "data", "generate", "words", "--out", "sentences", "--examples",
         "4000", "--vocab", "500"),
        (str(EXAMPLE / "prepare.py"), "sentences", "--min_count", "20"),
    ):  # fmt: skip
        done = subprocess.run(
            [sys.executable, *words], cwd=lab.project, env={"PYTHONPATH": str(ROOT / "src")},
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
    shutil.copy(EXAMPLE / "train.py", lab.project)
    return len(json.loads((lab.project / "word_dict.json").read_text()))


@pytest.mark.parametrize("backend", ["ssh", "mpi"])
@pytest.mark.limit(240)
def test_three_hosts_learn_one_model(hosts: Hosts, backend: str) -> None:
    """A server and a trainer on each; by ssh each host has its own shard only."""
    need_module("torch")
    words = ("--hosts", "h1,h2,h3")
    if backend == "mpi":
        need_hosts(MPI)
        root = str(hosts.shared / "jobs")
        words = ("-b", f"mpi,hostfile={hosts.machines}", "--root", root)
    lab = Lab(backend, hosts, words, is_shared=backend == "mpi")
    count = make_workspace(lab)
    told = ("--interpreter", hosts.packages / "bin" / "python")  # torch is there
    data = DATA if backend == "ssh" else ()
    # All hosts are this machine, and numba would compile on each of them.
    told += ("--env", "OMP_NUM_THREADS=1", "--env", "PADDOCK_PS_NUMBA=0")
    done = lab.paddock(
        "submit", *lab.words, "--detach", *told, *ROLES, *data, "train.py", "--passes", 8
    )
    assert done.returncode == 0, done.stderr
    assert lab.paddock("wait").returncode == 0, lab.paddock("logs").stdout
    said = lab.paddock("logs").stdout
    for trainer in range(3):
        assert f"trainer {trainer} of 3 reads train.txt-0000{trainer}\n" in said
    found = [float(loss) for loss in re.findall(r"trainer \d test ([\d.]+)", said)]
    assert len(found) == 3 and max(found) < 0.85 * math.log(count), said
    assert lab.paddock("fetch", "last", "--to", "got").returncode == 0
    assert list((lab.project / "got").rglob("ngram.pt"))
