"""What goes over a connection: it can be read back, and nothing else is let in. Pure."""

from __future__ import annotations

import json
import zlib

import pytest

from paddock.agent.transport import wire
from paddock.agent.transport.wire import (
    LineReader,
    Signer,
    WireError,
    answer,
    decode,
    encode,
    greeting,
    prove,
    read_answer,
    read_greeting,
    read_welcome,
    refusal,
    session_key,
    welcome,
)
from paddock.core.attempt.exits import Exit
from paddock.core.attempt.policy import Verdict
from paddock.core.hosts import Host
from paddock.core.rendezvous import messages as m
from paddock.core.rendezvous.messages import Budget, Envelope
from paddock.core.value import replace
from paddock.errors import PaddockError

KEY, JOB = b"k3y", "mnist"
HOST = Host(
    "node-ä", "fd00::1", "gpu", ("0", "GPU-7"), (0, 1), (("worker", 0, 2),), (1, 2), (3, 4, 5, 6)
)
EXIT = Exit("worker", 3, 1, "node1", 2, 10**18, 7, tail='Error: "\n\t\0�训', peer_loss=True)
VOTERS = m.Voters(0, ("a", "b"), ("10.0.0.1", "10.0.0.2"), (7001, 0), "a")
SAYINGS: list[m.ToCoordinator | m.ToMember] = [
    m.Join(HOST, "node/abc", None, (("--nnodes", "2:4"), ("roles", "worker")), 7001),
    m.Join(HOST, "node/abc", 3),
    m.Started(1, 2**32 - 1),
    m.Exited(EXIT),
    m.Stopped(4, HOST),
    m.Leave(15),
    m.Leave(15, lost="daemon"),
    m.Warn("some output is lost"),
    m.Stalled("nothing has moved for 60 s", has_suspect=True),
    m.CannotRun("no free ports", 2),
    m.LeaderConflict("u1d", 3, True, False, "node/abc", "10.0.0.2", 7002, (("--nnodes", "2:4"),)),
    m.Heartbeat(-5),
    m.Start(1, (HOST, replace(HOST, name="b")), ("a", "b"), (7001, 0), "a", Budget(1, 2, 0.5)),
    m.Start(1, (HOST,), ("a",), (7001,), "a", before=(VOTERS, VOTERS)),
    m.Committed(3),
    m.Stop(attempt=3, reason="node 1 is gone", force=True, grace_seconds=0.9),
    m.Stop(attempt=3, reason="node 1 is gone"),
    m.JobEnded(Verdict("fail", 7, "why", 2, EXIT, (EXIT, EXIT), restarts=1)),
    m.JobEnded(Verdict("cancel", 143, "SIGTERM", clean=True)),
    m.Reject("full", "another port", 2),
    m.HandOver(2, ("b", "c"), "10.0.0.2", 7002, Budget(1, 2)),
    m.HandOver(2, ("b",), "10.0.0.2", 7002, Budget(), 1.5, (VOTERS,), ("a", "d")),
    m.Notice("zeile\nzeile"),
    m.Notice("look", EXIT),
    m.HeartbeatAck(1, 2),
]
# What of core/rendezvous/messages.py stays in the coordinator, or is part of a message.
OTHERS = {
    "Budget", "Voters", "GiveWay", "Envelope", "Received", "Lost", "TimerFired", "Send", "Close",
    "SetTimer", "End",
}  # fmt: skip


@pytest.mark.parametrize("message", SAYINGS, ids=lambda m: type(m).__name__)
@pytest.mark.parametrize("attempt", [-1, 0, 7])
def test_every_message_comes_back_as_it_was(
    message: m.ToCoordinator | m.ToMember, attempt: int
) -> None:
    """One line, no matter what is in the texts."""
    envelope = Envelope("u1d", attempt, message)
    line = encode(envelope)
    assert b"\n" not in line
    assert decode(line) == envelope


def test_fields_that_change_are_another_version() -> None:
    """Nodes of two versions then say so when they meet, and not when the first rank fails."""
    fields = "".join(
        f"{name}{sorted(cls.__annotations__.items())}"
        for name, cls in sorted(wire._CLASSES.items())
    )
    assert (wire.VERSION, zlib.crc32(fields.encode())) == (7, 2657141806)


