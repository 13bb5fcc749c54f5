"""By which address a node is known, and which addresses are its own."""

from __future__ import annotations

import pytest

from paddock.core.job import Rendezvous
from paddock.errors import UsageError
from paddock.local.facts.addresses import (
    address_towards,
    guess_address,
    is_local,
    own_source,
    resolve,
)


def test_numeric_addresses_are_taken_as_they_are() -> None:
    """Nothing is looked up."""
    assert resolve(Rendezvous(host="198.51.100.1", port=1)) == ["198.51.100.1"]
    assert resolve(Rendezvous(host="fd00::1", port=1)) == ["fd00::1"]


def test_a_name_gives_its_addresses_ipv4_first() -> None:
    """localhost is both in most hosts files."""
    found = resolve(Rendezvous(host="localhost", port=1))
    assert found[0] == "127.0.0.1"


@pytest.mark.parametrize("name", ["no-such-name.invalid", "a" * 70 + ".b", "x..y"])
def test_an_unknown_name_is_bad_input(name: str) -> None:
    """Also one that no name server would accept."""
    with pytest.raises(UsageError, match="--master") as caught:
        resolve(Rendezvous(host=name, port=1))
    assert caught.value.hint


@pytest.mark.parametrize("address", ["127.0.0.1", "127.0.0.7", "::1"])
def test_our_own_addresses_are_known(address: str) -> None:
    """By binding, without a list of interfaces."""
    assert is_local(address)


def test_an_address_is_guessed_that_is_ours() -> None:
    """That of the default route, else of an interface, else loopback."""
    assert is_local(guess_address())


def test_ips_say_which_node_this_is() -> None:
    """127.0.0.1 stands for this host."""
    rendezvous = Rendezvous(host="198.51.100.1", ips=("198.51.100.1", "127.0.0.1"))
    assert own_source(rendezvous) == "127.0.0.1"


def test_ips_without_this_host_are_bad_input() -> None:
    """It would join and be refused later."""
    with pytest.raises(UsageError, match="none of --ips"):
        own_source(Rendezvous(host="198.51.100.1", ips=("198.51.100.1", "198.51.100.2")))


def test_several_ips_of_this_host_need_a_choice() -> None:
    """A guess would give two nodes one place."""
    with pytest.raises(UsageError, match="several of --ips") as caught:
        own_source(Rendezvous(host="198.51.100.1", ips=("198.51.100.1", "127.0.0.1", "127.0.0.2")))
    assert "--host" in caught.value.hint


def test_an_address_of_another_host_is_not_ours() -> None:
    """Nor is a name."""
    assert not is_local("198.51.100.1")
    assert not is_local("localhost.invalid")


@pytest.mark.parametrize(
    ("endpoint", "address"),
    [
        ("127.0.0.1:2379", "127.0.0.1"),
        ("[::1]:1", "::1"),
    ],
)
def test_our_address_is_that_on_the_way_to_etcd(endpoint: str, address: str) -> None:
    """A host has several; the others reach it over the network that etcd is on."""
    assert address_towards(endpoint) == address


@pytest.mark.parametrize("endpoint", ["", "127.0.0.1", "127.0.0.1:port", "x..y:1"])
def test_an_endpoint_that_is_none_gives_a_guess(endpoint: str) -> None:
    """What is wrong with it is told by whoever connects."""
    assert is_local(address_towards(endpoint))
