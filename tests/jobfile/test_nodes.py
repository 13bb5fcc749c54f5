"""Where nodes meet: --master in all its forms, torchrun's synonyms, --ips."""

from __future__ import annotations

from functools import partial

import pytest

from jobfile.reading import job
from paddock.core.job import FIXED_LEASE_SECONDS, Rendezvous
from paddock.jobfile.configuration import configuration
from paddock.jobfile.parse import parse

tcp = partial(Rendezvous, "tcp", lease_seconds=FIXED_LEASE_SECONDS)


def etcd(endpoints: tuple[str, ...], url: str) -> Rendezvous:
    """A meeting through etcd."""
    return Rendezvous("etcd", etcd=endpoints, etcd_url=url)


@pytest.mark.parametrize(
    ("master", "expected"),
    [
        ("10.0.0.1:6768", tcp("10.0.0.1", 6768)),
        ("[fd00::1]:6768", tcp("fd00::1", 6768)),
        ("node-0.example:6768", tcp("node-0.example", 6768)),
        ("http://10.0.0.1:6768", tcp("10.0.0.1", 6768)),
        ("http://10.0.0.1:6768/", tcp("10.0.0.1", 6768)),
        ("https://h:6768", tcp("h", 6768)),
        ("etcd://10.0.0.1:2379", etcd(("10.0.0.1:2379",), "etcd://10.0.0.1:2379")),
        ("etcd://etcd.example", etcd(("etcd.example:2379",), "etcd://etcd.example:2379")),
        ("etcd://a:1,b:2,[::1]:3", etcd(("a:1", "b:2", "[::1]:3"), "etcd://a:1,b:2,[::1]:3")),
    ],
)
def test_every_form_of_master_is_understood(master: str, expected: Rendezvous) -> None:
    """The original crashes on http:// and IPv6 and hangs on host names."""
    assert job(f"--master {master} --nnodes 2 a.py").rendezvous == expected


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("--rdzv-backend c10d --rdzv-endpoint h:1", tcp("h", 1)),
        ("--rdzv-endpoint h", tcp("h", 29400)),
        ("--rdzv-backend static --rdzv-endpoint h", tcp("h", 29500)),
        ("--rdzv-backend etcd-v2 --rdzv-endpoint h:2379", etcd(("h:2379",), "etcd://h:2379")),
        ("--rdzv-backend etcd --rdzv-endpoint etcds://h", etcd(("h:2379",), "etcds://h:2379")),
        ("--elastic_server etcds://u:p@h,[::1]?ca=f",
         etcd(("h:2379", "[::1]:2379"), "etcds://u:p@h:2379,[::1]:2379?ca=f")),
        ("--elastic_server etcd://h:1,etcd://i:2", etcd(("h:1", "i:2"), "etcd://h:1,i:2")),
        ("--master-addr h --master-port 5", tcp("h", 5)),
        ("--master-addr [::1]", tcp("::1", 29500)),
    ],
)  # fmt: skip
def test_other_words_than_master_are_synonyms(line: str, expected: Rendezvous) -> None:
    """A command line of torchrun keeps its meaning, and etcds:// its TLS."""
    assert job(f"{line} --nnodes 2 a.py").rendezvous == expected


@pytest.mark.parametrize(
    "line",
    ["--master 10.0.0.1:80", "--standalone", "--standalone --rdzv-endpoint h:1", "--nnodes 1", ""],
)
def test_one_node_needs_no_network(line: str) -> None:
    """nnodes 1 uses no store in the original either."""
    assert job(f"{line} a.py").rendezvous == Rendezvous()


def test_etcd_is_kept_for_one_node() -> None:
    """Whoever names etcd wants it: more nodes may be meant later."""
    assert job("--master etcd://h:1 a.py").rendezvous.kind == "etcd"


def test_a_single_ip_is_this_node() -> None:
    """--ips with one address: alone, known by that address."""
    assert job("--ips 10.0.0.7 a.py").rendezvous == Rendezvous(own_host="10.0.0.7")


def test_the_start_port_moves_the_meeting_point() -> None:
    """With --ips the nodes meet one port below the first process port."""
    found = job("--ips a,b --start_port 7000 x.py")
    assert (found.rendezvous.host, found.rendezvous.port) == ("a", 6999)
    assert found.start_port == 7000


def test_a_master_beside_ips_wins_and_the_list_stays() -> None:
    """The list still orders the nodes and says who may join."""
    found = job("--ips a,b --master c:5 x.py")
    assert (found.rendezvous.host, found.rendezvous.ips) == ("c", ("a", "b"))
    assert found.nnodes_max == 2


def test_a_range_without_master_serves() -> None:
    """Elastic without etcd: the first node is the meeting point."""
    found = job("--nnodes 1:4 a.py")
    assert found.rendezvous == Rendezvous("tcp", "", 0)
    assert (found.elastic.level, found.restart.max_restarts) == (1, 3)


def test_endpoint_lists_of_one_host_name_this_node() -> None:
    """Endpoints are compared with the node's address, so it must be that one."""
    found = job("--servers 10.0.0.5:6170 --workers 10.0.0.5:6171 a.py")
    assert found.rendezvous == Rendezvous(own_host="10.0.0.5")


def test_the_meeting_port_avoids_listed_ports() -> None:
    """Next to the lowest port of the first host; above the highest if that is privileged."""
    found = job("--servers a:6170,b:6170 --workers a:6169,b:6169 x.py")
    assert found.rendezvous.port == 6168
    low = job("--servers a:1000,b:1000 --workers a:1001,b:1001 x.py")
    assert low.rendezvous.port == 1002


def test_the_login_of_etcd_is_kept_but_never_shown() -> None:
    """A password in --master must reach etcd and no log, note or explanation."""
    url = "etcd://root:secret@h:2379"
    parsed = parse(["--nnodes", "2", "--master", url, "a.py"], {"PADDLE_MASTER": url}, python="py")
    assert parsed.job.rendezvous.etcd_url == url
    assert parsed.job.rendezvous.etcd == ("h:2379",)
    sources = [s.text for s in parsed.job.sources.values()]
    assert "secret" not in f"{configuration(parsed.job)} {parsed.notes} {sources}"
