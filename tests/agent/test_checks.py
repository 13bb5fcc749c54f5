"""Messages that are well formed and impossible: found out before they reach a machine."""

from __future__ import annotations

import pytest

from paddock.agent import messages
from paddock.agent.wire import WireError, decode, encode
from paddock.core.exits import Exit
from paddock.core.hosts import Host
from paddock.core.value import replace

HOST = Host("node1", "10.0.0.1", ports=(1,), service_ports=(2, 3, 4, 5))
EXIT = Exit("worker", 0, 0, "node1", 0, 1)


@pytest.mark.parametrize(
    "message",
    [
        messages.Facts(replace(HOST, address="1\0"), "k", None, ()),
        messages.Facts(replace(HOST, address=""), "k", None, ()),
        messages.Facts(replace(HOST, address="a b"), "k", None, ()),
        messages.Facts(replace(HOST, ports=(99_999_999,)), "k", None, ()),
        messages.Facts(replace(HOST, ports=(1, 2)), "k", None, ()),
        messages.Facts(replace(HOST, service_ports=()), "k", None, ()),
        messages.Facts(replace(HOST, device_kind="tpu"), "k", None, ()),
        messages.Facts(replace(HOST, device_labels=("0",)), "k", None, ()),
        messages.Facts(HOST, "k", -7, ()),
        messages.ProcEnded(replace(EXIT, code=10**30)),
        messages.ProcEnded(replace(EXIT, signal=-500)),
        messages.ProcEnded(replace(EXIT, at_ns=10**30)),
        messages.Leave(10**30, False),
        messages.CannotRun("x", 10**30),
        messages.Begin(0, "a\nb", 0, (HOST,)),
    ],
    ids=str,
)
def test_an_impossible_message_is_refused(message: messages.ToCoordinator) -> None:
    """A broken member must not make a coordinator stumble over its numbers."""
    with pytest.raises(WireError):
        decode(encode(message))


@pytest.mark.parametrize(
    "text", [b'{"t":"Said","text":"\\ud800"}', b'{"t":"Said","text":"\\uDFFF"}']
)
def test_half_a_character_is_refused(text: bytes) -> None:
    """JSON can write what UTF-8 cannot; it would fail later, far from here."""
    with pytest.raises(WireError):
        decode(text)


def test_whole_characters_of_two_halves_pass() -> None:
    """Which is how JSON writes an emoji."""
    assert decode(b'{"t":"Said","text":"\\ud83d\\ude00"}') == messages.Said("😀")
