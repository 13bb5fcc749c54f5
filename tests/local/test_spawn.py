"""A process starts alike by posix_spawn(3), and by the fork in which it allows a tracer."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable

import pytest

from paddock.local.spawn import DEFAULT_SIGNALS, spawn

SCRIPT = """
import os, sys
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
print(os.getpgrp() == os.getpid(), status["SigIgn"].strip(), status["SigBlk"].strip())
print(os.readlink("/proc/self/fd/0"), flush=True)
os.write(2, b"err")
os.write(191, b"report")
"""


def text_of(fd: int) -> str:
    """All that comes from a pipe, which is closed then."""
    with open(fd, encoding="utf-8") as file:
        return file.read()


@pytest.mark.parametrize("allow", [None, lambda: os.write(1, b"")], ids=["spawn", "fork"])
def test_a_rank_has_its_group_signals_and_files(allow: Callable[[], object] | None) -> None:
    """Also what this process ignores or blocks is not handed down; a failure is an OSError."""
    before = {number: signal.signal(number, signal.SIG_IGN) for number in DEFAULT_SIGNALS}
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
    pipes = [os.pipe2(os.O_CLOEXEC) for _ in range(3)]
    ends = [write for _, write in pipes]
    try:
        # Python ignores two of them itself before it runs: a shell shows what it has been given.
        shell = (
            "/bin/sh",
            "-c",
            f"grep SigIgn /proc/self/status; exec {sys.executable} -c '{SCRIPT}'",
        )
        pid = spawn(shell, os.environ, False, ends, allow)
        assert os.waitpid(pid, 0)[1] == 0
        with pytest.raises(FileNotFoundError):
            spawn(("no-such-program",), os.environ, True, ends[:2], allow)
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGUSR1])
        for number, handler in before.items():
            signal.signal(number, handler)
        for write in ends:
            os.close(write)
    out, err, report = (text_of(read) for read, _ in pipes)
    given, line, stdin = out.splitlines()
    of_ours = sum(1 << number - 1 for number in DEFAULT_SIGNALS)
    assert not int(given.split()[1], 16) & of_ours
    assert line.split()[0] == "True" and not int(line.split()[2], 16) and stdin == "/dev/null"
    assert (err, report) == ("err", "report")
