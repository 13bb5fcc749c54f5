"""Servers at IPv6 addresses."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import numpy as np
import pytest

from paddock.ps import Client, SparseSpec
from paddock.ps.server.main import make_server, ready_line
from paddock.ps.server.options import read_options
from paddock.ps.server.serve import Server


@pytest.fixture
def server() -> Iterator[tuple[Server, str]]:
    """One that listens on ::1, and its endpoint."""
    with socket.create_server(("::1", 0), family=socket.AF_INET6) as free:
        port = free.getsockname()[1]
    endpoint = f"[::1]:{port}"
    options = read_options([f"--port={port}", f"--endpoints={endpoint}"], {})
    made = make_server(options)
    made.start()
    assert f"is ready on {endpoint} " in ready_line(made, options)
    yield made, endpoint
    made.stop()


def test_a_client_reaches_a_server_at_an_ipv6_address(server: tuple[Server, str]) -> None:
    """The brackets are no part of the address; trainers of one machine take the short way too."""
    with Client(server[1], trainer=0) as ps:
        ps.create(SparseSpec("words", 2))
        ps.push("words", [1], np.ones((1, 2)))
        ps.flush()
        assert ps.status()[0]["rows"] == 1
        assert ps.peers[0].link("pull").welcome.unix


def test_brackets_may_stand_around_an_address_to_bind() -> None:
    """As they are written elsewhere."""
    assert read_options(["--bind=[::1]"], {}).bind == "::1"
    found = read_options(["--port=7164", "--endpoints=[fd00::1]:7164,[fd00::2]:7164"], {},
                         lambda host: host == "fd00::2")  # fmt: skip
    assert (found.index, found.bind) == (1, "fd00::2")
