"""`paddock rec` with its two files on three hosts: by ssh, with mpirun, and in Slurm's queue."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path

import pytest

from conformance.hosts import MPI, Hosts
from conformance.labs import Lab
from conformance.slurm import PROGRAMS, Slurm
from paddock.ps.storage.checkpoint import open_checkpoint
from real.conftest import need_module
from real.hosts import need_hosts

CONFIG = """\
train:
  epochs: 1
  engine: cluster
  workspace: "paddlerec.models.rank.fm"
  framework: torch
  trainer: {{strategy: sync}}
  reader:
    batch_size: 100
    train_data_path: "generated:criteo?examples=1800&files=3&seed=1"
  save:
    increment: {{dirname: {saved}, epoch_interval: 1, save_last: true}}
evaluate:
  reader:
    batch_size: 100
    test_data_path: "generated:criteo?examples=900&files=3&seed=2"
"""
BACKEND = """\
engine:
  backend: {backend}
  job_name: clicks
  options: {options}
  submit: {{server_num: 1, trainer_num: 1, nodes: 3}}
"""
JUDGED = re.compile(r"loss [\d.]+, auc [\d.]+ \(the best possible.*\)")
DONE = re.compile(r"epoch 0 done, loss [\d.]+, auc [\d.]+, 1,800 examples")


def options_of(backend: str, hosts: Hosts) -> dict[str, str]:
    """What a backend.yaml says of these hosts."""
    python = str(_python(hosts))
    if backend == "ssh":
        return {"interpreter": python, "hosts": "h1;h2;h3"}
    root = str(hosts.shared / "jobs")
    if backend == "slurm":
        need_hosts(PROGRAMS)
        Slurm(hosts)
        return {"interpreter": python, "root": root}
    need_hosts(MPI)
    return {"interpreter": python, "root": root, "hostfile": str(hosts.machines)}


def _python(hosts: Hosts) -> Path:
    """One with torch. numba would compile on each host, for minutes: all hosts are this machine."""
    path = hosts.shared / "python"
    path.write_text(
        f'#!/bin/sh\nPADDOCK_PS_NUMBA=0 exec {hosts.packages / "bin" / "python"} "$@"\n'
    )
    path.chmod(0o755)
    return path


def make_files(lab: Lab, saved: str, examples: int = 1800) -> None:
    """The two, in the project; checkpoints go to `saved`."""
    text = CONFIG.format(saved=saved).replace("examples=1800", f"examples={examples}")
    (lab.project / "config.yaml").write_text(text)
    options = options_of(lab.name, lab.hosts)
    (lab.project / "backend.yaml").write_text(BACKEND.format(backend=lab.name, options=options))


@pytest.mark.parametrize("backend", ["ssh", "mpi", "slurm"])
@pytest.mark.limit(240)
def test_the_two_files_train_on_three_hosts(hosts: Hosts, backend: str) -> None:
    """A server and a worker on each; each worker reads a file, and what is said is over all."""
    need_module("torch")
    lab = Lab(backend, hosts, (), is_shared=backend != "ssh")
    make_files(lab, saved=str(hosts.shared / "saved"))
    done = lab.paddock("rec", "-m", "config.yaml", "-b", "backend.yaml")
    assert done.returncode == 0, done.stdout + done.stderr
    status = lab.status()
    roles = sorted(rank["role"] for node in status["nodes"] for rank in node["ranks"])
    assert (status["state"], roles) == ("succeeded", ["server"] * 3 + ["worker"] * 3)
    said = "\n".join(lab.logs())
    assert len(set(DONE.findall(said))) == 1, said
    assert (hosts.shared / "saved" / "LATEST").read_text() == "step-000000000007\n"


@pytest.mark.limit(240)
def test_servers_without_a_shared_directory_save_where_the_first_worker_is(hosts: Hosts) -> None:
    """By ssh a relative one is on each host: the parts come to h1, are judged, and are fetched."""
    need_module("torch")
    lab = Lab("ssh", hosts, ())
    make_files(lab, saved="output/saved")
    done = lab.paddock("rec", "-m", "config.yaml", "-b", "backend.yaml")
    assert done.returncode == 0, done.stdout + done.stderr
    said = "\n".join(lab.logs())
    assert "servers that do not see" in said and ": 1, 2; this worker fetches" in said
    assert len(set(JUDGED.findall(said))) == 1, said
    assert lab.paddock("fetch", "last", "--to", "got").returncode == 0
    (latest,) = (lab.project / "got").rglob("LATEST")
    found = open_checkpoint(latest.parent)
    found.verify()
    assert (found.name, len(found.states)) == ("step-000000000007", 3)


@pytest.mark.limit(240)
def test_a_worker_killed_on_a_host_goes_on_where_it_was(hosts: Hosts) -> None:
    """All began at batch 0, with the tables of three servers empty, and nothing said so."""
    need_module("torch")
    lab = Lab("ssh", hosts, ())
    make_files(lab, saved="output/saved", examples=60_000)
    words = ("-m", "config.yaml", "-b", "backend.yaml", "-o", "max_restart=3")
    running = lab.laptop.start(lab.command("rec", *words), env=lab.env)
    for seen in ("that do not see", "epoch 0, batch 0,", "epoch 0, batch 100,"):
        running.wait_for(seen)
    os.kill(max(lab.ranks_alive(rb"-u\0-m\0paddock\.rec\.worker")), signal.SIGKILL)
    ended = running.end()
    assert ended.code == 0, ended.console
    said = "\n".join(lab.logs())
    assert len(re.findall(r"going on in epoch 0, [1-9]\d* batches done", said)) == 3, said
    assert "begins at batch 0" not in said
    assert "epoch 0 done, 60,000 examples; since the restart loss" in said
    assert set(re.findall(r"step-\d+", said)) == {"step-000000000201"}, said
