"""How long the machine stood still while a test failed: what is stopped keeps no deadline.

A process beside the tests sleeps in short steps and notes by how much it overslept. What it noted
of each failed test is kept beside pytest's list of them, for second_try.py.
"""

from __future__ import annotations

import os
import select
import subprocess
import sys
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest

STEP_SECONDS = 0.05
KEPT = "cache/standstill"  # test id -> seconds; in the cache's folder, beside cache/lastfailed


class Standstills:
    """A plugin of the process that has the reports of all workers: adds it to each failure."""

    def __init__(self, config: pytest.Config) -> None:
        self.watcher: Watcher
        self._config = config
        self._seconds: dict[str, float] = {}
        self._begun: dict[str, float] = {}

    def pytest_sessionstart(self) -> None:
        """Before the first test."""
        self.watcher = Watcher()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """A test begins with its setup; each of its parts may fail."""
        begun = self._begun.setdefault(report.nodeid, report.start)
        if report.failed:
            seconds = self.watcher.longest(begun, report.stop)
            self._seconds[report.nodeid] = max(seconds, self._seconds.get(report.nodeid, 0.0))
            said = f"the machine stood still for up to {seconds:.1f} s"
            report.sections.append(("Standstill", said))

    def pytest_sessionfinish(self) -> None:
        """Keep what was found, also when it is nothing."""
        self.watcher.close()
        if cache := getattr(self._config, "cache", None):
            cache.set(KEPT, self._seconds)


class Watcher:
    """The process that sleeps, and the way to ask it; it ends with its standard input at last."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-I", "-S", __file__],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True,
        )  # fmt: skip
        self.longest(0, 0)  # once it answers it watches

    def longest(self, begin: float, end: float) -> float:
        """Seconds of the longest standstill between these two seconds since 1970."""
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(f"{begin} {end}\n")
        self.process.stdin.flush()
        return float(self.process.stdout.readline())

    def close(self) -> None:
        """End it."""
        self.process.communicate()


def clocks() -> tuple[float, ...]:
    """Seconds of clocks that go on while nothing runs; the second also while it is suspended."""
    return tuple(time.clock_gettime(c) for c in (time.CLOCK_MONOTONIC, time.CLOCK_BOOTTIME))


def watch() -> None:
    """Note how late each sleep ends, and answer each line of standard input."""
    found: list[tuple[float, float, float]] = []  # since 1970: from, until; how long
    before, before_wall = clocks(), time.time()
    while True:
        asked, _, _ = select.select([0], [], [], STEP_SECONDS)
        after, after_wall = clocks(), time.time()
        overslept = max(b - a for a, b in zip(before, after, strict=True)) - STEP_SECONDS
        if overslept > STEP_SECONDS:
            found.append((before_wall, after_wall, overslept))
        before, before_wall = after, after_wall
        if asked:
            line = os.read(0, 1000)  # whoever asks waits for the answer
            if not line:
                return
            begin, end = map(float, line.split())
            during = [late for start, stop, late in found if start <= end and stop >= begin]
            os.write(1, b"%f\n" % max(during, default=0.0))


if __name__ == "__main__":
    watch()
