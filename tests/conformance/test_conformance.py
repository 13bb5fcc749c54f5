"""What holds on every backend: one suite, each test on each of them."""

from __future__ import annotations

import json
import os
import signal
from shutil import copytree
from typing import TYPE_CHECKING

import pytest

from conformance.labs import Lab, secrets_in
from local.jobs import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

    from conformance.hosts import Hosts

FAR = "time.sleep(3600)\n"
# Every trainer adds 1 to each row, five times; rows that are read are those of the step before.
TABLE = """\
import numpy as np
import paddock
from paddock.ps import Client, InitialSpec, OptimizerSpec, SparseSpec
keys = np.arange(100)
with Client(strategy="sync") as client:
    kind = OptimizerSpec("sgd", 1.0), InitialSpec("zeros")
    client.create(SparseSpec("rows", 2, *kind, merge="sum"))
    for step in range(5):
        client.push("rows", keys, -np.ones((100, 2), np.float32))
        client.step()
    found = np.unique(client.pull("rows", keys)).tolist()
    say("learned", found, len(os.environ["PADDLE_PSERVERS_IP_PORT_LIST"].split(",")))
"""


def ssh_lab(hosts: Hosts, _request: pytest.FixtureRequest) -> Lab:
    return Lab(
        "ssh", hosts, ("-b", "ssh,hosts=h1,h2,h3,connect_timeout=3"), follows=("killed", "cut")
    )


def mpi_lab(hosts: Hosts, request: pytest.FixtureRequest) -> Lab:
    request.getfixturevalue("mpi")
    root = hosts.shared / "jobs"
    words = ("-b", "mpi", "--hostfile", str(hosts.machines), "--root", str(root))
    return Lab("mpi", hosts, words, is_shared=True, on_laptop=True, follows=("killed",))


def slurm_lab(hosts: Hosts, request: pytest.FixtureRequest) -> Lab:
    request.getfixturevalue("slurm")
    words = ("-b", "slurm,requeues=0", "-n", "3", "--root", str(hosts.shared / "jobs"))
    return Lab("slurm", hosts, words, is_shared=True, secret_files=("env", "token"))


LABS: dict[str, Callable[[Hosts, pytest.FixtureRequest], Lab]] = {
    "ssh": ssh_lab,
    "mpi": mpi_lab,
    "slurm": slurm_lab,
}


@pytest.fixture(params=LABS)
def lab(request: pytest.FixtureRequest, hosts: Hosts) -> Lab:
    """Three hosts, with one backend over them."""
    return LABS[request.param](hosts, request)


def test_every_rank_gets_its_place(lab: Lab) -> None:
    """Six ranks on three hosts, and all know where they are."""
    script = lab.script(
        "say('at', RANK, WORLD, os.environ['PADDLE_LOCAL_RANK'], os.uname().nodename,"
        " os.environ['PADDLE_TRAINER_ENDPOINTS'].count(','), sys.argv[1:])\n"
    )
    lab.submitted(script, "--lr", "0.1", "two words", "$(id)", "q'\"q", "中文")
    assert lab.paddock("wait").returncode == 0
    lines = sorted(line.partition("] ")[2] for line in lab.logs() if "] at " in line)
    args = "['--lr', '0.1', 'two words', '$(id)', 'q\\'\"q', '中文']"
    assert len(lab.paddock("logs", "last", "-n", 2).stdout.splitlines()) == 2
    assert lines == [f"at {r} 6 {r % 2} h{r // 2 + 1} 5 {args}" for r in range(6)]


def test_the_first_failure_is_named_and_ends_all(lab: Lab) -> None:
    """The job's code is the rank's, and status says which one, where."""
    text = f"if RANK == 3:\n    time.sleep(0.5)\n    sys.exit(7)\n{FAR}"
    lab.submitted(lab.script(text))
    assert lab.paddock("wait").returncode == 7
    status = lab.status()
    assert (status["state"], status["code"]) == ("failed", 7)
    assert "worker 3" in status["why"] and "h2" in status["why"]
    wait_until(lambda: not lab.ranks_alive())


