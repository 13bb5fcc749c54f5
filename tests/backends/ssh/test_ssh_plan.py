"""How many processes a host file wants on each host, as DeepSpeed's launcher reads it."""

from __future__ import annotations

import re

import pytest

from contracts.worlds import job
from paddock.backends.sites.find import find_site
from paddock.backends.ssh.plan import plan_of, targets_of
from paddock.backends.types import Submission
from paddock.core.job import Role
from paddock.core.value import replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path


def counts_of(folder: Path, text: str, *roles: Role, devices: tuple[str, ...] | None = None) -> str:
    """The processes in the table, and our flags about them, of a job of two hosts."""
    (folder / "hostfile").write_text(text)
    env = {"HOME": str(folder)}
    site = find_site("ssh,hostfile=hostfile", env=env, cwd=str(folder))
    work = replace(job(nnodes=2, roles=roles or (Role("worker"),)), devices=devices)
    plan = plan_of(Submission("run-1", "run", site, work), targets_of(site))
    lines = [" ".join(step.argv) for step in plan.steps if step.argv]
    flags = [re.findall(r"--nproc_per_node \d+|--allow_uneven", line) for line in lines]
    shown = [row[2] for row in plan.rows]
    return "; ".join(" ".join([n, *each]) for n, each in zip(shown, flags, strict=True))


EVEN = "# ours\nworker-1 slots=4\nworker-2 slots=4\n"


def test_slots_are_the_processes_of_a_host(tmp_path: Path) -> None:
    """A hostfile of DeepSpeed or mpirun starts as many here; unequal numbers are allowed."""
    assert counts_of(tmp_path, EVEN) == "4 --nproc_per_node 4; 4 --nproc_per_node 4"
    uneven = "h1 slots=2\nh2\n"
    said = "2 --nproc_per_node 2 --allow_uneven; one per device --allow_uneven"
    assert counts_of(tmp_path, uneven) == said


@pytest.mark.parametrize("text", ["h1\nh2\n", "h1\nh1\nh2\nh2\n"], ids=["plain", "PBS"])
def test_a_host_without_slots_has_a_process_per_device(tmp_path: Path, text: str) -> None:
    """PBS lists a host once for each core, which is no number of ranks."""
    assert counts_of(tmp_path, text) == "one per device; one per device"


def test_what_the_user_says_of_processes_wins_over_slots(tmp_path: Path) -> None:
    """--nproc-per-node, roles of servers, and a list of devices."""
    assert counts_of(tmp_path, EVEN, Role("worker", 3)) == "3; 3"
    assert counts_of(tmp_path, EVEN, devices=("0", "1")) == "one per device; one per device"
    cpu = counts_of(tmp_path, EVEN, devices=("cpu",))
    assert cpu == "4 --nproc_per_node 4; 4 --nproc_per_node 4"
