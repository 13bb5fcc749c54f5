"""Processes that stand still: SIGSTOP, and come back when no thread of them runs any more.

kill() comes back before: until each thread has been scheduled once, a busy machine lets a stopped
server answer.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Iterable
from pathlib import Path

from local.jobs import kill_pids

SECONDS_MAX = 30.0


def stop(pids: Iterable[int]) -> None:
    """SIGSTOP to these processes; those that are gone are no fault.

    Raises: AssertionError, for one that still runs 30 s later.
    """
    asked = list(pids)
    kill_pids(asked, signal.SIGSTOP)
    until = time.monotonic() + SECONDS_MAX
    while running := [pid for pid in asked if _states(pid) - set("TtZX")]:
        assert time.monotonic() < until, f"not stopped: {running}"
        time.sleep(0.001)  # sleep: the kernel tells only a parent of it


def _states(pid: int) -> set[str]:
    """The states of a process's threads, as in proc(5); none when it is gone."""
    found = set()
    for path in Path(f"/proc/{pid}/task").glob("*/stat"):
        try:
            found.add(path.read_text().rpartition(")")[2].split()[0])
        except (FileNotFoundError, ProcessLookupError):
            continue  # the thread has ended since
    return found
