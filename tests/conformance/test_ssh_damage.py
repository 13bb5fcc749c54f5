"""Hosts whose disk is full, whose cache was emptied, whose directory others see elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from conformance.labs import Lab

if TYPE_CHECKING:
    from conformance.hosts import Hosts

FILLS = """\
with open("big", "wb", 0) as file:
    for size in (65536, 1):
        try:
            while True:
                file.write(b"x" * size)
        except OSError:
            pass
sys.exit(3)
"""


@pytest.fixture
def lab(hosts: Hosts) -> Lab:
    return Lab("ssh", hosts, ("--hosts", "h1,h2"))


def test_a_job_that_fills_the_disk_is_not_lost(lab: Lab) -> None:
    """How it ended is written down all the same, and no torn file is left of that."""
    lab.hosts[0].serve("mkdir /root/small; mount -t tmpfs -o size=3m none /root/small")
    lab.submitted("--hosts", "h1", "--root", "/root/small", lab.script(FILLS))
    assert lab.paddock("wait").returncode == 3
    assert lab.until("failed")["code"] == 3
    left = lab.hosts[0].run(["sh", "-c", "ls /root/small/train-*/.paddock/state.json*"])
    assert left.stdout.endswith("/state.json\n")
    assert lab.paddock("delete", "last").returncode == 0


def test_a_host_whose_cache_lost_files_gets_the_launcher_again(lab: Lab) -> None:
    """A cleaner removes old files, and no directories; a loss of power leaves empty ones."""
    script = lab.script("say('rank-is-up')\n")
    lab.submitted(script)
    assert lab.paddock("wait").returncode == 0
    find = "find ~/.cache/paddock/program -name"
    lab.hosts[0].run(["sh", "-c", f"{find} main.py -delete"])
    lab.hosts[1].run(["sh", "-c", f"{find} 'launch*.py' -exec truncate -s 0 {{}} ';'"])
    lab.submitted(script)
    assert lab.paddock("wait").returncode == 0


def test_logs_of_a_job_below_a_relative_root_are_found(lab: Lab) -> None:
    """It is below the home, also for the launcher, which is started elsewhere."""
    lab.submitted("--root", "jobs", lab.script("say('rank-is-up')\n"))
    assert lab.paddock("wait").returncode == 0
    assert len(lab.logs()) == 4
    assert list(lab.hosts[1].home.glob("jobs/train-*/log/workerlog.0"))