@pytest.mark.parametrize("now", [False, True], ids=["asked", "now"])
def test_stop_ends_every_rank(lab: Lab, now: bool) -> None:
    """Asked, they may save; at once, nobody is asked."""
    text = (
        "def save(*_):\n    say('saved', RANK)\n    sys.exit(0)\n"
        f"signal.signal(signal.SIGTERM, save)\nsay('rank-is-up')\n{FAR}"
    )
    job = lab.submitted(lab.script(text))
    wait_until(lambda: len([line for line in lab.logs(job) if line.endswith("rank-is-up")]) == 6)
    assert lab.paddock("stop", job, *(["--now"] if now else [])).returncode == 0
    assert lab.until("cancelled", job=job)["state"] == "cancelled"
    wait_until(lambda: not lab.ranks_alive())
    saved = [line for line in lab.logs(job) if "saved" in line]
    assert len(saved) == 6 or now


def test_a_lost_host_ends_the_job(lab: Lab) -> None:
    """And the others do not train on alone."""
    lab.submitted("--lease", 2, lab.script(FAR))
    lab.until_up(6)
    lab.hosts[1].kill()
    status = lab.until("failed", "lost")
    assert "h2" in status["why"] or "node 1" in status["why"]
    wait_until(lambda: not lab.ranks_alive())


def test_a_detached_job_outlives_the_laptop(lab: Lab) -> None:
    """Also one that is started again: the registry knows, and logs go on."""
    job = lab.submitted(lab.script("say('rank-is-up')\n" + FAR))
    lab.until_up(6, job)
    registry = lab.laptop.home / ".local" / "state"
    kept = {path: path.read_bytes() for path in registry.rglob("*") if path.is_file()}
    lab.laptop.kill()
    lab.laptop.boot()
    if lab.on_laptop:
        assert lab.status(job)["state"] == "lost"
        wait_until(lambda: not lab.ranks_alive())
        return
    for path, content in kept.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    assert lab.status(job)["ranks_up"] == 6
    assert len([line for line in lab.logs(job) if line.endswith("rank-is-up")]) == 6
    assert lab.paddock("stop", job, "--now").returncode == 0
    wait_until(lambda: not lab.ranks_alive())


@pytest.mark.parametrize("how", ["killed", "cut"])
def test_an_attached_job_ends_with_its_submitter(lab: Lab, how: str) -> None:
    """Whatever becomes of the laptop; where the backend can tell. Elsewhere it goes on."""
    running = lab.stay(lab.script("say('rank-is-up')\n" + FAR))
    running.wait_for("rank-is-up")
    if how == "killed":
        os.kill(running.pid, signal.SIGKILL)
    else:
        lab.laptop.cut_cable()
    if how in lab.follows:
        wait_until(lambda: not lab.ranks_alive())
    else:
        assert len(lab.ranks_alive()) == 6


def test_ctrl_c_ends_an_attached_job(lab: Lab) -> None:
    """The code says so."""
    running = lab.stay(lab.script("say('rank-is-up')\n" + FAR))
    running.wait_for("rank-is-up")
    os.kill(running.pid, signal.SIGINT)
    ended = running.end()
    assert ended.code in (130, 143)
    wait_until(lambda: not lab.ranks_alive())


def test_a_name_in_use_is_refused(lab: Lab) -> None:
    """And can be taken over."""
    script = lab.script(FAR)
    lab.submitted("--name", "mine", script)
    again = lab.submit("--name", "mine", script)
    assert again.returncode == 2
    assert "the name 'mine' is in use" in again.stderr and "--replace" in again.stderr
    assert lab.submit("--name", "mine", "--replace", script).returncode == 0
    lab.until_up(6)
    assert len(lab.ranks_alive()) == 6


def test_one_of_four_laptops_gets_the_name(lab: Lab) -> None:
    """They know nothing of one another, and submit at once."""
    words = ("submit", *lab.words, "-d", "--nproc_per_node", 1, "--name", "it", lab.script(FAR))
    homes = [{"XDG_STATE_HOME": f"/root/state{number}"} for number in range(4)]
    running = [lab.laptop.start(lab.command(*words), env=home) for home in homes]
    assert sorted(each.process.wait() for each in running) == [0, 2, 2, 2]
    wait_until(lambda: len(lab.ranks_alive()) == 3)


