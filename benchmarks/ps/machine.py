"""What /proc says of the machine and of a process; waiting until nobody else works here."""

from __future__ import annotations

import os
import socket
import time
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")
IDLE_SHARE = 0.9  # of all cores
IDLE_SECONDS = 2  # so long in a row
MIB = float(1 << 20)


def resident_mb(pid: int) -> float:
    """RSS in MiB; 0 when the process is gone. Source: proc(5), status."""
    try:
        for line in Path(f"/proc/{pid}/status").read_text("ascii", "replace").splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) / 1024
    except OSError:
        pass
    return 0.0


def cpu_seconds(pid: int) -> float:
    """User and system time so far; 0 when the process is gone. Source: proc(5), stat."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / TICKS


def _busy_and_all() -> tuple[float, float]:
    """Seconds of all cores since boot: at work, and altogether. Source: proc(5), /proc/stat."""
    first = Path("/proc/stat").read_text("ascii").splitlines()[0]
    ticks = [int(word) for word in first.split()[1:9]]
    idle = ticks[3] + ticks[4]  # idle, iowait
    return (sum(ticks) - idle) / TICKS, sum(ticks) / TICKS


def wait_idle(limit_seconds: float) -> float:
    """Wait until the machine is idle, or the limit is over; returns the idle share seen last."""
    deadline = time.monotonic() + limit_seconds
    in_a_row, share = 0, 0.0
    while True:
        busy, whole = _busy_and_all()
        time.sleep(1.0)
        busy_now, whole_now = _busy_and_all()
        share = 1.0 - (busy_now - busy) / max(1e-9, whole_now - whole)
        in_a_row = in_a_row + 1 if share >= IDLE_SHARE else 0
        if in_a_row >= IDLE_SECONDS or time.monotonic() >= deadline:
            return share


class Others:
    """Cores that programs which are not ours used since this was made.

    Ours: this process and its children that have ended and were waited for, so ask when all have.
    """

    def __init__(self) -> None:
        self._at = time.monotonic()
        self._busy = _busy_and_all()[0]
        self._own = sum(os.times()[:4])

    def cores(self) -> float:
        """0.0 on a machine that was left to us."""
        others = _busy_and_all()[0] - self._busy - (sum(os.times()[:4]) - self._own)
        return max(0.0, others / max(1e-9, time.monotonic() - self._at))


def free_ports(count: int) -> list[int]:
    """Ports of 127.0.0.1 that nobody listens on now, all different."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [int(s.getsockname()[1]) for s in sockets]
    for each in sockets:
        each.close()
    return ports


def wait_port(port: int, limit_seconds: float, *, alive: object = None) -> float:
    """Connect until it works; returns when, in seconds of the monotonic clock.

    alive: a Popen that is to listen there; waiting ends with its death.
    Raises: TimeoutError.
    """
    deadline = time.monotonic() + limit_seconds
    while time.monotonic() < deadline:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return time.monotonic()
        if alive is not None and alive.poll() is not None:  # type: ignore[attr-defined]
            break
        time.sleep(0.005)
    raise TimeoutError(f"nobody listens on port {port}")
