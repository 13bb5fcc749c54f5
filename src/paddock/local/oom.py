"""Has the kernel killed a process of our cgroup for lack of memory? Reads counters only."""

from __future__ import annotations


def oom_kills() -> int | None:
    """How many processes of this cgroup (and below) were OOM-killed so far; None if unknown.

    Source: Documentation/admin-guide/cgroup-v2.rst, memory.events; cgroup-v1/memory.rst,
    memory.oom_control.
    """
    try:
        with open("/proc/self/cgroup", encoding="ascii") as f:
            rows = [line.rstrip("\n").split(":", 2) for line in f]
    except OSError:
        return None
    for _, controllers, path in rows:
        if "memory" in controllers.split(","):
            for root in ("/sys/fs/cgroup/memory", "/sys/fs/cgroup"):
                count = _counter(f"{root}{path}/memory.oom_control")
                if count is not None:
                    return count
    for number, _, path in rows:
        if number == "0":
            for root in ("/sys/fs/cgroup", "/sys/fs/cgroup/unified"):
                count = _counter(f"{root}{path.rstrip('/')}/memory.events")
                if count is not None:
                    return count
    return None


def _counter(path: str) -> int | None:
    try:
        with open(path, encoding="ascii") as f:
            for line in f:
                name, _, count = line.partition(" ")
                if name == "oom_kill":
                    return int(count)
    except (OSError, ValueError):
        return None
    return None
