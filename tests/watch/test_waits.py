"""What is seen of ranks without their stacks: connections, the rank at their other end, rights."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from paddock.watch.procfs import call_of, waits_on
from paddock.watch.stacks import NO_RIGHT, RankStack, dump, find_pyspy, with_ranks

PAIR = """\
import socket, sys
listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)
port = int(input())
mine = socket.create_connection(("127.0.0.1", port))
theirs, _ = listener.accept()
if sys.argv[1] == "fill":
    mine.setblocking(False)
    try:
        while True: mine.send(bytes(1 << 16))
    except BlockingIOError: pass
    mine.setblocking(True)
    input()
mine.recv(1)
"""


@pytest.fixture
def ranks() -> Iterator[list[subprocess.Popen[str]]]:
    """Rank 0 waits for a byte of rank 1, which does not read what rank 0 has sent."""
    how = ["fill", "recv"]
    pair = [
        subprocess.Popen([sys.executable, "-c", PAIR, word], text=True, bufsize=1,
                         stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        for word in how
    ]  # fmt: skip
    try:
        ports = [(p.stdout or sys.stdin).readline() for p in pair]
        for process, port in zip(pair, reversed(ports), strict=True):
            assert process.stdin
            process.stdin.write(port)
        wait_until(lambda: call_of(pair[1].pid)[0] not in (-1, 0))
        wait_until(lambda: waits_on({0: pair[0].pid})[0].get(0) is not None)
        yield pair
    finally:
        for process in pair:
            process.kill()
            process.communicate()


def wait_until(is_true: Callable[[], bool]) -> None:
    until = time.monotonic() + 20
    while not is_true():
        assert time.monotonic() < until
        time.sleep(0.02)  # sleep: a process that begins to wait tells nobody


def test_the_rank_at_the_other_end_of_a_connection_is_named(
    ranks: list[subprocess.Popen[str]],
) -> None:
    waits, ends = waits_on({0: ranks[0].pid, 1: ranks[1].pid})
    stack = RankStack(1, waits=waits[1])
    assert stack.on == stack.place == "recvfrom: rank 0"
    assert ends == {}, "both ends are here"


def test_the_rank_at_the_other_end_is_named_where_it_is_on_another_node(
    ranks: list[subprocess.Popen[str]],
) -> None:
    """Each node knows its own ends only; who puts the answers together knows both."""
    (here,), ends = dump({1: ranks[1].pid}, "")
    assert here.on.startswith("recvfrom: a connection to 127.0.0.1:")
    _, others = dump({0: ranks[0].pid}, "")
    (whole,) = with_ranks([here], {**ends, **others})
    assert whole.on == "recvfrom: rank 0"


def test_a_rank_that_leaves_bytes_unread_is_named(ranks: list[subprocess.Popen[str]]) -> None:
    (stack,), _ = dump({0: ranks[0].pid}, "")
    _, others = dump({1: ranks[1].pid}, "")
    (whole,) = with_ranks([stack], others)
    assert whole.waits.unread
    assert whole.waits.unread[0].startswith("rank 1 (127.0.0.1:")


def test_a_rank_that_may_not_be_traced_says_what_is_missing() -> None:
    """A real refusal: another user's process, and py-spy without CAP_SYS_PTRACE."""
    pyspy, setpriv = find_pyspy(os.environ), shutil.which("setpriv")
    if not pyspy or not setpriv or os.geteuid():
        pytest.skip("needs root, setpriv and py-spy")
    sleeper = subprocess.Popen([setpriv, "--reuid=65534", "--clear-groups", "sleep", "60"])
    drop = [setpriv, "--bounding-set=-sys_ptrace", "--inh-caps=-sys_ptrace", sys.executable, "-c"]
    code = (
        "import sys; from paddock.watch.stacks import dump\n"
        "print(dump({0: int(sys.argv[1])}, sys.argv[2])[0][0].problem)"
    )
    try:
        argv = [*drop, code, str(sleeper.pid), pyspy]
        said = subprocess.run(argv, check=True, capture_output=True, text=True, timeout=60).stdout
    finally:
        sleeper.kill()
        sleeper.wait()
    assert said.startswith(f"{NO_RIGHT}: ")
    assert "SYS_PTRACE" in said or "ptrace_scope" in said


def test_a_dump_that_hangs_costs_its_own_rank_only(tmp_path: Path) -> None:
    """Six ranks, one of which py-spy cannot end with; the others' stacks are whole."""
    pyspy = find_pyspy(os.environ)
    if not pyspy:
        pytest.skip("py-spy is not installed")
    code = "import time\ndef f(): time.sleep(600)\nprint('up', flush=True); f()"
    sleepers = [
        subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) for _ in range(6)
    ]
    try:
        for each in sleepers:
            assert each.stdout and each.stdout.readline()
        slow = tmp_path / "py-spy"
        odd = sleepers[2].pid
        slow.write_text(f'#!/bin/sh\n[ "$5" = {odd} ] && exec sleep 600\nexec {pyspy} "$@"\n')
        slow.chmod(0o755)
        stacks, _ = dump({rank: each.pid for rank, each in enumerate(sleepers)}, str(slow), 20.0)
    finally:
        for each in sleepers:
            each.kill()
            each.communicate()
    assert [stack.rank for stack in stacks if stack.problem] == [2]
    assert {stack.place for stack in stacks if stack.rank != 2} == {"f at <string>:2"}
