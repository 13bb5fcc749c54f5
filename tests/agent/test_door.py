"""Server and client over real sockets: who gets in, who is turned away, who is given up."""

from __future__ import annotations

import json
import socket
import struct
from time import monotonic_ns
from typing import TYPE_CHECKING

import pytest

from agent.rooms import KEY, UID, job_of
from paddock.agent.transport.wire import (
    GREETING_LIMIT_BYTES,
    VERSION,
    Signer,
    decode,
    encode,
    greeting,
    session_key,
    welcome,
)
from paddock.core.attempt.exits import Exit
from paddock.core.rendezvous.messages import Envelope, Heartbeat, HeartbeatAck, Leave, Stop

if TYPE_CHECKING:
    from agent.rooms import Ear, Room

OWN = 1  # the coordinator's own node counts among the members


@pytest.mark.parametrize("key", [KEY, b""])
def test_a_member_with_the_right_key_gets_in(room: Room, key: bytes) -> None:
    """And learns the job's uid and by which address it is seen."""
    member = room.join(room.serve(job_of(2), key), key=key)
    room.run_until(lambda: member.joined)
    assert member.joined == [("127.0.0.1", UID)]


@pytest.mark.parametrize(
    ("key", "job_id", "message"),
    [
        (b"wrong", "mnist", "job key is wrong"),
        (b"", "mnist", "has a job key, this node has no key"),
        (KEY, "bert", "runs job 'mnist', this node has job 'bert'"),
    ],
)
def test_a_member_that_does_not_belong_is_told_why(
    room: Room, key: bytes, job_id: str, message: str
) -> None:
    """Exit 2, with the address that refused and what to set."""
    member = room.join(room.serve(job_of(2)), key=key, job_id=job_id)
    room.run_until(lambda: member.failed)
    error = member.failed[0]
    assert message in error.message and "--master 127.0.0.1:" in error.message
    assert (error.exit_code, bool(error.hint)) == (2, True)


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\n",
        b"\n",
        b"{}\n",
        b"x" * (GREETING_LIMIT_BYTES + 2),
        b'{"paddock": 2, "job": "mnist", "nonce": "' + b"n" * 200 + b'", "mac": ""}\n',
        b'{"paddock": 2, "job": "mnist", "nonce": ["n"], "mac": {}}\n',
    ],
    ids=["http", "tls", "empty", "object", "too long", "long nonce", "no nonce"],
)
def test_a_stranger_is_turned_away_and_members_still_get_in(room: Room, data: bytes) -> None:
    """Port scanners and health checks come to every open port."""
    target = room.serve(job_of(2))
    stranger = room.connect(target)
    assert json.loads(room.read_line(stranger))["paddock"] == VERSION
    stranger.send(data)
    rest = room.read_line(stranger)
    assert rest == b"" or "refused" in json.loads(rest)
    assert room.server is not None and room.server.members == OWN
    member = room.join(target)
    room.run_until(lambda: member.joined)
    assert member.failed == []


def test_strangers_that_say_nothing_hold_nobody_up(room: Room) -> None:
    """300 open connections are 300 numbers, not 300 threads."""
    target = room.serve(job_of(2))
    for _ in range(300):
        room.connect(target)
    member = room.join(target)
    room.run_until(lambda: member.joined)
    assert member.joined


def test_a_recorded_handshake_does_not_open_the_door(room: Room) -> None:
    """Whoever listened once must not get in later."""
    target = room.serve(job_of(2))
    recorded, _ = room.shake_hands(room.connect(target))
    thief = room.connect(target)
    room.read_line(thief)
    thief.send(recorded)
    assert "the job key is wrong" in json.loads(room.read_line(thief))["refused"]


def test_a_repeated_line_ends_the_connection(room: Room) -> None:
    """A recorded "stop" sent again is no order."""
    sock = room.connect(room.serve(job_of(2)))
    _, session = room.shake_hands(sock)
    line = Signer(session, "to coordinator").sign(encode(Envelope(UID, -1, Leave(15))))
    sock.send(line + line)
    assert room.coordinator is not None and room.server is not None
    server = room.server
    room.run_until(lambda: server.members == OWN)
    assert room.coordinator.machine.phase == "gathering"