def test_every_kind_of_message_is_tried_here() -> None:
    """A new message must not travel untested."""
    kinds = {
        name
        for name, kind in vars(m).items()
        if isinstance(kind, type) and kind.__module__ == m.__name__
    }  # fmt: skip
    assert kinds - {type(message).__name__ for message in SAYINGS} == OTHERS


def written(body: bytes) -> bytes:
    """A letter with these fields of a message."""
    return b'{"uid":"u1d","in":0,' + body


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"GET / HTTP/1.1",
        b"\xff\xfe\x00",
        b"7",
        b"null",
        b"[]",
        b"{}",
        b'{"uid":"u1d","in":0}',
        written(b'"t":"Launch"}'),
        written(b'"t":["Heartbeat"]}'),
        written(b'"t":"Heartbeat"}'),
        written(b'"t":"Heartbeat","at_ns":"1"}'),
        written(b'"t":"Heartbeat","at_ns":true}'),
        written(b'"t":"Heartbeat","at_ns":1.5}'),
        written(b'"t":"Heartbeat","at_ns":1,"more":2}'),
        written(b'"t":"Notice","text":{"t":"Heartbeat","at_ns":1}}'),
        written(b'"t":"Exited","exit":{"t":"Host","name":"a","address":"b"}}'),
        written(b'"t":"Exited","exit":null}'),
        written(b'"t":"Exit","role":"worker"}'),
        written(b'"t":"Host","name":"a","address":"b"}'),
        written(b'"t":"Budget"}'),
        written(b'"t":"Letter","uid":"u1d","attempt":0,"message":null}'),
        written(b'"t":"Leave","signal":15,"force":1}'),
        written(b'"t":"Leave","signal":15,"force":false'),
        b"[" * 100_000,
        written(b'"t":' + b'{"t":' * 50_000),
        written(b'"t":"Heartbeat","at_ns":' + b"9" * 10_000 + b"}"),
        b'{"t":"Heartbeat","at_ns":1}',
        b'{"uid":"u1d","t":"Heartbeat","at_ns":1}',
        b'{"in":0,"t":"Heartbeat","at_ns":1}',
        b'{"uid":7,"in":0,"t":"Heartbeat","at_ns":1}',
        b'{"uid":null,"in":0,"t":"Heartbeat","at_ns":1}',
        b'{"uid":"u1d","in":"0","t":"Heartbeat","at_ns":1}',
        b'{"uid":"u1d","in":true,"t":"Heartbeat","at_ns":1}',
        b'{"uid":"u1d","in":0.0,"t":"Heartbeat","at_ns":1}',
        b'[{"uid":"u1d","in":0,"t":"Heartbeat","at_ns":1}]',
    ],
    ids=lambda line: line[:60].decode("latin-1"),
)
def test_what_is_no_message_is_refused(line: bytes) -> None:
    """With WireError only: one bad member must not take the coordinator down."""
    with pytest.raises(WireError):
        decode(line)


def test_a_line_written_by_hand_is_read() -> None:
    """So what is refused above is refused for what is wrong with it."""
    assert decode(written(b'"t":"Heartbeat","at_ns":1}')) == Envelope("u1d", 0, m.Heartbeat(1))


def test_a_message_inside_a_message_is_refused() -> None:
    """A tuple of hosts is a tuple of hosts."""
    envelope = Envelope("u1d", 0, m.Start(0, (HOST,), ("a",), (0,)))
    line = encode(envelope)
    assert decode(line) == envelope
    for wrong in (b'"a",', b'{"t":"Leave","signal":15},'):  # where a host belongs
        with pytest.raises(WireError, match=r"Start\.hosts is not of type"):
            decode(line.replace(b'"hosts":[', b'"hosts":[' + wrong))


# --------------------------------------------------------------------------------- lines


