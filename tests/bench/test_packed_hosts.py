"""The host list of a large job travels packed: the same for the member, and much shorter."""

from __future__ import annotations

import json
import zlib
from base64 import b64encode

import pytest

from paddock.agent.transport.wire import LINE_LIMIT_BYTES, WireError, decode, encode
from paddock.core.hosts import Host
from paddock.core.rendezvous.messages import Envelope, Start
from paddock.core.value import replace

HOSTS = tuple(
    Host(f"node{i}", f"10.0.{i // 256}.{i % 256}", "gpu", tuple("01234567"), tuple(range(8)))
    for i in range(1024)
)
KEYS = tuple(f"node{i}/pod" for i in range(1024))
START = Start(3, HOSTS, KEYS, (0,) * 1024, KEYS[0])
LETTER = Envelope("u1d", 3, START)


def with_hosts(hosts: bytes) -> bytes:
    """A Start whose host list is these bytes of JSON."""
    line = encode(Envelope("u1d", 3, replace(START, hosts=())))
    return line.replace(b'"hosts":[]', b'"hosts":' + hosts)


def plain_hosts() -> bytes:
    """The list as it would be sent if it were short."""
    each = (encode(Envelope("u1d", 3, replace(START, hosts=(host,)))) for host in HOSTS)
    hosts = [json.loads(line)["hosts"][0] for line in each]
    return json.dumps(hosts, separators=(",", ":")).encode()


def test_a_packed_host_list_reads_as_the_plain_one() -> None:
    """Members plan from it: one difference and the job would not start."""
    line = encode(LETTER)
    assert isinstance(json.loads(line)["hosts"], str)
    assert decode(line) == decode(with_hosts(plain_hosts())) == LETTER


def test_a_packed_host_list_is_ten_times_shorter() -> None:
    """1,024 members get it from one coordinator; signing and sending it was half the time."""
    assert len(json.loads(encode(LETTER))["hosts"]) * 10 < len(plain_hosts())


@pytest.mark.parametrize(
    "hosts",
    [
        b'"no base64!"',
        b'"' + b64encode(b"not deflated") + b'"',
        b'"' + b64encode(zlib.compress(b"[]")[:-3]) + b'"',
        b'"' + b64encode(zlib.compress(b"not json")) + b'"',
        b'"' + b64encode(zlib.compress(b'["a host"]')) + b'"',
    ],
)
def test_a_list_that_cannot_be_unpacked_is_refused(hosts: bytes) -> None:
    """decode raises WireError and nothing else, whatever came."""
    with pytest.raises(WireError):
        decode(with_hosts(hosts))


def test_a_list_that_grows_beyond_the_limit_is_refused() -> None:
    """A few kilobytes must not become gigabytes of memory."""
    bomb = zlib.compress(b" " * (LINE_LIMIT_BYTES + 1) + b"[]")
    with pytest.raises(WireError, match="too long"):
        decode(with_hosts(b'"' + b64encode(bomb) + b'"'))