def test_only_the_addresses_of_ips_get_in_without_a_key(room: Room) -> None:
    """Without a key, --ips is the only list there is."""
    job = job_of(2, ips=("198.51.100.1", "198.51.100.2"))
    member = room.join(room.serve(job, b""), key=b"")
    room.run_until(lambda: member.failed)
    assert "127.0.0.1 is not in --ips" in member.failed[0].message


def test_a_name_among_ips_lets_its_address_in(room: Room) -> None:
    """Pods know each other by names; they are looked up when somebody comes."""
    member = room.join(room.serve(job_of(2, ips=("198.51.100.1", "localhost")), b""), key=b"")
    room.run_until(lambda: member.joined)
    assert not member.failed


def test_names_that_nobody_knows_let_nobody_in(room: Room) -> None:
    """The others at the door get the same answer, and the loop does not wait for any."""
    target = room.serve(job_of(3, ips=("a.invalid", "b.invalid", "198.51.100.1")), b"")
    members = [room.join(target, key=b"") for _ in range(3)]
    room.run_until(lambda: all(member.failed for member in members))
    for member in members:
        assert "127.0.0.1 is not in --ips" in member.failed[0].message


def test_whoever_speaks_before_it_was_let_in_has_to_go(room: Room) -> None:
    """It gets one line; a second one while its name is looked up ends the connection."""
    sock = room.connect(room.serve(job_of(2, ips=("a.invalid", "b.invalid")), b""))
    room.read_line(sock)
    sock.send(b'{"answer":"x"}\n{"answer":"x"}\n')
    while line := room.read_line(sock):
        assert "welcome" not in json.loads(line)
    assert room.server is not None
    assert room.server.members == OWN


def test_a_member_that_falls_silent_loses_its_lease(room: Room) -> None:
    """Its cable is cut: no packet ever says so."""
    sock = room.connect(room.serve(job_of(2, lease_seconds=0.2)))
    room.shake_hands(sock)
    assert room.server is not None
    while room.read_line(sock):
        continue  # until its connection is closed
    assert room.server.members == OWN


def test_a_member_that_speaks_keeps_its_lease(room: Room) -> None:
    """For several leases, each long enough for a machine that is busy."""
    member = room.join(room.serve(job_of(2, lease_seconds=0.6)))
    until = monotonic_ns() + 3_000_000_000
    room.run_until(lambda: monotonic_ns() > until)
    assert (member.lost, member.failed) == ([], [])


def test_a_hundred_members_join_at_once(room: Room) -> None:
    """The benchmark counts more; here none is lost in the rush."""
    target = room.serve(job_of(200))
    members = [room.join(target) for _ in range(100)]
    room.run_until(lambda: all(m.joined for m in members))
    assert [m.failed for m in members if m.failed] == []


# ----------------------------------------------------------------- the member's own side


def accept(room: Room, listener: socket.socket) -> socket.socket:
    """Take a member's connection as a coordinator would."""
    room.loop.at("turn", 0.0, room.loop.stop)
    room.loop.run()
    sock = room.keep(listener.accept()[0])
    sock.setblocking(False)
    return sock


def reset(sock: socket.socket) -> None:
    """Close with a reset, as a firewall or a lost host does."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()


def coordinate_by_hand(room: Room, lease_seconds: float) -> tuple[socket.socket, bytes, Ear]:
    """Be a coordinator: returns the connection, the session's key and the member."""
    listener, target = room.listen()
    member = room.join(target)
    sock = accept(room, listener)
    sock.send(greeting("mnist", "the-nonce", has_key=True))
    nonce = str(json.loads(room.read_line(sock))["nonce"])
    sock.send(welcome(KEY, "mnist", "the-nonce", nonce, UID, lease_seconds))
    room.run_until(lambda: member.joined)
    return sock, session_key(KEY, "the-nonce", nonce), member


def test_a_silent_coordinator_is_given_up_before_it_gives_us_up(room: Room) -> None:
    """Else our processes and those of the next attempt would run at once."""
    _sock, _session, member = coordinate_by_hand(room, 0.3)
    room.run_until(lambda: member.lost)
    assert member.lost == [("silent", "silent for 0.3 s")]


