"""Every script of examples/ on its real framework, two ranks, through `paddock launch`.

What is checked is what the scripts computed, not that they ran.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from conftest import Done, Launch, Need

TWO = ("--nproc_per_node", "2")
RAY_SHUFFLE = Path(__file__).parents[2] / "examples" / "data" / "ray_shuffle.py"


def expect_clean(done: Done, code: int = 0) -> None:
    """The exit code is right and nothing of the job is left."""
    assert done.code == code, done.output
    assert done.left == [], f"left running: {done.left}\n{done.output}"


def expect_digits(done: Done) -> None:
    """Both ranks took part, and unseen digits were recognised."""
    expect_clean(done)
    found = re.search(r"accuracy (\d\.\d+) on 360 unseen (images|digits)", done.output)
    assert found, done.output
    assert float(found[1]) >= 0.95
    for rank in (0, 1):
        assert f"rank {rank} of 2 is up" in done.log(rank)
    assert "rank 1 of 2" not in done.log(0)


def test_paddle_digits_reach_95_percent_on_two_ranks(launch: Launch, need: Need) -> None:
    """The demo: real images, PaddlePaddle DataParallel over gloo; the user's lines, and ours."""
    need(modules=["paddle", "sklearn"])
    done = launch(*TWO, "examples/paddle_digits.py").end()
    expect_digits(done)
    lines = [line for line in done.output.splitlines() if " paddock: " not in line]
    assert lines[0] == "rank 0 of 2 is up" and lines[1].startswith("epoch 15/15  loss ")
    assert lines[2].startswith("accuracy ") and len(lines) == 3, done.output
    assert re.search(r"\d lines of framework messages in \S+/log/workerlog.0\n", done.output)
    assert "tcp_store.cc" in done.log(0) and "Modified FLAGS" in done.log(0)


def test_torch_digits_reach_95_percent_on_two_ranks(launch: Launch, need: Need) -> None:
    """What `make demo` runs where PyTorch is: the same images, DistributedDataParallel."""
    need(modules=["torch", "sklearn"])
    expect_digits(launch(*TWO, "examples/torch_digits.py").end())


def test_the_paddlejob_file_runs_the_same_training(launch: Launch, need: Need) -> None:
    """The resource meant for Kubernetes runs on a laptop; what it cannot honour is named."""
    need(modules=["paddle", "sklearn", "yaml"])  # on a cluster: tests/cluster/test_examples.py
    done = launch("-f", "examples/paddlejob.yaml").end()
    expect_digits(done)
    assert "image" in done.output


def test_fleet_ranks_agree_on_the_line(launch: Launch, need: Need) -> None:
    """fleet.init reads other variables than init_parallel_env; both must find the job."""
    need(modules=["paddle"])
    done = launch(*TWO, "examples/paddle_fleet.py").end()
    expect_clean(done)
    for rank in (0, 1):
        assert f"rank {rank} fitted y = 3.000 x + 1.000" in done.log(rank)


def test_torch_ddp_ranks_end_with_equal_weights(launch: Launch, need: Need) -> None:
    """env:// rendezvous with the variables torchrun would have set."""
    need(modules=["torch"])
    done = launch(*TWO, "examples/torch_ddp.py").end()
    expect_clean(done)
    for rank in (0, 1):
        assert f"rank {rank} fitted y = 3.000 x + 1.000" in done.log(rank)
        assert f"rank {rank}: weights equal on all ranks: True" in done.log(rank)


def test_jax_psum_adds_over_both_processes(launch: Launch, need: Need) -> None:
    """A bare jax.distributed.initialize() finds coordinator, count and index by itself."""
    need(modules=["jax"])
    done = launch(*TWO, "examples/jax_psum.py").end()
    expect_clean(done)
    for rank in (0, 1):
        assert f"rank {rank} of 2 is up" in done.log(rank)
        assert f"rank {rank}: psum 3" in done.log(rank)


def test_mpi_style_shares_add_up(launch: Launch) -> None:
    """A script that splits its work by OMPI_COMM_WORLD_RANK covers all of it once."""
    done = launch(*TWO, "examples/mpi_style.py").end()
    expect_clean(done)
    shares = [int(n) for rank in (0, 1) for n in re.findall(r"share (\d+)", done.log(rank))]
    assert sum(shares) == 5050
    assert len(shares) == 2