def test_lines_are_found_wherever_the_stream_is_cut() -> None:
    """TCP cuts where it likes."""
    data = b"one\ntwo\n\nthree\n"
    for size in range(1, len(data)):
        reader = LineReader(100)
        found = [
            line for i in range(0, len(data), size) for line in reader.feed(data[i : i + size])
        ]
        assert found == [b"one", b"two", b"", b"three"]


@pytest.mark.parametrize("data", [b"x" * 101 + b"\n", b"x" * 101])
def test_a_line_over_the_limit_is_refused(data: bytes) -> None:
    """Complete or still growing: memory is not given to strangers."""
    with pytest.raises(WireError, match="over 100 bytes"):
        LineReader(100).feed(data)


def test_a_line_that_grows_over_the_limit_is_refused() -> None:
    """In small steps too."""
    reader = LineReader(100)
    with pytest.raises(WireError, match="over 100 bytes"):
        for _ in range(101):
            reader.feed(b"x")


# ----------------------------------------------------------------------------- handshake


def test_the_right_key_is_accepted_by_both() -> None:
    """Greeting, answer, welcome."""
    assert read_greeting(greeting(JOB, "server-nonce", has_key=True), JOB, KEY) == "server-nonce"
    mine = answer(KEY, JOB, "server-nonce", "member-nonce")
    assert read_answer(mine, KEY, JOB, "server-nonce") == "member-nonce"
    line = welcome(KEY, JOB, "server-nonce", "member-nonce", "u1d", 3.0)
    assert read_welcome(line, KEY, JOB, "server-nonce", "member-nonce") == ("u1d", 3.0)


def test_without_a_key_both_go_on_unsigned() -> None:
    """Inside a closed network; the launcher warns."""
    mine = answer(b"", JOB, "server-nonce", "member-nonce")
    assert read_answer(mine, b"", JOB, "server-nonce") == "member-nonce"
    assert session_key(b"", "a", "b") == b""


def test_a_wrong_key_is_refused() -> None:
    """And the reason tells what to set."""
    with pytest.raises(WireError, match="job key is wrong") as caught:
        read_answer(answer(b"other", JOB, "n" * 9, "m" * 9), KEY, JOB, "n" * 9)
    assert "PADDOCK_TOKEN" in caught.value.hint


def test_an_empty_proof_is_refused() -> None:
    """A member without a key must not pass a coordinator that has one."""
    with pytest.raises(WireError, match="job key is wrong"):
        read_answer(answer(b"", JOB, "n" * 9, "m" * 9), KEY, JOB, "n" * 9)


def test_a_recorded_answer_does_not_fit_another_connection() -> None:
    """The coordinator's nonce is new each time."""
    recorded = answer(KEY, JOB, "first-nonce", "member-nonce")
    with pytest.raises(WireError, match="job key is wrong"):
        read_answer(recorded, KEY, JOB, "second-nonce")


def test_a_proof_of_the_member_is_none_of_the_coordinator() -> None:
    """A reflected proof must not make an impostor a coordinator."""
    line = json.dumps({
        "welcome": True, "uid": "u", "lease": 3,
        "mac": prove(KEY, "member", JOB, "server-nonce", "member-nonce"),
    }).encode()  # fmt: skip
    with pytest.raises(WireError, match="does not have this job's key"):
        read_welcome(line, KEY, JOB, "server-nonce", "member-nonce")


def test_an_impostor_is_no_coordinator() -> None:
    """It says that it has a key, and does not."""
    line = welcome(b"guess", JOB, "s", "m", "u1d", 3.0)
    with pytest.raises(WireError, match="does not have this job's key"):
        read_welcome(line, KEY, JOB, "s", "m")


@pytest.mark.parametrize(("there", "here"), [(True, b""), (False, KEY)])
def test_a_key_on_one_side_only_is_explained(there: bool, here: bytes) -> None:
    """The commonest mistake: the token was not copied along."""
    with pytest.raises(WireError, match="key") as caught:
        read_greeting(greeting(JOB, "nonce-nonce", has_key=there), JOB, here)
    assert "PADDOCK_TOKEN" in caught.value.hint


