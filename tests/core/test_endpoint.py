"""Endpoints as people write them: what is read, and what is said of the others."""

from __future__ import annotations

import pytest

from jobfile.reading import problems
from paddock.core.endpoint import HINT, join_endpoint, parse_endpoint, split_endpoint
from paddock.errors import UsageError


@pytest.mark.parametrize(
    ("text", "default", "endpoint"),
    [
        ("node0:6170", 0, ("node0", 6170)),
        ("10.0.0.1:1", 0, ("10.0.0.1", 1)),
        ("h:65535", 2379, ("h", 65535)),
        ("h:00080", 0, ("h", 80)),
        ("h", 2379, ("h", 2379)),
        ("[fd00::1]:80", 0, ("fd00::1", 80)),
        ("[fe80::1%eth0]:80", 0, ("fe80::1%eth0", 80)),
        ("[::1]", 2379, ("::1", 2379)),
        ("[10.0.0.1]:80", 0, ("10.0.0.1", 80)),
    ],
)
def test_an_endpoint_is_read_and_written(
    text: str, default: int, endpoint: tuple[str, int]
) -> None:
    """What was written is read as the same endpoint again."""
    assert parse_endpoint(text, default) == endpoint
    assert parse_endpoint(join_endpoint(*endpoint)) == endpoint
    host, port = split_endpoint(join_endpoint(*endpoint))
    assert (host, int(port)) == endpoint


@pytest.mark.parametrize(
    ("text", "default", "what"),
    [
        ("", 80, "endpoint '' is empty"),
        ("node0", 0, "endpoint 'node0' has no port"),
        ("node0:", 80, "endpoint 'node0:' has no port"),
        ("[::1]", 0, "endpoint '[::1]' has no port"),
        (":80", 0, "endpoint ':80': '' is not a host name or address"),
        ("[::1", 80, "endpoint '[::1': '' is not a host name or address"),
        ("[::1]80", 80, "endpoint '[::1]80': '' is not a host name or address"),
        ("a b:80", 0, "endpoint 'a b:80': 'a b' is not a host name or address"),
        ("u@h:80", 0, "endpoint 'u@h:80': 'u@h' is not a host name or address"),
        ("::1:80", 0, "endpoint '::1:80' is an IPv6 address without brackets"),
        ("h:1:2", 80, "endpoint 'h:1:2' is an IPv6 address without brackets"),
        ("a:b", 0, "endpoint 'a:b': port 'b' is not a number in 1..65535"),
        ("a:0", 0, "endpoint 'a:0': port '0' is not a number in 1..65535"),
        ("a:65536", 80, "endpoint 'a:65536': port '65536' is not a number in 1..65535"),
        ("a:²", 0, "endpoint 'a:²': port '²' is not a number in 1..65535"),
        ("a:-1", 0, "endpoint 'a:-1': port '-1' is not a number in 1..65535"),
        ("a:" + "1" * 6, 0, "endpoint 'a:111111': port '111111' is not a number in 1..65535"),
    ],
)
def test_a_bad_endpoint_is_explained(text: str, default: int, what: str) -> None:
    """The text, what is wrong, the limit, and how to write it."""
    with pytest.raises(UsageError) as caught:
        parse_endpoint(text, default)
    assert (caught.value.message, caught.value.hint) == (what, HINT)


@pytest.mark.parametrize(
    ("line", "env", "name"),
    [
        ("--master a:0 --nnodes 2", {}, "--master a:0"),
        ("--master https://a:0/ --nnodes 2", {}, "--master https://a:0/"),
        ("--master etcd://u:secret@b,a:0?ca=f", {}, "--master etcd://***@b,a:0?ca=f"),
        ("--elastic_server a:0", {}, "--elastic_server a:0"),
        ("--rdzv-endpoint a:00 --nnodes 2", {}, "--rdzv-endpoint a:00"),
        ("--servers a:0 --workers a:2", {}, "--servers a:0"),
        ("--servers a:1 --workers a:0", {}, "--workers a:0"),
        ("--servers a:1 --workers a:2 --heter_workers a:0", {}, "--heter_workers a:0"),
        ("", {"PADDLE_MASTER": "a:0"}, "PADDLE_MASTER=a:0"),
        ("", {"PADDLE_TRAINER_ENDPOINTS": "a:0,b:1"}, "PADDLE_TRAINER_ENDPOINTS=a:0"),
    ],
)
def test_every_flag_says_it_in_the_same_words(line: str, env: dict[str, str], name: str) -> None:
    """The flag as it was written, without a password in it."""
    (problem,) = (p for p in problems(f"{line} a.py", env) if "port '0" in p.message)
    assert problem.message.startswith(f"{name}: endpoint 'a:0")
    assert problem.message.endswith("' is not a number in 1..65535") and problem.hint == HINT
