"""Workers of a parallel run do not meet: each has its own network, and some tests run alone."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from beside import Turns

HERE = Path(__file__).resolve().parent
LEAVE = "from beside import leave_network; import socket\nleft = leave_network()\n"
# Says its port, and keeps it until its standard input ends.
LISTEN = f"""{LEAVE}
sock = socket.create_server(("127.0.0.1", 47113))
print(left, sock.getsockname()[1], flush=True)
input()
"""
ASK = f"""{LEAVE}
try:
    socket.getaddrinfo("no-such-name.invalid", 1)
except socket.gaierror as error:
    print(left, error.errno == socket.EAI_NONAME, socket.getaddrinfo("localhost", 1)[0][4][0])
"""


def in_a_worker(text: str) -> subprocess.Popen[str]:
    """A Python process that runs this as a worker would."""
    return subprocess.Popen(
        [sys.executable, "-c", text], cwd=HERE, text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip


def test_two_workers_listen_at_the_same_port() -> None:
    """Tests with a port of their own choosing do not take it from each other."""
    workers = [in_a_worker(LISTEN) for _ in range(2)]
    try:
        said = [worker.stdout.readline() for worker in workers if worker.stdout]
    finally:
        for worker in workers:
            worker.communicate("\n", timeout=20)
    if any(line.startswith("False") for line in said):
        pytest.skip("a network of one's own needs root")
    assert said == ["True 47113\n"] * 2


def test_a_worker_asks_no_name_server() -> None:
    """An unknown name is unknown at once, whatever the machine's network says about it."""
    said, _ = in_a_worker(ASK).communicate(timeout=20)
    if said.startswith("False"):
        pytest.skip("a network of one's own needs root")
    left, is_unknown, address = said.split()
    assert (left, is_unknown) == ("True", "True")
    assert address in ("127.0.0.1", "::1")


def test_a_test_that_runs_alone_waits_for_the_others(tmp_path: Path) -> None:
    """And they for it; those that may run side by side do not wait for each other."""
    ways = [Turns(tmp_path / "turns") for _ in range(3)]
    order = []

    def run_alone() -> None:
        with ways[2].turn(alone=True):
            order.append("alone")

    thread = threading.Thread(target=run_alone)
    with ways[0].turn(alone=False), ways[1].turn(alone=False):
        thread.start()
        thread.join(0.05)
        order.append("beside")
    thread.join(20)
    assert order == ["beside", "alone"]
    for way in ways:
        way.close()
