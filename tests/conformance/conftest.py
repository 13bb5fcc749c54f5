"""For tests on real hosts: marks them, says what is missing, gives each test hosts of its own.

Hosts are made anew for each test: three of them and the laptop take half a second.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from conformance.hosts import MPI, SSH, Hosts
from conformance.slurm import PROGRAMS, Slurm
from real.hosts import need_hosts

if TYPE_CHECKING:
    from collections.abc import Iterator

HERE = Path(__file__).resolve().parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give every test below this folder the marker `real`."""
    for item in items:
        if HERE in Path(item.path).parents:
            item.add_marker(pytest.mark.real)


@pytest.fixture
def hosts() -> Iterator[Hosts]:
    """h1, h2, h3 and the laptop, with ssh; all of it is gone after the test."""
    need_hosts(SSH)
    made = Hosts(3)
    yield made
    made.close()


@pytest.fixture
def mpi(hosts: Hosts) -> Hosts:
    """The same hosts, when there is Open MPI."""
    need_hosts(MPI)
    return hosts


@pytest.fixture
def slurm(hosts: Hosts) -> Slurm:
    """Slurm over the same hosts."""
    need_hosts(PROGRAMS)
    return Slurm(hosts)
