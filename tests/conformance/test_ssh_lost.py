"""Verbs over ssh when a host of an ended job cannot be asked."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from conformance.labs import Lab
from local.jobs import wait_until

if TYPE_CHECKING:
    from conformance.hosts import Hosts


@pytest.fixture
def ended(hosts: Hosts) -> Lab:
    """A job that has ended on three hosts, of which the second is off."""
    lab = Lab("ssh", hosts, ("-b", "ssh,hosts=h1,h2,h3,connect_timeout=2"))
    text = "open(f'output/{RANK}', 'w').write('x' * 10)\nsay('hello', RANK)\n"
    lab.submitted(lab.script(f"os.makedirs('output', exist_ok=True)\n{text}"))
    assert lab.paddock("wait").returncode == 0
    hosts[1].kill()
    return lab


def test_what_the_others_say_is_not_kept_back(ended: Lab) -> None:
    """Logs of the hosts that answer come, and the one that does not is named."""
    done = ended.paddock("logs", "last")
    assert done.returncode == 2
    assert {line.split()[-1] for line in done.stdout.splitlines() if "hello" in line} == set("0145")
    assert "error: h2: " in done.stderr


def test_the_last_lines_of_the_others_come_as_well(ended: Lab) -> None:
    """Without -f, where what one host cannot tell is raised after them."""
    done = ended.paddock("logs", "last", "-n", "2")
    assert done.returncode == 2 and "error: h2: " in done.stderr
    assert len(done.stdout.splitlines()) == 2


def test_stop_names_the_host_that_is_not_told_and_what_becomes_of_it(hosts: Hosts) -> None:
    """The others end, and so does what runs there."""
    lab = Lab("ssh", hosts, ("-b", "ssh,hosts=h1,h2,h3,connect_timeout=2"))
    job = lab.submitted(lab.script("time.sleep(3600)\n"))
    lab.until_up(6)
    lab.laptop.run(["ip", "route", "add", "unreachable", f"{hosts[1].address}/32"])
    done = lab.paddock("stop", job)
    assert done.returncode == 2
    assert "error: h2: " in done.stderr and "it is not told to end" in done.stderr
    assert "within their lease of 3 s" in done.stderr and "error: h3" not in done.stderr
    wait_until(lambda: not lab.ranks_alive())


def test_a_job_whose_first_host_stands_still_is_not_said_to_have_failed(hosts: Hosts) -> None:
    """It may go on there; when it does, its end is told."""
    lab = Lab("ssh", hosts, ("-b", "ssh,hosts=h1,h2,h3,connect_timeout=2"))
    lab.submitted(lab.script("time.sleep(3600)\n"))
    lab.until_up(6)
    hosts[0].freeze()
    wait_until(lambda: "h2 has failed" in str(lab.until("unknown", "running")["why"]))
    assert "h1: it " in lab.status()["why"]
    hosts[0].freeze(thaw=True)
    lab.until("failed")


def test_what_can_be_fetched_comes_and_the_rest_is_named(ended: Lab) -> None:
    """Every host wrote output of its own."""
    done = ended.paddock("fetch", "last", "--to", "got")
    assert done.returncode == 2
    assert "error: h2: " in done.stderr and "paddock: h3: " in done.stderr
    assert "output/ 2 files, 20 B -> got/h3" in done.stderr
    got = ended.project / "got"
    assert sorted(str(path.relative_to(got)) for path in got.glob("*/output/*")) == [
        "h1/output/0", "h1/output/1", "h3/output/4", "h3/output/5",
    ]  # fmt: skip
    assert {path.parts[-3] for path in got.glob("*/log/workerlog.0")} == {"h1", "h3"}


def test_nothing_is_deleted_unless_all_of_it_can_be(ended: Lab) -> None:
    """Else its state would be half known for ever."""
    done = ended.paddock("delete", "last")
    assert done.returncode == 2
    assert "h2: " in done.stderr
    assert [len(list((h.home / "paddock/jobs").glob("train-*"))) for h in ended.hosts] == [1, 1, 1]
    assert ended.status()["state"] == "succeeded"
