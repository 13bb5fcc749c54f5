"""What only mpirun can get wrong: hosts that share nothing, hosts that are not there, servers."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from conformance.labs import Lab

if TYPE_CHECKING:
    from conformance.hosts import Hosts


@pytest.fixture
def lab(mpi: Hosts) -> Lab:
    """Three hosts and a directory they share."""
    words = ("-b", f"mpi,hostfile={mpi.machines}", "--root", str(mpi.shared / "jobs"))
    return Lab("mpi", mpi, words, is_shared=True)


def test_hosts_that_share_nothing_are_named_and_nothing_is_left(lab: Lab) -> None:
    """The jobs' directory is the laptop's own."""
    done = lab.submit("--root", "/root/jobs", lab.script("say('rank-is-up')\n"))
    assert done.returncode == 2
    for host in ("h1", "h2", "h3"):
        assert f"{host}: /root/jobs/" in done.stderr
    assert "the hosts do not share it" in done.stderr
    assert "--root" in done.stderr
    assert json.loads(lab.paddock("list", "--json").stdout) == []
    assert list((lab.laptop.home / "jobs").iterdir()) == []


def test_hosts_that_cannot_be_reached_are_named(lab: Lab) -> None:
    """By what ssh says of them."""
    hosts = "h1,nobody.invalid"
    words = ("-b", "mpi", "--hosts", hosts, "--root", str(lab.hosts.shared / "jobs"))
    done = lab.paddock("submit", *words, "--detach", lab.script("say('rank-is-up')\n"))
    assert done.returncode == 2
    assert "nobody.invalid" in done.stderr
    assert json.loads(lab.paddock("list", "--json").stdout) == []


def test_a_variable_that_is_not_named_does_not_reach_ranks_beside_mpirun(lab: Lab) -> None:
    """Those on this machine are its children, which inherit."""
    lab.env |= {"STRANGER": "here", "NAMED": "there"}
    names = ["STRANGER", "NAMED"]
    script = lab.script(f"say('has', [os.environ.get(name, 'no') for name in {names}])\n")
    words = ("-b", "mpi", "-n", 1, "--root", lab.hosts.shared / "jobs", "--env", "NAMED")
    done = lab.paddock("submit", *words, "--nproc_per_node", 1, script)
    assert (done.returncode, "has ['no', 'there']" in done.stdout) == (0, True), done


def test_servers_run_on_the_hosts_that_were_named(lab: Lab) -> None:
    """And trainers on the others, with the ranks of their own."""
    (lab.project / "train.py").write_text(
        "import os, time\nrole = os.environ['TRAINING_ROLE']\n"
        "print('at', role, os.uname().nodename, flush=True)\n"
        "if role == 'TRAINER':\n    time.sleep(2)\n"
    )
    job = lab.paddock("submit", *lab.words, "--detach", "--servers-on", "even", "train.py")
    assert job.returncode == 0, job.stderr
    assert lab.paddock("wait").returncode == 0
    found = sorted(line.partition("at ")[2] for line in lab.logs() if " at " in line)
    assert found == ["PSERVER h1", "PSERVER h3", "TRAINER h2"]
