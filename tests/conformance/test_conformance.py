"""What holds on every backend, on those whose hosts are made here."""

from __future__ import annotations

import json
from shutil import copytree
from typing import TYPE_CHECKING

import pytest

from conformance.labs import Lab
from conformance.properties import *  # noqa: F403 - one text of each property
from conformance.properties import FAR
from local.jobs import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

    from conformance.hosts import Hosts

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

FUNCTION = """\
import sys, time, paddock
flags = sys.argv[1:]

def train(scale):
    paddock.report(step=1, loss=0.5)
    return paddock.rank() * scale, paddock.world_size()

def fail():
    if paddock.rank() == 3:
        raise KeyError("no such row")
    time.sleep(60)

print(paddock.submit(train, 2, nproc=2, flags=flags).results(60))
try:
    paddock.submit(fail, nproc=2, flags=flags).wait(60)
except paddock.RankFailedError as error:
    print(error.rank, error.consequences, repr(error.__cause__))
"""


def ssh_lab(hosts: Hosts, _request: pytest.FixtureRequest) -> Lab:
    words = ("-b", "ssh,hosts=h1,h2,h3,connect_timeout=6")
    return Lab("ssh", hosts, words, asks_first=True, follows=("killed", "cut"))


def mpi_lab(hosts: Hosts, request: pytest.FixtureRequest) -> Lab:
    request.getfixturevalue("mpi")
    root = hosts.shared / "jobs"
    words = ("-b", "mpi", "--hostfile", str(hosts.machines), "--root", str(root))
    return Lab("mpi", hosts, words, is_shared=True, on_laptop=True, follows=("killed",))


def slurm_lab(hosts: Hosts, request: pytest.FixtureRequest) -> Lab:
    request.getfixturevalue("slurm")
    words = ("-b", "slurm,requeues=0", "-n", "3", "--root", str(hosts.shared / "jobs"))
    spools = (hosts.folder / "slurm", hosts.folder / "log")
    return Lab("slurm", hosts, words, is_shared=True, secret_files=("env", "token"), spools=spools)


LABS: dict[str, Callable[[Hosts, pytest.FixtureRequest], Lab]] = {
    "ssh": ssh_lab,
    "mpi": mpi_lab,
    "slurm": slurm_lab,
}


@pytest.fixture(params=LABS)
def lab(request: pytest.FixtureRequest, hosts: Hosts) -> Lab:
    """Three hosts, with one backend over them."""
    return LABS[request.param](hosts, request)


def test_one_of_four_laptops_gets_the_name(lab: Lab) -> None:
    """They know nothing of one another, and submit at once."""
    words = ("submit", *lab.words, "-d", "--nproc_per_node", 1, "--name", "it", lab.script(FAR))
    homes = [{"XDG_STATE_HOME": f"/root/state{number}"} for number in range(4)]
    running = [lab.laptop.start(lab.command(*words), env=home) for home in homes]
    codes = sorted(each.process.wait() for each in running)
    assert codes == [0, 2, 2, 2], [each.text("err") for each in running]
    wait_until(lambda: len(lab.ranks_alive()) == 3)


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


def test_a_function_is_sent_and_its_results_come_back(lab: Lab) -> None:
    """With its exception; hosts have neither Paddock nor cloudpickle."""
    done = lab.python(FUNCTION, *lab.words)
    assert done.stdout.splitlines() == [
        str([(2 * rank, 6) for rank in range(6)]),
        "3 (0, 1, 2, 4, 5) KeyError('no such row')",
    ], done.stderr
