"""Hosts as people write them."""

from __future__ import annotations

import pytest

from paddock.backends.sites.hostfile import (
    HostLine,
    hosts_of,
    parse_host,
    parse_hostfile,
    parse_hosts,
)
from paddock.backends.types import Site
from paddock.errors import UsageError

OPEN_MPI = """\
# our machines
10.0.0.1 slots=2   # the first
node-b  slots=4 max-slots=8

node-c
"""
PBS = "h1\nh1\nh2\nh2\nh2\n"


def test_open_mpi_file_has_slots_and_comments() -> None:
    """As mpirun(1) describes it."""
    lines = parse_hostfile(OPEN_MPI, "machines")
    assert [(each.target, each.slots) for each in lines] == [
        ("10.0.0.1", 2), ("node-b", 4), ("node-c", 0),
    ]  # fmt: skip


def test_pbs_node_file_counts_repeated_hosts() -> None:
    """PBS writes a host once for each of its slots."""
    assert [str(each) for each in parse_hostfile(PBS, "nodes")] == ["h1 slots=2", "h2 slots=3"]


@pytest.mark.parametrize(
    "text",
    [
        "h1",
        "me@h1",
        "me@h1:2222",
        "[::1]:22",
        "h1 slots=2",
        "h1 address=10.0.0.1 slots=3",
        "me@h1:22=10.0.0.1",
    ],
)
def test_host_is_written_as_it_was_read(text: str) -> None:
    """So it can be kept as text."""
    assert parse_host(str(parse_host(text))) == parse_host(text)


def test_pair_gives_the_address_others_use() -> None:
    """The old tool's second form of HOSTS."""
    (line,) = parse_hosts([("me@h1:22", "10.0.0.1")], "HOSTS")
    assert line == HostLine("h1", "me", 22, "10.0.0.1")
    assert line.reached_at == "10.0.0.1"


@pytest.mark.parametrize(
    "text",
    ["-oProxyCommand=x", "me@-x", "a b=c", "h:99999", "h:x", "h:", "$(id)@h", "h1 slots=0",
     "h address=-x"],
)  # fmt: skip
def test_what_is_no_host_is_refused(text: str) -> None:
    """Above all what ssh or mpirun would take for an option of theirs."""
    with pytest.raises(UsageError):
        parse_host(text)


def test_bad_lines_are_named_all_at_once() -> None:
    """With the number of each line."""
    with pytest.raises(UsageError) as caught:
        parse_hostfile("h1\nh2 slots=many\n-x\n", "machines")
    assert [p.message[:16] for p in caught.value.problems] == [
        "machines, line 2",
        "machines, line 3",
    ]


def test_file_without_hosts_is_refused() -> None:
    """An empty machines file is a mistake of the step before."""
    with pytest.raises(UsageError, match="machines names no host"):
        parse_hostfile("# nobody\n", "machines")


def test_site_gives_its_user_and_port_to_hosts_without() -> None:
    """What stands at a host wins."""
    site = Site("lab", "ssh", {"hosts": ("h1", "root@h2:22"), "user": "me", "port": 2222})
    assert [str(each) for each in hosts_of(site)] == ["me@h1:2222", "root@h2:22"]
