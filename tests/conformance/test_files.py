"""What is sent to real hosts: all of it, to each its share, and from one to another."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from conformance.hosts import SSH, Hosts
from conformance.labs import Lab
from real.hosts import need_hosts

if TYPE_CHECKING:
    from collections.abc import Iterator

COUNT = 10
SCRIPT = """
here = sorted(os.listdir("data"))
say("at", RANK, here, os.path.getsize("large"), open("two words/$(id)").read())
"""


@pytest.fixture
def many() -> Iterator[Hosts]:
    """More hosts than get everything from the laptop."""
    need_hosts(SSH)
    made = Hosts(COUNT)
    yield made
    made.close()


def test_ten_hosts_get_a_package_from_one_another_and_each_its_shard(many: Hosts) -> None:
    lab = Lab("ssh", many, ("--hosts", ",".join(host.name for host in many)))
    script = lab.script(SCRIPT)
    size = 4 << 20
    (lab.project / "large").write_bytes(os.urandom(size))
    for folder in ("data", "two words"):
        (lab.project / folder).mkdir()
    (lab.project / "two words" / "$(id)").write_text("中文", "utf-8")
    (lab.project / ".gitignore").write_text("data/\n*.secret\n", "utf-8")
    (lab.project / "key.secret").write_text("x", "utf-8")
    for number in range(COUNT):
        (lab.project / "data" / f"train.txt-{number:05d}").write_text(str(number), "utf-8")
    done = lab.submit("--package", ".", "--data", "data/train.txt-*", script)
    assert done.returncode == 0, done.stderr
    sent = int(done.stderr.partition(" bytes were sent")[0].rpartition(" ")[2].replace(",", ""))
    assert size < sent < 2 * size
    assert lab.paddock("wait").returncode == 0
    lines = lab.logs("last")
    for rank in range(2 * COUNT):
        told = f"at {rank} ['train.txt-{rank // 2:05d}'] {size} 中文"
        assert sum(line.endswith(told) for line in lines) == 1, lines
