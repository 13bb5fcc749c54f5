"""Who coordinates: found out from --master, --rank and whose addresses they are."""

from __future__ import annotations

import socket
from contextlib import closing
from time import sleep
from typing import TYPE_CHECKING

import pytest

from paddock.agent import rendezvous as meeting
from paddock.agent.etcd_election.messages import Elected, Following, LeaderRecord
from paddock.agent.rendezvous import meet, meet_when_known
from paddock.agent.transport.sockets import Network
from paddock.core.job import Entrypoint, Job, Rendezvous
from paddock.core.value import replace
from paddock.errors import EXIT_DEADLINE, PaddockError, UsageError
from paddock.local.loop import Loop

if TYPE_CHECKING:
    from collections.abc import Iterator

    from paddock.agent.leadership.messages import Event

FAR = "198.51.100.1"


class Desk:
    """Stands for a Run, its Place and its Net: what they were told."""

    def __init__(
        self,
        rendezvous: Rendezvous,
        env: dict[str, str] | None = None,
        bindable: tuple[str, ...] = (),
    ) -> None:
        self.job = replace(Job(Entrypoint("script", "train.py")), rendezvous=rendezvous)
        self.env = env or {}
        self.loop = Loop()
        self.is_ended = False
        self.leadership = self.run = self.member = self.net = self.reporter = self
        self.address = self.source = ""
        self.listener: str | None = None
        self.said: list[str] = []
        self.events: list[Event] = []
        self.failed: list[PaddockError] = []
        self._bindable = bindable

    def waiting(self, text: str) -> None:
        """Of the reporter."""
        self.said.append(text)

    def bind(self, address: str, port: int) -> str | None:
        """Of the net; "*" is every address."""
        assert port == self.job.rendezvous.port
        name = address or "*"
        return name if name in self._bindable else None

    def handle(self, event: Event) -> None:
        """Of the place."""
        self.events.append(event)
        self.loop.stop()

    def give_up(self, error: PaddockError) -> None:
        """Of the place."""
        self.failed.append(error)
        self.loop.stop()

    def meet_when_known(self) -> None:
        """As join_others does; returns when it has begun, or given up."""
        meet_when_known(self)  # type: ignore[arg-type]  # all in one
        self.loop.run()


@pytest.fixture
def desks() -> Iterator[list[Desk]]:
    """Those of a test, to be cleared away."""
    made: list[Desk] = []
    yield made
    for desk in made:
        desk.loop.close()


MASTER = Rendezvous("tcp", "job-worker-0.job", 1)
POD = {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}


@pytest.mark.parametrize(
    ("rendezvous", "bindable", "coordinates_as"),
    [
        (replace(MASTER, host="10.0.0.1"), ("10.0.0.1",), "10.0.0.1"),
        (replace(MASTER, host="10.0.0.1", own_host="a.pod"), ("10.0.0.1",), "a.pod"),
        (replace(MASTER, host="127.0.0.1"), (), ""),  # ours, and somebody was first
        (replace(MASTER, host=FAR), ("*",), ""),
        (replace(MASTER, host=FAR, node_rank=0), ("*",), ""),  # a number is not a service
        (replace(MASTER, own_host="a.pod", node_rank=0), ("*",), "a.pod"),
        (replace(MASTER, own_host="a.pod", node_rank=0), (), ""),
        (replace(MASTER, node_rank=1), ("*",), ""),
        (MASTER, ("*",), ""),
    ],
    ids=str,
)
def test_whoever_can_bind_the_port_coordinates(
    desks: list[Desk], rendezvous: Rendezvous, bindable: tuple[str, ...], coordinates_as: str
) -> None:
    """The table at the top of rendezvous.py."""
    desks.append(desk := Desk(rendezvous, bindable=bindable))
    addresses = [FAR] if rendezvous.host == MASTER.host else [rendezvous.host]
    meet(desk, rendezvous, addresses)  # type: ignore[arg-type]  # all in one
    if coordinates_as:
        assert desk.events == [Elected(0, None)]
        assert (desk.address, desk.listener) == (coordinates_as, bindable[0])
    else:
        assert desk.events == [Following(LeaderRecord("", addresses[0], 1, ""), 0)]
        assert (desk.address, desk.listener) == ("", None)


@pytest.mark.parametrize(
    ("node_rank", "bindable", "coordinates_as", "follows"),
    [
        (0, ("*", "127.0.1.1"), "*", ""),
        (1, ("*", "127.0.1.1"), "", "192.0.2.9"),
        (None, ("127.0.1.1",), "127.0.1.1", ""),
    ],
)
def test_a_host_that_knows_itself_by_loopback_is_reached_by_the_others(
    monkeypatch: pytest.MonkeyPatch,
    desks: list[Desk],
    node_rank: int | None,
    bindable: tuple[str, ...],
    coordinates_as: str,
    follows: str,
) -> None:
    """Debian writes the own name as 127.0.1.1: node 0 opens every address, the others follow."""
    monkeypatch.setattr(meeting, "guess_address", lambda: "192.0.2.9")
    rendezvous = replace(MASTER, host="this-host", node_rank=node_rank)
    desks.append(desk := Desk(rendezvous, bindable=bindable))
    meet(desk, rendezvous, ["127.0.1.1"])  # type: ignore[arg-type]  # all in one
    assert desk.listener == (coordinates_as or None)
    if follows:
        assert desk.events == [Following(LeaderRecord("", follows, 1, ""), 0)]
    else:
        assert desk.events == [Elected(0, None)]