def test_another_job_is_named_by_both_sides() -> None:
    """Two jobs on one --master address."""
    with pytest.raises(WireError, match="runs job 'bert', this node has job 'mnist'"):
        read_greeting(greeting("bert", "nonce-nonce", has_key=True), JOB, KEY)
    with pytest.raises(WireError, match="runs job 'mnist', not 'bert'"):
        read_answer(answer(KEY, "bert", "n" * 9, "m" * 9), KEY, JOB, "n" * 9)


@pytest.mark.parametrize(
    "line",
    [
        b"HTTP/1.1 400 Bad Request\r",
        b"SSH-2.0-OpenSSH_9.2",
        b"\x15\x03\x01\x00\x02\x02",
        b"",
        b"[]",
        b'"text"',
        b"{}",
        b'{"paddock": 1, "job": "mnist", "nonce": "nnnnnnnn", "key": true}',
        b'{"paddock": 2, "job": "mnist", "key": true}',
        b'{"paddock": 2, "job": "mnist", "nonce": 7, "key": true}',
    ],
)
def test_another_program_is_not_taken_for_a_coordinator(line: bytes) -> None:
    """A web server, ssh, TLS or another version on the port of --master."""
    with pytest.raises(WireError) as caught:
        read_greeting(line, JOB, KEY)
    assert "--master" in caught.value.hint


def test_a_refusal_carries_its_hint_and_code() -> None:
    """The member exits as the coordinator says."""
    line = refusal(PaddockError("full", hint="another port", exit_code=2))
    with pytest.raises(WireError, match="refused by the coordinator: full") as caught:
        read_welcome(line, KEY, JOB, "s", "m")
    assert (caught.value.hint, caught.value.exit_code) == ("another port", 2)


@pytest.mark.parametrize("lease", ["0", "-1", '"3"', "null", "NaN", "Infinity"])
def test_a_lease_that_is_no_time_is_refused(lease: str) -> None:
    """It would make timers that never or always fire."""
    mac = prove(KEY, "coordinator", JOB, "s", "m")
    line = f'{{"welcome": true, "uid": "u", "lease": {lease}, "mac": "{mac}"}}'.encode()
    with pytest.raises(WireError):
        read_welcome(line, KEY, JOB, "s", "m")


# ---------------------------------------------------------------------------- signatures


def pair() -> tuple[Signer, Signer]:
    """The two ends of one direction."""
    key = session_key(KEY, "s", "m")
    return Signer(key, "to member"), Signer(key, "to member")


def test_signed_lines_are_read_in_order() -> None:
    """Each as it was."""
    there, here = pair()
    texts = [b"one", b"two", b""]
    assert [here.check(there.sign(text).rstrip(b"\n")) for text in texts] == texts


def test_a_forged_line_is_refused() -> None:
    """Somebody between us must not stop a job."""
    there, here = pair()
    line = there.sign(b'{"t":"Stop"}').rstrip(b"\n")
    with pytest.raises(WireError, match="wrong signature"):
        here.check(line.replace(b"Stop", b"Over"))


@pytest.mark.parametrize("order", [[0, 0], [1], [1, 0]])
def test_repeated_dropped_or_reordered_lines_are_refused(order: list[int]) -> None:
    """A line recorded earlier is no order now."""
    there, here = pair()
    lines = [there.sign(text).rstrip(b"\n") for text in (b"one", b"two")]
    with pytest.raises(WireError, match="wrong signature"):
        for i in order:
            here.check(lines[i])


def test_a_line_of_the_other_direction_is_refused() -> None:
    """What we said cannot be said back to us."""
    key = session_key(KEY, "s", "m")
    line = Signer(key, "to member").sign(b"one").rstrip(b"\n")
    with pytest.raises(WireError, match="wrong signature"):
        Signer(key, "to coordinator").check(line)


@pytest.mark.parametrize("line", [b"", b"short", b"0" * 32, b"\xff" * 64])
def test_an_unsigned_line_is_refused(line: bytes) -> None:
    """Also one that is shorter than a signature."""
    with pytest.raises(WireError, match="wrong signature"):
        pair()[1].check(line)