def test_a_bad_interpreter_is_named_and_nothing_is_left(lab: Lab) -> None:
    """Before anything has started, where the hosts can be asked before; else by the job's end."""
    done = lab.submit("--interpreter", "/no/such/python", lab.script(FAR))
    if lab.is_shared and done.returncode == 0:
        assert lab.paddock("wait").returncode not in (0, 143)
        assert "/no/such/python" in lab.status()["why"]
        return
    assert done.returncode == 2, done
    assert "/no/such/python" in done.stderr
    wait_until(lambda: not lab.ranks_alive())
    assert json.loads(lab.paddock("list", "--json").stdout) == []


def test_no_secret_is_in_any_file(lab: Lab) -> None:
    """Neither the job's key nor what --env says."""
    text = "say('long', len(os.environ['SECRET']))\n"
    lab.submitted("--env", "SECRET=hush-hush", lab.script(text + FAR))
    lab.until_up(6)
    folders = [lab.laptop.home / ".local", *(host.home for host in lab.hosts)]
    folders.append(lab.hosts.shared)
    found = secrets_in(folders, "hush-hush")
    assert all(path.name in lab.secret_files for path in found), found
    assert all(path.stat().st_mode & 0o077 == 0 for path in found)
    assert lab.paddock("stop", "last").returncode == 0
    lab.until("cancelled")
    assert secrets_in(folders, "hush-hush") == []


def test_nothing_is_left_after_delete(lab: Lab) -> None:
    """No process, no directory, no entry."""
    job = lab.submitted(lab.script("say('done')\n"))
    assert lab.paddock("wait", job).returncode == 0
    assert lab.paddock("delete", job).returncode == 0
    assert json.loads(lab.paddock("list", "--json").stdout) == []
    roots = [host.home / "paddock" / "jobs" for host in lab.hosts]
    for root in [*roots, lab.hosts.shared / "jobs"]:
        assert not list(root.glob("[a-z]*"))


def test_servers_train_a_table_on_hosts_that_have_numpy_only(lab: Lab) -> None:
    """Ours, from the launcher's own archive: hosts have neither paddock nor numba nor xxhash.

    Found in the script, asked for, or in a workspace whose script is not seen from the laptop.
    """
    script = lab.script(TABLE)
    words = {"ssh": [], "mpi": ["--server_script", "pserver"], "slurm": []}[lab.name]
    if lab.name == "slurm":
        copytree(lab.project, lab.hosts.shared / "work")
        (lab.project / script).unlink()
        words = ["--workspace", lab.hosts.shared / "work"]
    lab.submitted(
        "--server_num", 1, "--interpreter", lab.hosts.make_python("numpy"), *words, script
    )
    assert lab.paddock("wait").returncode == 0, lab.paddock("logs").stdout
    told = [line.partition("] ")[2] for line in lab.logs() if "] learned " in line]
    assert told == ["learned [30.0] 3"] * 6


def test_hosts_without_numpy_are_named_before_anything_starts(lab: Lab) -> None:
    """All at once, with what to do; a batch system cannot ask its hosts before the job is there."""
    python = lab.hosts.make_python()
    words = ["--server_num", 1, "--server_script", "pserver", "--interpreter", python]
    done = lab.submit(*words, lab.script(FAR))
    if lab.name == "slurm":
        assert lab.paddock("wait").returncode == 2
        assert f": there is no numpy ({python}); the parameter server needs" in lab.status()["why"]
        return
    assert done.returncode == 2, done
    assert [f"{host.name}: there is no numpy" in done.stderr for host in lab.hosts] == [True] * 3
    assert "-m pip install 'numpy>=1.26'" in done.stderr and "--interpreter" in done.stderr
    assert json.loads(lab.paddock("list", "--json").stdout) == []
    roots = [host.home / "paddock" / "jobs" for host in lab.hosts]
    assert not [each for root in [*roots, lab.hosts.shared / "jobs"] for each in root.glob("*")]
    wait_until(lambda: not lab.ranks_alive(rb"python"))
