"""Ports that stay free until a rank takes them."""

from __future__ import annotations

import errno
import os
import socket
import subprocess
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from paddock.errors import UsageError
from paddock.local.facts.ports import EPHEMERAL_RANGE, HeldPorts, describe_owner, hold_ports

if TYPE_CHECKING:
    from collections.abc import Iterator

LISTENER = """\
import socket, sys
s = socket.socket()
s.bind(("127.0.0.1", 0))
s.listen()
print(s.getsockname()[1], flush=True)
sys.stdin.read()
"""


@pytest.fixture
def held() -> Iterator[HeldPorts]:
    """Three held ports."""
    made = hold_ports((0, 0, 0), None)
    yield made
    made.release()


@pytest.fixture
def listener() -> Iterator[tuple[int, int]]:
    """Another program that listens: its port and its pid."""
    program = subprocess.Popen(
        ["python3", "-c", LISTENER], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert program.stdin is not None and program.stdout is not None
    port = int(program.stdout.readline())
    yield port, program.pid
    program.stdin.close()
    program.wait()
    program.stdout.close()


def can_listen(address: str, port: int, reuse: int = 0) -> bool:
    """Whether a program could listen there, with that SO_REUSEADDR."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with closing(socket.socket(family)) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, reuse)
        try:
            sock.bind((address, port))
            sock.listen()
        except OSError:
            return False
        return True


@pytest.mark.parametrize("reuse", [0, 1])
@pytest.mark.parametrize("address", ["127.0.0.1", "0.0.0.0", "::", "::1"])
def test_a_held_port_cannot_be_taken_by_others(held: HeldPorts, address: str, reuse: int) -> None:
    """Between the plan and the ranks nobody slips in, on any address."""
    assert [can_listen(address, port, reuse) for port in held.ports] == [False] * 3


def test_a_held_port_refuses_peers_until_its_rank_listens(held: HeldPorts) -> None:
    """A rank of another host may be first: it tries again, rather than be cut off later."""
    with closing(socket.socket()) as peer:
        assert peer.connect_ex(("127.0.0.1", held.ports[0])) == errno.ECONNREFUSED


def test_a_port_of_the_last_attempt_is_held_as_well(held: HeldPorts) -> None:
    """A connection that its rank closed is in TIME_WAIT there for a minute."""
    port = held.ports[0]
    held.unbind()
    with closing(socket.create_server(("127.0.0.1", port))) as server:
        peer = socket.create_connection(("127.0.0.1", port))
        server.accept()[0].close()
        peer.recv(1)
        peer.close()
    held.release()
    held.take(port)
    test_a_held_port_refuses_peers_until_its_rank_listens(held)
    assert [can_listen(address, port, 1) for address in ("127.0.0.1", "::")] == [False] * 2
    held.unbind()
    assert can_listen("0.0.0.0", port, 1)


def test_an_unbound_port_can_be_taken_by_a_rank(held: HeldPorts) -> None:
    """A rank that does not set SO_REUSEADDR can bind it (a bound one cannot be shared)."""
    held.unbind()
    assert [can_listen("0.0.0.0", port) for port in held.ports] == [True] * 3


def test_another_job_of_this_host_sees_the_mark(held: HeldPorts) -> None:
    """Ranks may bind late, after seconds of imports: other jobs keep away that long."""
    held.unbind()
    other = HeldPorts()
    assert [other.take(port) for port in list(held.ports)] == [False] * 3


def test_a_released_port_is_free_for_the_next_job() -> None:
    """A long queue of jobs must not use the ports up."""
    held = hold_ports((0,), None)
    port = held.ports[0]
    held.release()
    other = HeldPorts()
    assert other.take(port)
    other.release()


def test_the_owner_of_a_port_is_named(listener: tuple[int, int]) -> None:
    """ "Address already in use" makes people look for it; the answer is known here."""
    port, pid = listener
    with pytest.raises(UsageError) as caught:
        hold_ports((port,), None)
    problem = caught.value.problems[0]
    assert f"port {port} is in use by pid {pid} (" in problem.message
    assert "python3 -c import socket" in problem.message and "--start-port" in problem.hint
    assert "\n" not in problem.message


def test_another_job_is_named_as_the_owner(held: HeldPorts) -> None:
    """Its port may not even be bound yet."""
    held.unbind()
    assert describe_owner(held.ports[0]) == "another Paddock job on this host"


def test_every_port_in_use_is_named_at_once(listener: tuple[int, int], held: HeldPorts) -> None:
    """One run of the command shows all that is to be mended, and holds nothing after it."""
    free = hold_ports((0,), None)
    port = free.ports[0]
    free.release()
    with pytest.raises(UsageError) as caught:
        hold_ports((listener[0], port, held.ports[0]), None)
    assert len(caught.value.problems) == 2
    other = HeldPorts()
    assert other.take(port)
    other.release()


def test_too_few_free_ports_are_said_once(held: HeldPorts) -> None:
    """PORT_RANGE of one port for three processes."""
    port = held.ports[0]
    held.release()
    with pytest.raises(UsageError, match="not enough free ports: 1 found") as caught:
        hold_ports((0, 0, 0, 0, 0), (port, port))
    assert len(caught.value.problems) == 1


@pytest.mark.skipif(not os.path.exists(EPHEMERAL_RANGE), reason="no such file in this /proc")
def test_chosen_ports_are_not_the_kernels_own(held: HeldPorts) -> None:
    """A connect() of any program could take a port of the ephemeral range."""
    with open(EPHEMERAL_RANGE, encoding="ascii") as f:
        low, high = map(int, f.read().split())
    if high - low > 50_000:
        pytest.skip(f"this kernel gives out {low}-{high}: nearly every port is its own")
    assert [p for p in held.ports if low <= p <= high] == []


def test_a_port_in_time_wait_is_taken_again() -> None:
    """A restarted attempt may keep its ports: TIME_WAIT of the last one is no owner."""
    with closing(socket.socket()) as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server.bind(("127.0.0.1", 0))
        server.listen()
        port = server.getsockname()[1]
        with closing(socket.create_connection(("127.0.0.1", port))):
            server.accept()[0].close()  # the side that closes first keeps TIME_WAIT
    held = HeldPorts()
    assert held.take(port)
    held.release()
