"""What only mpirun can get wrong: hosts that share nothing, hosts that are not there, servers."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from conformance.labs import Lab
from local.jobs import wait_until

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


def test_at_once_is_heard_after_a_stop_that_waits(lab: Lab) -> None:
    """The ranks do not end when they are asked."""
    ignores = "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    lab.submitted("--grace", 600, lab.script(f"{ignores}say('rank-is-up')\ntime.sleep(3600)\n"))
    lab.until_up(6)
    assert lab.paddock("stop", "last").returncode == 0
    lab.until("stopping")
    assert lab.paddock("stop", "last", "--now").returncode == 0
    lab.until("cancelled")
    wait_until(lambda: not lab.ranks_alive())


def test_what_mpirun_complains_of_is_one_error(lab: Lab) -> None:
    """It writes two lines of an option that it does not know, and starts nothing."""
    words = ("-b", f"mpi,hostfile={lab.hosts.machines},mpirun_args=--nosuch", *lab.words[2:])
    done = lab.paddock("submit", *words, "--detach", lab.script("say('rank-is-up')\n"))
    assert done.returncode == 2
    assert done.stderr.count("error: ") == 1 and "--nosuch" in done.stderr, done.stderr


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


def test_a_killed_daemon_has_failed_the_job_and_nobody_asked_it_to_stop(lab: Lab) -> None:
    """The daemon holds mpirun on the submitting machine; what it started ends."""
    running = lab.stay(lab.script("say('rank-is-up')\ntime.sleep(3600)\n"))
    running.wait_for("rank-is-up")
    [state] = (lab.hosts.shared / "jobs").glob("train-*/.paddock/state.json")
    lab.laptop.run(["kill", "-9", str(json.loads(state.read_text())["process"]["pid"])])
    ended = running.end()
    assert ended.code == 125
    status = lab.until("failed")
    assert status["code"] == 125
    assert status["why"].endswith("is lost: the daemon of its job was killed")
    wait_until(lambda: not lab.ranks_alive())


def test_an_attached_job_whose_submitter_was_killed_has_failed(lab: Lab) -> None:
    """As over ssh: in those words, and not as one that was told to stop."""
    running = lab.stay(lab.script("say('rank-is-up')\ntime.sleep(3600)\n"))
    running.wait_for("rank-is-up")
    running.signal(signal.SIGKILL)
    status = lab.until("failed")
    assert status["code"] == 125
    assert "lost its connection to paddock submit; an attached job ends" in status["why"]
    wait_until(lambda: not lab.ranks_alive())


@pytest.mark.parametrize(("name", "number"), [("orted", 1), ("mpirun", -1)])
def test_a_killed_part_of_mpirun_has_failed_the_job(lab: Lab, name: str, number: int) -> None:
    """mpirun tells the launchers to end; the status tells that nobody else did, and who is lost."""
    running = lab.stay(lab.script("say('rank-is-up')\ntime.sleep(3600)\n"))
    running.wait_for("rank-is-up")
    host = lab.hosts[number] if number >= 0 else lab.laptop
    [pid] = [p for p in host.guests() if Path(f"/proc/{p}/comm").read_text().strip() == name]
    os.kill(pid, signal.SIGKILL)
    ended = running.end()
    status = lab.until("failed")
    assert ended.code == status["code"] == (125 if name == "orted" else 137)
    lost = "node h2 is lost: mpirun's daemon there was killed, or cannot be reached"
    dead = "mpirun ended with 137, and the job with it; nobody told it to stop"
    assert status["why"] == (lost if name == "orted" else dead)
    wait_until(lambda: not lab.ranks_alive())
