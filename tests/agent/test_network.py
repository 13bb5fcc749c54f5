"""Who coordinates, and by which address a node is known."""

from __future__ import annotations

import socket
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from paddock.agent import network
from paddock.agent.network import (
    guess_address,
    is_local,
    listen,
    meet_when_known,
    own_source,
    read_key,
    resolve,
)
from paddock.core.job import Command, Job, Rendezvous
from paddock.core.value import replace
from paddock.errors import EXIT_DEADLINE, UsageError
from paddock.local.loop import Loop

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


class Desk:
    """Stands for a Run and its Network: what they were told."""

    def __init__(self, env: dict[str, str], limit_seconds: float = 30.0) -> None:
        rendezvous = Rendezvous("tcp", "job-worker-0.job", 1, join_timeout_seconds=limit_seconds)
        self.job = replace(JOB, rendezvous=rendezvous)
        self.env = env
        self.loop = Loop()
        self.is_ended = False
        self.member = self
        self.said: list[str] = []
        self.joined: list[tuple[str, int]] = []

    def say(self, _level: str, text: str) -> None:
        """Of the member."""
        self.said.append(text)

    def join(self, target: tuple[str, int], *, source: str) -> None:
        """Of the network."""
        assert source == ""
        self.joined.append(target)
        self.loop.stop()

    def meet(self) -> None:
        """As join_by_master does; returns when it has joined."""
        try:
            meet_when_known(self, self)  # type: ignore[arg-type]  # both in one
            if not self.joined:
                self.loop.run()
        finally:
            self.loop.close()


@pytest.fixture
def late_names(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A name server that does not know a name yet, so many times: [times, number of the error]."""
    left = [3, socket.EAI_NONAME]

    def look_up(*_words: object, **_more: object) -> list[tuple[object, ...]]:
        left[0] -= 1
        if left[0] >= 0:
            raise socket.gaierror(left[1], "Name or service not known")
        return [(socket.AF_INET, socket.SOCK_STREAM, 0, "", ("198.51.100.1", 1))]

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    monkeypatch.setattr(network, "NAME_SECONDS", 0.01)
    return left


@pytest.mark.parametrize(
    ("env", "number"),
    [({"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, socket.EAI_NONAME), ({}, socket.EAI_AGAIN)],
    ids=["in a pod", "no answer for now"],
)
def test_a_name_that_is_published_late_is_waited_for(
    late_names: list[int], env: dict[str, str], number: int
) -> None:
    """The name of a pod is there a moment after the pod; it is said once."""
    late_names[1] = number
    desk = Desk(env)
    desk.meet()
    assert desk.joined == [("198.51.100.1", 1)]
    (said,) = desk.said
    assert said.startswith("Waiting peer start... --master job-worker-0.job: ")


def test_a_name_that_nobody_knows_is_an_error_at_once_elsewhere(late_names: list[int]) -> None:
    """On a laptop it is a typing error."""
    with pytest.raises(UsageError, match=r"--master job-worker-0\.job"):
        Desk({}).meet()
    assert late_names[0] == 2


def test_a_name_is_not_waited_for_longer_than_the_others(late_names: list[int]) -> None:
    """--join_timeout is for both; the exit code is that of a deadline."""
    late_names[0] = 10_000
    with pytest.raises(UsageError, match=r"--master job-worker-0\.job") as raised:
        Desk({"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, 0.1).meet()
    assert raised.value.exit_code == EXIT_DEADLINE


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
