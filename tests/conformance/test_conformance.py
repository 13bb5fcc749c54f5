"""What holds on every backend, on those whose hosts are made here."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from conformance.labs import Lab
from conformance.properties import *  # noqa: F403 - one text of each property

if TYPE_CHECKING:
    from collections.abc import Callable

    from conformance.hosts import Hosts


def ssh_lab(hosts: Hosts, _request: pytest.FixtureRequest) -> Lab:
    words = ("-b", "ssh,hosts=h1,h2,h3,connect_timeout=3")
    return Lab("ssh", hosts, words, asks_first=True, follows=("killed", "cut"))


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
