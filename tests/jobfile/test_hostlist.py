"""Names of hosts as resource managers and MPI write them."""

from __future__ import annotations

import pytest

from paddock.errors import UsageError
from paddock.jobfile.dialects.hostlist import MAX_HOSTS, expand_hosts, read_hostfile


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("h1", "h1"),
        ("h[1-3]", "h1 h2 h3"),
        ("h[1-3,7],gpu-[001-003]", "h1 h2 h3 h7 gpu-001 gpu-002 gpu-003"),
        ("n[08-11]", "n08 n09 n10 n11"),
        ("n[8-11]", "n8 n9 n10 n11"),
        ("n[098-101]", "n098 n099 n100 n101"),
        ("rack[1-2]node[1-2]", "rack1node1 rack1node2 rack2node1 rack2node2"),
        ("a[1-2]-ib,b", "a1-ib a2-ib b"),
        ("b,a", "b a"),
        ("h[3,1]", "h3 h1"),
        ("node-7.example.org", "node-7.example.org"),
        ("head,[2:10].77.0.1,[2:10].77.0.2@0(3)", "head 10.77.0.1 10.77.0.2"),
        ("h[1:1-3]@0(3)", "h1 h2 h3"),
        ("node[4:1-2,10]@0(3)", "node0001 node0002 node0010"),
    ],
)
def test_a_list_names_its_hosts_in_its_order(text: str, hosts: str) -> None:
    """Slurm's lists, and those of Open MPI 4.1, which write the width and the daemons."""
    assert expand_hosts(text) == tuple(hosts.split())


@pytest.mark.parametrize(
    "text",
    [
        "", ",", "h1,", "h[", "h]", "h[]", "h[1-]", "h[-2]", "h[3-1]", "h[a-b]", "h[1[2]]",
        "h[1,,2]", "h[1-999999999]", "a b", "h[x:1-2]", "h[99:1]", "/etc", "h[١-٢]",
        "a[1-1000]b[1-1000]", "@0(3)",
    ],
)  # fmt: skip
def test_what_is_no_list_is_refused(text: str) -> None:
    """Nothing is guessed, and nothing is written out that no cluster has."""
    with pytest.raises(UsageError, match="is not a list of hosts"):
        expand_hosts(text)


def test_a_large_cluster_is_still_a_list() -> None:
    """Up to as many nodes as a job may have."""
    assert len(expand_hosts(f"h[1-{MAX_HOSTS}]")) == MAX_HOSTS
    with pytest.raises(UsageError):
        expand_hosts(f"h[1-{MAX_HOSTS}],one")


@pytest.mark.parametrize(
    ("text", "machines"),
    [
        ("a\nb\na\n", {"a": 2, "b": 1}),
        ("a slots=4\nb  slots = 2 max_slots=8 # ours\n\n#c\n", {"a": 4, "b": 2}),
        ("a:2\nb:1\n", {"a": 2, "b": 1}),
        ("me@10.0.0.1 slots=1\nfd00::1 slots=3\n[fd00::2]\n",
         {"10.0.0.1": 1, "fd00::1": 3, "fd00::2": 1}),
        ("a cpu=2\r\nb count=3\r\n", {"a": 2, "b": 3}),
        ("", {}),
    ],
)  # fmt: skip
def test_a_hostfile_names_hosts_and_slots(text: str, machines: dict[str, int]) -> None:
    """Open MPI, MPICH, and a PBS_NODEFILE with a line for each slot."""
    assert {m.host: m.slots for m in read_hostfile(text)} == machines
    assert [m.host for m in read_hostfile(text)] == list(machines)


def test_every_wrong_line_of_a_hostfile_is_named() -> None:
    """All at once, by their numbers."""
    with pytest.raises(UsageError) as caught:
        read_hostfile("good\na slots=0\nb:x\n/c\nd slots=many\n")
    named = [problem.message.partition(":")[0] for problem in caught.value.problems]
    assert named == ["line 2", "line 3", "line 4", "line 5"]
