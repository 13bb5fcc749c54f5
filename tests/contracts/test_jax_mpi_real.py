"""One environment for a bare JAX script and for programs that call MPI_Init; decision 0002.

Real processes, started by hand with the environment the contracts give.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import socket
import subprocess
import sys

import pytest

from contracts.worlds import job
from paddock.contracts.environment import proc_env, shared_env
from paddock.core.hosts import Host
from paddock.core.plan import make_plan

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

SECONDS_MAX = 100.0


def has_module(name: str) -> bool:
    """True when the module can be imported; it is not."""
    return importlib.util.find_spec(name) is not None


def can_init_mpi() -> bool:
    """True when MPI_Init works here without any launcher."""
    if not has_module("mpi4py"):
        return False
    done = subprocess.run(
        [sys.executable, "-c", "from mpi4py import MPI"],
        capture_output=True,
        timeout=SECONDS_MAX,
        check=False,
    )
    return done.returncode == 0


HAS_MPI = can_init_mpi()
HAS_MPIRUN = shutil.which("mpirun") is not None
needs_jax = pytest.mark.skipif(not has_module("jax"), reason="jax is not installed")
needs_mpi = pytest.mark.skipif(not HAS_MPI, reason="mpi4py with an MPI library is not installed")
needs_mpirun = pytest.mark.skipif(not HAS_MPIRUN, reason="mpirun is not installed")
pytestmark = [pytest.mark.real, pytest.mark.limit(120)]

JAX = """
import jax
jax.distributed.initialize()
import jax.numpy as jnp
from jax.experimental import multihost_utils
total = multihost_utils.process_allgather(jnp.array([jax.process_index() + 1.0])).sum()
print("jax", jax.process_index(), jax.process_count(), total, flush=True)
"""
MPI = """
from mpi4py import MPI
import os
print("mpi", os.environ["OMPI_COMM_WORLD_RANK"], os.environ["OMPI_COMM_WORLD_SIZE"],
      MPI.COMM_WORLD.allreduce(1), flush=True)
"""
BOTH = JAX + "from mpi4py import MPI\nassert MPI.COMM_WORLD.allreduce(1) == 1\n"
# What srun sets for the one task in which a launcher runs. With them a plain MPI_Init of
# Open MPI 4.1 believes that srun started it, and aborts.
SLURM_STEP = {
    **dict.fromkeys(("SLURM_JOBID", "SLURM_JOB_ID", "SLURM_PROCID", "SLURM_STEP_NUM_NODES"), "1"),
    **dict.fromkeys(("SLURM_STEPID", "SLURM_STEP_ID", "SLURM_LOCALID"), "0"),
    **dict.fromkeys(("SLURM_NODELIST", "SLURM_JOB_NODELIST", "SLURM_STEP_NODELIST"), "n7"),
    "SLURM_NTASKS": "5",
}


def free_port(address: str) -> int:
    """A port that is free now."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family) as probe:
        probe.bind((address, 0))
        return int(probe.getsockname()[1])


def run_two(code: str, base: Mapping[str, str], address: str = "127.0.0.1") -> list[str]:
    """Run code as a job of two processes; returns their sorted lines starting jax or mpi."""
    here = Host(
        "here",
        address,
        slots=(("worker", 0, 2),),
        ports=(free_port(address), free_port(address)),
        service_ports=tuple(free_port(address) for _ in range(4)),
    )
    plan = make_plan(job(), (here,), 0)
    shared = shared_env(
        base, job(), plan, node_rank=0, cores=2, log_dir="/tmp", run_dir="/tmp", pod_name="p"
    )
    running = [
        subprocess.Popen(
            [sys.executable, "-c", code],
            env=proc_env(shared, proc)[0],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for proc in plan.procs
    ]
    try:
        outputs = [each.communicate(timeout=SECONDS_MAX)[0] for each in running]
    finally:
        for each in running:
            each.kill()
            each.wait()
    assert [each.returncode for each in running] == [0, 0], "\n".join(outputs)
    lines = [line for text in outputs for line in text.splitlines()]
    return sorted(line for line in lines if line.startswith(("jax ", "mpi ")))


@needs_jax
def test_a_bare_jax_script_finds_its_world() -> None:
    """jax.distributed.initialize() without arguments, as on a cluster it knows."""
    assert run_two(JAX, os.environ) == ["jax 0 2 3.0", "jax 1 2 3.0"]


@needs_jax
def test_a_bare_jax_script_finds_its_world_over_ipv6() -> None:
    """jax's own reading of the uri forgets the brackets; the coordinator address must win."""
    try:
        free_port("::1")
    except OSError:
        pytest.skip("this machine has no IPv6 loopback")
    assert run_two(JAX, os.environ, "::1") == ["jax 0 2 3.0", "jax 1 2 3.0"]


@needs_mpi
def test_a_program_that_calls_mpi_init_runs_under_the_same_environment() -> None:
    """Each process is an MPI world of its own; its rank in the job stands in the environment."""
    assert run_two(MPI, os.environ) == ["mpi 0 2 1", "mpi 1 2 1"]


@needs_jax
@needs_mpi
def test_one_script_may_use_both() -> None:
    """A JAX script that uses mpi4py for nothing but its local buffers."""
    assert run_two(BOTH, os.environ) == ["jax 0 2 3.0", "jax 1 2 3.0"]


@needs_jax
@needs_mpi
def test_an_outer_slurm_step_changes_nothing() -> None:
    """srun around the launcher: jax must not take its ranks, nor MPI_Init wait for its PMI."""
    assert run_two(BOTH, {**os.environ, **SLURM_STEP}) == ["jax 0 2 3.0", "jax 1 2 3.0"]


@needs_mpi
@needs_mpirun
def test_an_outer_mpirun_changes_nothing() -> None:
    """mpirun around the launcher, one per node: its PMIx server belongs to the launcher alone."""
    asked = subprocess.run(
        ["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", "1", "env"],
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=True,
    )
    outer = dict(
        line.split("=", 1) for line in asked.stdout.splitlines() if line.startswith(("OMPI", "PM"))
    )
    assert outer  # else this test proves nothing
    assert run_two(MPI, {**os.environ, **outer}) == ["mpi 0 2 1", "mpi 1 2 1"]