def test_mpi4py_starts_without_mpirun(launch: Launch, need: Need) -> None:
    """What is set for JAX and MPI-style scripts must not break a real MPI_Init."""
    need(modules=["mpi4py"], programs=["mpirun"])
    done = launch(*TWO, "examples/mpi4py_hello.py").end()
    expect_clean(done)
    for rank in (0, 1):
        assert f"rank {rank} of 2: MPI is up" in done.log(rank)


def test_a_shell_script_can_be_a_rank(launch: Launch) -> None:
    """Any executable is a script; its arguments pass through untouched."""
    done = launch(*TWO, "examples/hello.sh", "--you").end()
    expect_clean(done)
    for rank in (0, 1):
        assert f"rank {rank} of 2: hello --you, attempt 0 of job " in done.log(rank)


def saved_step(done: Done, rank: int) -> int:
    """The step this rank says it saved."""
    found = re.search(rf"rank {rank}: told to stop, saved step (\d+)", done.log(rank))
    assert found, done.output
    return int(found[1])


@pytest.mark.parametrize("stop", [signal.SIGTERM, signal.SIGINT], ids=lambda s: s.name)
def test_a_stopped_job_resumes_where_it_saved(
    launch: Launch, tmp_path: Path, stop: signal.Signals
) -> None:
    """Ctrl-C and kill alike leave the ranks time to save; the next run goes on from there."""
    script = ["examples/checkpoint_on_sigterm.py", "--dir", str(tmp_path / "checkpoint")]
    job = launch(*TWO, "--tail", "all", *script, "--steps", "100000")
    job.read_until(*(f"rank {rank} attempt 0: starting at step 0" for rank in (0, 1)))
    job.process.send_signal(stop)
    done = job.end()
    assert done.left == []
    steps = [saved_step(done, rank) for rank in (0, 1)]

    again = launch(*TWO, *script, "--steps", str(max(steps) + 2)).end()
    expect_clean(again)
    for rank in (0, 1):
        assert f"starting at step {steps[rank]}" in again.log(rank)


def test_a_crashed_job_is_restarted_from_its_checkpoint(launch: Launch, tmp_path: Path) -> None:
    """The second attempt knows that it is the second, and starts at the saved step."""
    script = ["examples/checkpoint_on_sigterm.py", "--dir", str(tmp_path / "checkpoint")]
    done = launch(
        *TWO, "--max_restart", "1", *script, "--steps", "40", "--fail-at", "20"
    ).end()  # fmt: skip
    expect_clean(done)
    assert "rank 1 crashed at step 20, as asked" in done.log(1)
    assert "rank 1 attempt 1: starting at step 20" in done.log(1)
    for rank in (0, 1):
        assert f"rank {rank} attempt 1: trained all 40 steps" in done.log(rank)


@pytest.mark.skipif(
    not all(map(importlib.util.find_spec, ("ray", "pandas"))),
    reason="Ray Data needs pandas beside Ray, for one example: pip install 'ray[data]'",
)
def test_shards_that_ray_shuffled_hold_each_line_once(tmp_path: Path) -> None:
    """Data that outgrows one machine; Ray runs here, on loopback, and is gone afterwards."""
    clicks, out = tmp_path / "clicks", tmp_path / "shuffled"
    data = [sys.executable, "-m", "paddock", "data"]
    made = ["generate", "criteo", "--out", str(clicks), "--examples", "400", "--files", "2"]
    subprocess.run([*data, *made], check=True, capture_output=True)
    parts = sorted(clicks.glob("part-*"))
    argv = [sys.executable, str(RAY_SHUFFLE), *map(str, parts)]
    argv += ["--out", str(out), "--count", "3", "--seed", "1"]
    with tempfile.TemporaryDirectory(prefix="ray-") as home:  # Its sockets' paths are short.
        env = {**os.environ, "HOME": home, "RAY_TMPDIR": home}
        done = subprocess.run(argv, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    shards = [path.read_text().splitlines() for path in sorted(out.iterdir())]
    whole = [line for part in parts for line in part.read_text().splitlines()]
    assert sorted(len(lines) for lines in shards) == [133, 133, 134]
    found = [line for lines in shards for line in lines]
    assert sorted(found) == sorted(whole) and found != whole
    checked = subprocess.run([*data, "check", str(out), "--json"], capture_output=True, check=True)
    assert json.loads(checked.stdout)["wrong"] == []
