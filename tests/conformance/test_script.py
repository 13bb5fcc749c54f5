"""What holds on every backend, on a site whose own commands hand jobs to a real queue."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from conformance.labs import Lab
from conformance.properties import (  # noqa: F401 - one text of each property
    test_every_rank_gets_its_place,
    test_nothing_is_left_after_delete,
    test_the_first_failure_is_named_and_ends_all,
    test_what_is_named_travels_and_nothing_else,
)

if TYPE_CHECKING:
    from conformance.slurm import Slurm

SITE = """\
[site.queue]
backend = "script"
root = "{root}"
submit = "sbatch --parsable --nodes={{nnodes}} --ntasks-per-node=1 --output=/dev/null job.sh"
status = "squeue --noheader --jobs={{id}} --states=all --format=%T"
stop = "scancel {{id}}"
run = "srun --nodes={{nnodes}} --ntasks-per-node=1 --cpu-bind=none"

[site.queue.states]
pending = "PENDING|CONFIGURING"
running = "RUNNING"
stopping = "COMPLETING"
succeeded = "COMPLETED"
cancelled = "CANCELLED"
failed = "FAILED|TIMEOUT|NODE_FAIL"
"""


@pytest.fixture
def lab(slurm: Slurm) -> Lab:
    """sbatch sends the whole environment of its caller, unless it is told otherwise."""
    hosts = slurm.hosts
    sites = hosts.laptop.home / ".config" / "paddock"
    sites.mkdir(parents=True)
    (sites / "sites.toml").write_text(SITE.format(root=hosts.shared / "jobs"))
    spools = (hosts.folder / "slurm", hosts.folder / "log")
    return Lab("script", hosts, ("-b", "queue", "-n", "3"), is_shared=True, spools=spools)
