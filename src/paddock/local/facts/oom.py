"""The OOM kills of this process's cgroup, and its memory limit."""

from __future__ import annotations


def oom_kills() -> int | None:
    """The number of OOM kills in this cgroup and below so far; None if unknown.

    Source: Documentation/admin-guide/cgroup-v2.rst, memory.events; cgroup-v1/memory.rst,
    memory.oom_control.
    """
    for folder, is_v1 in _folders():
        count = _number(f"{folder}/memory.{'oom_control' if is_v1 else 'events'}", "oom_kill ")
        if count is not None:
            return count
    return None


def memory_limit() -> str:
    """The memory limit: the least of our cgroups', their parents' and the machine's; "" if unknown.

    Source: as above, memory.max and memory.limit_in_bytes, which are "max" or 2^63 for none.
    """
    found = []
    for folder, is_v1 in _folders():
        name = "memory.limit_in_bytes" if is_v1 else "memory.max"
        while folder.startswith("/sys/fs/cgroup"):
            found.append((_number(f"{folder}/{name}"), "cgroup"))
            folder = folder.rpartition("/")[0]
    kibibytes = _number("/proc/meminfo", "MemTotal:")
    found.append((kibibytes and kibibytes * 1024, "machine"))
    known = [(count, whose) for count, whose in found if count]
    if not known:
        return ""
    count, whose = min(known)
    size = f"{count / 2**30:.1f} GiB" if count >= 2**30 else f"{count / 2**20:.0f} MiB"
    return f"{size} ({whose})"


def _folders() -> list[tuple[str, bool]]:
    """The folders that may have our cgroup's counters, each with True for version 1."""
    try:
        with open("/proc/self/cgroup", encoding="ascii") as f:
            rows = [line.rstrip("\n").split(":", 2) for line in f]
    except OSError:
        return []
    found = []
    for number, controllers, path in rows:
        path = path.rstrip("/")
        if "memory" in controllers.split(","):
            found += [(f"/sys/fs/cgroup/memory{path}", True), (f"/sys/fs/cgroup{path}", True)]
        elif number == "0":
            found += [(f"/sys/fs/cgroup{path}", False), (f"/sys/fs/cgroup/unified{path}", False)]
    return sorted(found, key=lambda one: not one[1])


def _number(path: str, before: str = "") -> int | None:
    """The number that stands after a word in a file; None where there is none."""
    try:
        with open(path, encoding="ascii") as f:
            for line in f:
                if line.startswith(before):
                    return int(line[len(before) :].split()[0])
    except (OSError, ValueError, IndexError):
        return None
    return None
