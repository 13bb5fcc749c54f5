"""How a trainer script of ours times its calls, and says what it found."""

from __future__ import annotations

import json
import os
import time
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.ps.machine import cpu_seconds, resident_mb

if TYPE_CHECKING:
    from collections.abc import Callable

SERVERS = [int(word) for word in os.environ.get("BENCH_SERVER_PIDS", "").split()]


def say(name: str, **measured: object) -> None:
    """One line for the driver."""
    print("M " + json.dumps({"name": name, **measured}), flush=True)


def servers_resident_mb() -> float:
    """RSS of all servers, MiB."""
    return sum(resident_mb(pid) for pid in SERVERS)


def servers_cpu_seconds() -> float:
    """CPU time of all servers."""
    return sum(cpu_seconds(pid) for pid in SERVERS)


class Clock:
    """Wall time of each call, and CPU time of both sides over all of them."""

    def __init__(self) -> None:
        self.samples: list[float] = []
        self._began, self._own = time.perf_counter(), time.process_time()
        self._servers = servers_cpu_seconds()

    def call(self, function: Callable[..., object], *args: object) -> None:
        """Call and time."""
        at = time.perf_counter()
        function(*args)
        self.samples.append(time.perf_counter() - at)

    def result(self, calls: int = 0) -> dict[str, float]:
        """ms, p99_ms of one call; each_ms: all the time until now by ``calls``; cores used."""
        wall = time.perf_counter() - self._began
        return {
            "ms": 1e3 * float(np.median(self.samples)),
            "p99_ms": 1e3 * float(np.quantile(self.samples, 0.99)),
            "each_ms": 1e3 * wall / (calls or len(self.samples)),
            "server_cores": (servers_cpu_seconds() - self._servers) / wall,
            "client_cores": (time.process_time() - self._own) / wall,
        }
