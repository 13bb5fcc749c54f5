"""Verbs over ssh when a host of an ended job cannot be asked."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from conformance.labs import Lab

if TYPE_CHECKING:
    from conformance.hosts import Hosts


@pytest.fixture
def ended(hosts: Hosts) -> Lab:
    """A job that has ended on three hosts, of which the second is off."""
    lab = Lab("ssh", hosts, ("-b", "ssh,hosts=h1,h2,h3,connect_timeout=2"))
    lab.submitted(lab.script("say('hello', RANK)\n"))
    assert lab.paddock("wait").returncode == 0
    hosts[1].kill()
    return lab


def test_what_the_others_say_is_not_kept_back(ended: Lab) -> None:
    """Logs of the hosts that answer come, and the one that does not is named."""
    done = ended.paddock("logs", "last")
    assert done.returncode == 2
    assert {line.split()[-1] for line in done.stdout.splitlines() if "hello" in line} == set("0145")
    assert "error: h2: " in done.stderr


def test_nothing_is_deleted_unless_all_of_it_can_be(ended: Lab) -> None:
    """Else its state would be half known for ever."""
    done = ended.paddock("delete", "last")
    assert done.returncode == 2
    assert "h2: " in done.stderr
    assert [len(list((h.home / "paddock/jobs").glob("train-*"))) for h in ended.hosts] == [1, 1, 1]
    assert ended.status()["state"] == "succeeded"
