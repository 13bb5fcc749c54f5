"""examples/word2vec as its README has it, on this machine: alone, two trainers, mpirun.

On three hosts: tests/conformance/test_word2vec_on_hosts.py.
"""

from __future__ import annotations

import json
import math
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from real.conftest import ROOT, marked_pids

if TYPE_CHECKING:
    from collections.abc import Iterator

    from real.conftest import Need

EXAMPLE = ROOT / "examples" / "word2vec"
MARK = "TEST_JOB_MARK"
LIMIT_SECONDS = 100.0


def run(folder: Path, *words: object, **more: str) -> subprocess.CompletedProcess[str]:
    """A command in the workspace."""
    env = {
        **os.environ, "PYTHONPATH": str(ROOT / "src"), MARK: str(folder),
        "OMP_NUM_THREADS": "1", **more,
    }  # fmt: skip
    return subprocess.run(
        list(map(str, words)), cwd=folder, env=env, capture_output=True, text=True,
        timeout=LIMIT_SECONDS, check=False,
    )  # fmt: skip


def make_workspace(folder: Path, shards: int, sentences: int = 2000) -> int:
    """What prepare.py makes of generated sentences; the number of words."""
    python = (sys.executable, "-m", "paddock", "data", "generate", "words")
    done = run(folder, *python, "--out", "sentences", "--examples", sentences, "--vocab", 500)
    assert done.returncode == 0, done.stderr
    told = ("--split_count", shards, "--min_count", 20 if sentences > 1000 else 1)
    done = run(folder, sys.executable, EXAMPLE / "prepare.py", "sentences", *told)
    assert done.returncode == 0, done.stderr
    found = json.loads((folder / "word_dict.json").read_text())
    assert found["<unk>"] == len(found) - 1
    return len(found)


def losses(text: str) -> list[float]:
    """The last test loss of every trainer."""
    return [float(found) for found in re.findall(r"trainer \d+ test ([\d.]+)", text)]


@pytest.fixture
def folder(tmp_path: Path, need: Need) -> Iterator[Path]:
    """An empty directory; what runs for it is ended."""
    need(modules=["torch", "numpy"])
    yield tmp_path
    for pid in marked_pids(str(tmp_path)):
        os.kill(pid, signal.SIGKILL)


def test_alone_it_learns_and_plain_torch_loads_the_words(folder: Path) -> None:
    """One trainer reads all shards; its words are in the file, not only on servers.

    torch's compiler, a second and 150 MB, is not imported for it.
    """
    words = make_workspace(folder, 3)
    script = f"import runpy, sys; runpy.run_path({str(EXAMPLE / 'train.py')!r}, None, '__main__')"
    light = f"{script}; assert 'torch._dynamo' not in sys.modules"
    done = run(folder, sys.executable, "-c", light, "--passes", 5)
    assert done.returncode == 0, done.stderr
    (loss,) = losses(done.stdout)
    assert loss < 0.8 * math.log(words), done.stdout
    assert "reads train.txt-00000 train.txt-00001 train.txt-00002" in done.stdout
    code = "import torch; print(*torch.load('output/ngram.pt')['words.weight'].shape)"
    assert run(folder, sys.executable, "-c", code).stdout.split() == [str(words), "32"]


def test_two_trainers_learn_together_each_from_its_own_shard(folder: Path) -> None:
    """Half of the examples each; the loss of both is that of one model."""
    words = make_workspace(folder, 2)
    launch = (sys.executable, "-m", "paddock", "launch", "--server_num", 1, "--worker_num", 2)
    done = run(folder, *launch, "--tail", "all", EXAMPLE / "train.py", "--passes", 5)
    assert done.returncode == 0, done.stdout + done.stderr
    for trainer in (0, 1):
        assert f"trainer {trainer} of 2 reads train.txt-0000{trainer}\n" in done.stdout
    found = losses(done.stdout)
    assert len(found) == 2 and max(found) < 0.8 * math.log(words), done.stdout
    assert abs(found[0] - found[1]) < 0.3
    assert marked_pids(str(folder)) == []


def test_under_mpirun_without_servers_it_ends_with_an_error(folder: Path, need: Need) -> None:
    """The old scripts learnt alone then, each from its own shard, and nobody noticed."""
    need(programs=["mpirun"])
    make_workspace(folder, 2, sentences=100)
    env = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    mpirun = ("mpirun", "--oversubscribe", "-n", 2, sys.executable, EXAMPLE / "train.py")
    done = run(folder, *mpirun, **env)
    assert done.returncode != 0
    assert "PADDLE_PSERVERS_IP_PORT_LIST" in done.stderr
    assert losses(done.stdout) == []


def test_under_mpirun_it_finds_servers_by_the_environment(folder: Path, need: Need) -> None:
    """No launcher of ours: the rank is Open MPI's. What they learn is seen above."""
    need(programs=["mpirun"])
    make_workspace(folder, 2, sentences=100)
    serve = [sys.executable, "-m", "paddock", "pserver", "--port", "0"]
    serve += ["--num_gradient_servers", "2", "--end-with-trainers", "yes"]
    env = {**os.environ, "PYTHONPATH": str(ROOT / "src"), MARK: str(folder)}
    with subprocess.Popen(serve, env=env, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        ready = re.search(r"ready on ([\d.:]+)", server.stdout.readline())
        assert ready is not None
        mpirun = ("mpirun", "--oversubscribe", "-n", 2, sys.executable, EXAMPLE / "train.py")
        done = run(
            folder, *mpirun, "--passes", 1, PADDLE_PSERVERS_IP_PORT_LIST=ready[1],
            OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert server.wait(LIMIT_SECONDS) == 0
    assert len(losses(done.stdout)) == 2, done.stdout


def test_more_trainers_than_shards_are_told_so(folder: Path) -> None:
    """A trainer without data would leave its part undone."""
    make_workspace(folder, 2, sentences=100)
    env = {"OMPI_COMM_WORLD_RANK": "2", "OMPI_COMM_WORLD_SIZE": "3"}
    done = run(folder, sys.executable, EXAMPLE / "train.py", **env)
    assert done.returncode == 1
    assert "no shard of train_data_dir is its own" in done.stderr