@pytest.fixture
def late_names(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A name server that does not know a name yet, so many times: [times, number of the error]."""
    left = [3, socket.EAI_NONAME]

    def look_up(*_words: object, **_more: object) -> list[tuple[object, ...]]:
        left[0] -= 1
        if left[0] >= 0:
            raise socket.gaierror(left[1], "Name or service not known")
        return [(socket.AF_INET, socket.SOCK_STREAM, 0, "", (FAR, 1))]

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    monkeypatch.setattr(meeting, "NAME_SECONDS", 0.01)
    return left


@pytest.mark.parametrize(
    ("env", "number"),
    [(POD, socket.EAI_NONAME), ({}, socket.EAI_AGAIN)],
    ids=["in a pod", "no answer for now"],
)
def test_a_name_that_is_published_late_is_waited_for(
    late_names: list[int], desks: list[Desk], env: dict[str, str], number: int
) -> None:
    """The name of a pod is there a moment after the pod; it is said once."""
    late_names[1] = number
    desks.append(desk := Desk(MASTER, env))
    desk.meet_when_known()
    assert desk.events == [Following(LeaderRecord("", FAR, 1, ""), 0)]
    assert desk.failed == []
    (said,) = desk.said
    assert said.startswith("--master job-worker-0.job: ")


def test_a_name_that_nobody_knows_is_an_error_at_once_elsewhere(
    late_names: list[int], desks: list[Desk]
) -> None:
    """On a laptop it is a typing error."""
    desks.append(desk := Desk(MASTER))
    desk.meet_when_known()
    (error,) = desk.failed
    assert isinstance(error, UsageError)
    assert error.message.startswith("--master job-worker-0.job: ")
    assert (error.exit_code, late_names[0], desk.events) == (2, 2, [])


def test_a_name_is_not_waited_for_longer_than_the_others(
    late_names: list[int], desks: list[Desk]
) -> None:
    """--join_timeout is for both; the exit code is that of a deadline."""
    late_names[0] = 10_000
    desks.append(desk := Desk(replace(MASTER, join_timeout_seconds=0.1), POD))
    desk.meet_when_known()
    (error,) = desk.failed
    assert error.message.startswith("--master job-worker-0.job: ")
    assert error.exit_code == EXIT_DEADLINE


def test_a_name_server_that_is_slow_does_not_hold_up_the_loop(
    monkeypatch: pytest.MonkeyPatch, desks: list[Desk]
) -> None:
    """A signal must be heard meanwhile, and a lease kept."""
    desks.append(desk := Desk(MASTER))
    turned: list[bool] = []

    def look_up(*_words: object, **_more: object) -> list[tuple[object, ...]]:
        limit = 2000
        while not turned and limit:
            limit -= 1
            sleep(0.005)  # sleep: a name server takes its time, until the loop has turned
        return [(socket.AF_INET, socket.SOCK_STREAM, 0, "", (FAR, 1))]

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    desk.loop.at("turn", desk.loop.now(), lambda: turned.append(not desk.events))
    desk.meet_when_known()
    assert turned == [True]
    assert desk.events == [Following(LeaderRecord("", FAR, 1, ""), 0)]


def test_an_address_that_is_none_of_ours_fails_as_a_word_of_the_user(desks: list[Desk]) -> None:
    """Found after the names were looked up, so it is not raised into the loop."""
    ips = (FAR, "198.51.100.2")
    desks.append(desk := Desk(Rendezvous("tcp", FAR, 1, ips=ips)))
    desk.meet_when_known()
    (error,) = desk.failed
    assert error.message.startswith("none of --ips ")
    assert desk.events == []


# ------------------------------------------------------------------------ a real port


@pytest.fixture
def net() -> Iterator[Network]:
    """A way to others on a loop of its own."""
    loop = Loop()
    yield Network(loop, None, None)
    loop.close()


def test_a_port_that_is_taken_is_not_ours_to_coordinate(net: Network) -> None:
    """Whoever is there coordinates, or is told apart at the handshake."""
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        assert net.bind("127.0.0.1", server.getsockname()[1]) is None


def test_of_two_who_bind_a_port_at_once_one_coordinates(net: Network) -> None:
    """The kernel lets both bind it and one listen: who cannot looks for the other."""
    with socket.socket() as early:
        early.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        early.bind(("127.0.0.1", 0))
        where = early.getsockname()
        listener = net.bind(*where)
        assert listener is not None
        assert net.bind(*where) is None
        with pytest.raises(OSError, match="already in use"):
            early.listen()
    socket.create_connection(where).close()  # the other is not refused meanwhile
    listener.close()


def test_an_address_of_another_host_cannot_be_listened_on(net: Network) -> None:
    """This is how a node finds out that it is not the master."""
    assert net.bind(FAR, 7000) is None


def test_who_comes_before_the_door_is_open_is_refused(net: Network) -> None:
    """Not kept waiting by a kernel for a coordinator that may never be."""
    listener = net.bind("127.0.0.1", 0)
    assert listener is not None
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", listener.port))
    listener.close()


def test_a_port_that_was_given_away_can_be_used(net: Network) -> None:
    """A job that nobody can join any more gives it to its ranks; who was let in stays."""
    listener = net.bind("127.0.0.1", 0)
    assert listener is not None
    listener.open(lambda incoming: incoming.abort(), lambda: False)
    socket.create_connection(("127.0.0.1", listener.port)).close()
    listener.close()
    with closing(socket.create_server(("127.0.0.1", listener.port))) as other:
        socket.create_connection(("127.0.0.1", listener.port)).close()
        other.accept()[0].close()
    listener.close()  # once more does no harm
