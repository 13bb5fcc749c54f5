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
from paddock.errors import UsageError

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


def test_a_host_that_is_listed_twice_with_slots_has_the_sum(tmp_path: Path) -> None:
    """As mpirun adds them; the file may begin with the mark that editors of Windows write."""
    said = "5 --nproc_per_node 5 --allow_uneven; 2 --nproc_per_node 2 --allow_uneven"
    assert counts_of(tmp_path, "\ufeffh1 slots=2\r\nh2 slots=2\r\nh1 slots=3\r\n") == said


def test_every_bad_line_of_a_hostfile_is_told(tmp_path: Path) -> None:
    """Also slots= without a number, which would start one rank per device."""
    with pytest.raises(UsageError) as caught:
        counts_of(tmp_path, "h1 slots=\nh2 slots=2\nh3 slots=two\nh4 slots=0 x=1\n")
    told = [each.message.partition("hostfile, ")[2] for each in caught.value.problems]
    assert [text.partition(":")[0] for text in told] == ["line 1", "line 3", "line 4", "line 4"]
    assert told[0] == "line 1: 'slots=' after 'h1' is not known"


def test_what_the_user_says_of_processes_wins_over_slots(tmp_path: Path) -> None:
    """--nproc-per-node, roles of servers, and a list of devices."""
    assert counts_of(tmp_path, EVEN, Role("worker", 3)) == "3; 3"
    assert counts_of(tmp_path, EVEN, devices=("0", "1")) == "one per device; one per device"
    cpu = counts_of(tmp_path, EVEN, devices=("cpu",))
    assert cpu == "4 --nproc_per_node 4; 4 --nproc_per_node 4"
