"""The process that holds a port, for an error message. Reads /proc; loaded after a failure."""

from __future__ import annotations

import os

LISTEN = "0A"  # include/net/tcp_states.h


def describe_owner(port: int) -> str:
    """ "pid 812 (python train.py)" for the process that holds a TCP port here; "" if unknown.

    Another user's processes can be seen by root only.
    """
    inodes = _inodes(port)
    if not inodes:
        return "another Paddock job on this host" if _is_marked(port) else ""
    for name in os.listdir("/proc"):
        if name.isdigit() and _holds(name, inodes):
            return f"pid {name} ({_command(name)})"
    return "a process of another user"


def _inodes(port: int) -> set[str]:
    found = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            with open(table, encoding="ascii") as f:
                rows = f.read().splitlines()[1:]
        except OSError:
            continue
        for row in rows:
            words = row.split()
            if int(words[1].rpartition(":")[2], 16) == port and words[3] in (LISTEN, "07"):
                found.add(words[9])
    return found


def _holds(pid: str, inodes: set[str]) -> bool:
    wanted = {f"socket:[{inode}]" for inode in inodes}
    try:
        return any(
            os.readlink(f"/proc/{pid}/fd/{fd}") in wanted for fd in os.listdir(f"/proc/{pid}/fd")
        )
    except OSError:
        return False


def _command(pid: str) -> str:
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as f:
            # Split and joined: a program given by -c has several lines, a message has one.
            words = " ".join(f.read().replace(b"\0", b" ").decode("utf-8", "replace").split())
    except OSError:
        return "?"
    return words if len(words) <= 60 else words[:57] + "..."


def _is_marked(port: int) -> bool:
    try:
        with open("/proc/net/unix", encoding="utf-8", errors="replace") as f:
            return f"@paddock-port-{port}\n" in f.read()
    except OSError:
        return False