def test_a_closed_connection_is_not_silence(room: Room) -> None:
    """The coordinator ended: there is time for an orderly stop."""
    sock, _session, member = coordinate_by_hand(room, 30.0)
    assert b"Heartbeat" in room.read_line(sock)  # what is not read would make the kernel reset
    sock.close()
    room.run_until(lambda: member.lost)
    assert member.lost == [("closed", "connection closed")]


def test_a_broken_connection_is_not_taken_for_an_end(room: Room) -> None:
    """The coordinator may live on and run what it has; its kernel did not say goodbye."""
    sock, _session, member = coordinate_by_hand(room, 30.0)
    reset(sock)
    room.run_until(lambda: member.lost)
    assert [ending for ending, _ in member.lost] == ["cut"]


def test_exits_are_told_in_the_coordinators_time(room: Room) -> None:
    """Its clock is 90 s ahead; the culprit must not depend on whose host it is on."""
    ahead_ns = 90_000_000_000
    sock, session, member = coordinate_by_hand(room, 30.0)
    here = Signer(session, "to coordinator")
    heartbeat = decode(here.check(room.read_line(sock).rstrip(b"\n"))).message
    assert isinstance(heartbeat, Heartbeat)
    ack = HeartbeatAck(heartbeat.at_ns, monotonic_ns() + ahead_ns)
    sock.send(Signer(session, "to member").sign(encode(Envelope(UID, 0, ack))))
    client = member.client
    now = monotonic_ns()
    exit_ = Exit("worker", 0, 0, "a", 0, now, 7, error_at_ns=now - 5)
    room.run_until(lambda: client.translate(exit_) != exit_)
    told = client.translate(exit_)
    assert abs(told.at_ns - now - ahead_ns) <= told.uncertainty_ns
    assert told.at_ns - told.error_at_ns == 5


def test_a_forged_order_is_not_carried_out(room: Room) -> None:
    """The connection ends instead."""
    sock, session, member = coordinate_by_hand(room, 30.0)
    line = Signer(session, "to member").sign(
        encode(Envelope(UID, 0, Stop(0, "asked twice", force=True)))
    )
    sock.send(line.replace(b"true", b"fals"))
    room.run_until(lambda: member.lost)
    assert member.messages == []


def test_a_web_server_on_the_masters_port_is_told_apart(room: Room) -> None:
    """ "Connection refused" would be wrong, and waiting too."""
    listener, target = room.listen()
    member = room.join(target)
    accept(room, listener).send(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    room.run_until(lambda: member.failed)
    assert "is not a Paddock coordinator" in member.failed[0].message
    assert member.failed[0].exit_code == 2


def test_nobody_there_is_said_at_the_join_timeout(room: Room) -> None:
    """With what the kernel said, exit 124."""
    listener, target = room.listen()
    listener.close()
    room.join_seconds = 0.3
    member = room.join(target)
    room.run_until(lambda: member.failed)
    error = member.failed[0]
    assert "no coordinator answered within 0.3 s (--join-timeout): Connection refused" in str(error)
    assert (error.exit_code, len(member.waiting)) == (124, 1)
    assert member.refused


def test_an_address_with_colons_is_named_in_brackets(room: Room) -> None:
    """So that it can be copied back into the command."""
    listener, (_, port) = room.listen()
    listener.close()
    room.join_seconds = 0.1
    member = room.join(("::1", port))
    room.run_until(lambda: member.failed)
    assert member.failed[0].message.startswith(f"--master [::1]:{port}: no coordinator answered")


def test_a_coordinator_that_comes_late_is_found(room: Room) -> None:
    """Nodes start in any order."""
    listener, target = room.listen()
    listener.close()
    member = room.join(target)
    room.run_until(lambda: member.waiting)
    again = room.keep(socket.create_server(target))
    again.settimeout(10)
    room.run_until_each(lambda: bool(member.client._connection))
    sock = accept(room, again)
    sock.send(greeting("mnist", "the-nonce", has_key=True))
    assert json.loads(room.read_line(sock))["job"] == "mnist"
