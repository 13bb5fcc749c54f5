"""Messages that are well formed and impossible: found out before they reach a machine."""

from __future__ import annotations

import pytest

from paddock.agent.transport.wire import WireError, decode, encode
from paddock.core.attempt.exits import Exit
from paddock.core.attempt.policy import Verdict
from paddock.core.hosts import Host
from paddock.core.rendezvous import messages as m
from paddock.core.rendezvous.messages import Envelope
from paddock.core.value import replace

HOST = Host("node1", "10.0.0.1", ports=(1,), service_ports=(2, 3, 4, 5))
EXIT = Exit("worker", 0, 0, "node1", 0, 1)
JOIN = m.Join(HOST, "k")
START = m.Start(0, (HOST, HOST), ("a", "b"), (7001, 0), "a")
NEXT = m.HandOver(1, ("b",), "10.0.0.2", 7002, m.Budget(1, 2, 3.0))
CLAIM = m.LeaderConflict("u1d", 3, True, True, "b", "10.0.0.2", 7002)
VOTERS = m.Voters(0, ("a", "b"), ("10.0.0.1", "10.0.0.2"), (7001, 0), "a")
HUGE = 10**30

IMPOSSIBLE: list[m.ToCoordinator | m.ToMember] = [
    replace(JOIN, host=replace(HOST, address="1\0")),
    replace(JOIN, host=replace(HOST, address="")),
    replace(JOIN, host=replace(HOST, address="a b")),
    replace(JOIN, host=replace(HOST, ports=(99_999_999,))),
    replace(JOIN, host=replace(HOST, ports=(1, 2))),
    replace(JOIN, host=replace(HOST, service_ports=())),
    replace(JOIN, host=replace(HOST, device_kind="tpu")),
    replace(JOIN, host=replace(HOST, device_labels=("0",))),
    replace(JOIN, host=replace(HOST, slots=(("worker", 0, -1),), ports=())),
    replace(JOIN, host=replace(HOST, slots=(("king", 0, 1),))),
    replace(JOIN, node_rank=-7),
    replace(JOIN, key=""),
    replace(JOIN, key="a\nb"),
    replace(JOIN, key="k" * 1025),
    replace(JOIN, listen_port=65_536),
    replace(JOIN, started=-2),
    replace(JOIN, started=HUGE),
    replace(JOIN, coordinator_key="a b"),
    replace(CLAIM, run=""),
    replace(CLAIM, attempt=-2),
    replace(CLAIM, attempt=HUGE),
    replace(CLAIM, key="a\tb"),
    replace(CLAIM, address=""),
    replace(CLAIM, listen_port=-1),
    m.Committed(-1),
    m.Started(-1, 0),
    m.Stopped(-1, HOST),
    m.Stopped(0, replace(HOST, address="")),
    m.Exited(replace(EXIT, code=HUGE)),
    m.Exited(replace(EXIT, signal=-500)),
    m.Exited(replace(EXIT, at_ns=HUGE)),
    m.Leave(HUGE),
    m.Leave(0),
    m.Leave(15, lost="keys"),  # type: ignore[arg-type]  # what a broken member may say
    m.CannotRun("x", HUGE),
    m.Heartbeat(HUGE),
    m.HeartbeatAck(-HUGE, 0),
    replace(START, attempt=-1),
    replace(START, hosts=(HOST, replace(HOST, service_ports=(1, 2, 3)))),
    replace(START, hosts=(HOST, replace(HOST, address=""))),
    replace(START, hosts=(HOST,)),
    m.Start(0, ()),
    replace(START, hosts=(), keys=(), listen_ports=()),
    replace(START, keys=("a",)),
    replace(START, keys=("a", "b", "c")),
    replace(START, keys=("a", "")),
    replace(START, listen_ports=()),
    replace(START, listen_ports=(1, -1)),
    replace(START, budget=m.Budget(-1)),
    replace(START, budget=m.Budget(0, -1)),
    replace(START, budget=m.Budget(0, 0, -0.5)),
    replace(START, budget=m.Budget(0, 0, float("nan"))),
    replace(START, budget=m.Budget(0, 0, float("inf"))),
    replace(NEXT, keys=()),
    replace(NEXT, keys=("",)),
    replace(NEXT, keys=("b", "c d")),
    replace(NEXT, attempt=-1),
    replace(NEXT, address=""),
    replace(NEXT, listen_port=65_536),
    replace(NEXT, budget=m.Budget(-1)),
    replace(NEXT, wait_seconds=-1.0),
    replace(NEXT, wait_seconds=float("nan")),
    replace(NEXT, gone=("a", "")),
    *(
        replace(message, **{field: (VOTERS, replace(VOTERS, **wrong))})
        for message, field in ((START, "before"), (NEXT, "voters"))
        for wrong in (
            {"attempt": -1},
            {"keys": ("a",)},
            {"keys": ("a", "b c")},
            {"coordinator_key": ""},
            {"addresses": ("10.0.0.1",)},
            {"addresses": ("10.0.0.1", "")},
            {"listen_ports": (1,)},
            {"listen_ports": (1, 65_536)},
        )
    ),
    m.Stop(0, "why", grace_seconds=-1.0),
    m.Stop(0, "why", grace_seconds=float("nan")),
    m.JobEnded(Verdict("fail", -1, "")),
    m.JobEnded(Verdict("fail", 1, "", culprit=replace(EXIT, code=HUGE))),
    m.JobEnded(Verdict("fail", 1, "", exits=(EXIT, replace(EXIT, rank=-2)))),
    m.Reject("no", exit_code=256),
    m.Notice("look", replace(EXIT, node_rank=-1)),
]


@pytest.mark.parametrize("message", IMPOSSIBLE, ids=str)
def test_an_impossible_message_is_refused(message: m.ToCoordinator | m.ToMember) -> None:
    """A broken member must not make a coordinator stumble over its numbers; nor the reverse."""
    with pytest.raises(WireError, match="cannot be read"):
        decode(encode(Envelope("u1d", 0, message)))


@pytest.mark.parametrize(
    "message", [JOIN, START, NEXT, CLAIM, m.Leave(15), m.Exited(EXIT)], ids=str
)
def test_what_these_were_made_from_is_possible(message: m.ToCoordinator | m.ToMember) -> None:
    """Each above is wrong in one point only."""
    envelope = Envelope("u1d", -1, message)
    assert decode(encode(envelope)) == envelope


@pytest.mark.parametrize(
    "envelope",
    [
        Envelope("u1d", -2, m.Leave(15)),
        Envelope("u1d", HUGE, m.Leave(15)),
        Envelope("", 0, m.Leave(15)),
        Envelope("a b", 0, m.Leave(15)),
    ],
    ids=str,
)
def test_a_letter_of_no_run_or_attempt_is_refused(envelope: Envelope) -> None:
    """-1 is before the first attempt; the uid becomes part of environments."""
    with pytest.raises(WireError, match="cannot be read"):
        decode(encode(envelope))


@pytest.mark.parametrize("half", [b"\\ud800", b"\\uDFFF"])
def test_half_a_character_is_refused(half: bytes) -> None:
    """JSON can write what UTF-8 cannot; it would fail later, far from here."""
    with pytest.raises(WireError, match="surrogates"):
        decode(b'{"uid":"u1d","in":0,"t":"Notice","text":"' + half + b'"}')


def test_whole_characters_of_two_halves_pass() -> None:
    """Which is how JSON writes an emoji."""
    envelope = decode(b'{"uid":"u1d","in":0,"t":"Notice","text":"\\ud83d\\ude00"}')
    assert envelope.message == m.Notice("😀")
