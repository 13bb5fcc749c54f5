"""The host list of a large job travels packed: the same for the member, and much shorter."""

from __future__ import annotations

import json
import zlib
from base64 import b64encode

import pytest

from paddock.agent import messages
from paddock.agent.wire import LINE_LIMIT_BYTES, WireError, decode, encode, packed
from paddock.core.hosts import Host

HOSTS = tuple(
    Host(f"node{i}", f"10.0.{i // 256}.{i % 256}", "gpu", tuple("01234567"), tuple(range(8)))
    for i in range(1024)
)
BEGIN = messages.Begin(3, "u1d", 17, HOSTS)


def with_hosts(hosts: bytes) -> bytes:
    """A Begin whose host list is these bytes of JSON."""
    return b'{"t":"Begin","attempt":3,"uid":"u1d","node_rank":17,"hosts":' + hosts + b"}"


def test_a_packed_host_list_reads_as_the_plain_one() -> None:
    """Members plan from it: one difference and the job would not start."""
    plain = json.dumps(json.loads(encode(BEGIN))["hosts"]).encode()
    assert decode(with_hosts(packed(plain))) == decode(with_hosts(plain)) == BEGIN


def test_a_packed_host_list_is_ten_times_shorter() -> None:
    """1,024 members get it from one coordinator; signing and sending it was half the time."""
    plain = json.dumps(json.loads(encode(BEGIN))["hosts"], separators=(",", ":")).encode()
    assert len(packed(plain)) * 10 < len(plain)


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
