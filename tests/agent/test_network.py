"""Who coordinates, and by which address a node is known."""

from __future__ import annotations

import socket
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from paddock.agent.network import (
    guess_address,
    is_local,
    listen,
    own_source,
    read_key,
    resolve,
)
from paddock.core.job import Command, Job, Rendezvous
from paddock.core.value import replace
from paddock.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

JOB = Job(Command("script", "train.py"))


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


def test_a_port_that_is_taken_is_not_ours_to_coordinate() -> None:
    """Whoever is there coordinates, or is told apart at the handshake."""
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        assert listen("127.0.0.1", server.getsockname()[1]) is None


def test_an_address_of_another_host_cannot_be_listened_on() -> None:
    """This is how a node finds out that it is not the master."""
    assert listen("198.51.100.1", 7000) is None
    assert not is_local("198.51.100.1")


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


def test_the_key_comes_from_the_file_first(tmp_path: Path) -> None:
    """A file can be kept private, an environment is inherited."""
    path = tmp_path / "token"
    path.write_text("from-file\n")
    job = replace(JOB, rendezvous=Rendezvous(token_file=str(path)))
    assert read_key(job, {"PADDOCK_TOKEN": "from-env"}) == b"from-file"
    assert read_key(JOB, {"PADDOCK_TOKEN": "from-env"}) == b"from-env"
    assert read_key(JOB, {}) == b""


@pytest.mark.parametrize("content", [None, "", " \n"])
def test_a_key_file_without_a_key_is_bad_input(tmp_path: Path, content: str | None) -> None:
    """Going on without one would open the job to anybody."""
    path = tmp_path / "token"
    if content is not None:
        path.write_text(content)
    with pytest.raises(UsageError, match="--token-file"):
        read_key(replace(JOB, rendezvous=Rendezvous(token_file=str(path))), {})
