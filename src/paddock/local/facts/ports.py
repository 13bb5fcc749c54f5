"""Reserves free ports until a rank binds them.

Three measures protect them: ports are chosen outside the kernel's ephemeral range, so no
connect() or bind(0) of another program gets one; an abstract unix socket per port marks it as
taken among Paddock jobs of this network namespace for as long as the agent lives; and until the
ranks start, the port itself is bound. The bound socket must go before a rank binds, because a
program that does not set SO_REUSEADDR could not share it.
"""

from __future__ import annotations

import os

# The C module: `import socket` builds enums for 4 ms on a path where ranks wait (decision 0001).
from _socket import (
    AF_INET,
    AF_INET6,
    AF_UNIX,
    IPPROTO_IPV6,
    IPV6_V6ONLY,
    SHUT_RD,
    SO_REUSEADDR,
    SOCK_STREAM,
    SOL_SOCKET,
    socket,
)

from paddock.errors import Problem, UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

LOWEST_PORT = 10_000
HIGHEST_PORT = 65_535
EPHEMERAL_RANGE = "/proc/sys/net/ipv4/ip_local_port_range"
EPHEMERAL_DEFAULT = (32_768, 60_999)  # ip(7)
LISTEN = "0A"  # include/net/tcp_states.h


class HeldPorts:
    """Ports of one attempt on this host, and the sockets that keep them."""

    def __init__(self) -> None:
        self.ports: list[int] = []
        self._marks: list[socket] = []
        self._holds: list[socket] = []

    def take(self, port: int) -> bool:
        """Hold the port if it is free."""
        mark = _mark(port)
        if mark is None:
            return False
        hold = _bind(port)
        if hold is None:
            mark.close()
            return False
        self.ports.append(port)
        self._marks.append(mark)
        self._holds.append(hold)
        return True

    def unbind(self) -> None:
        """Close the bound sockets, so that the ranks can bind; the abstract sockets stay."""
        for hold in self._holds:
            hold.close()
        self._holds.clear()

    def release(self) -> None:
        """Release all ports."""
        self.unbind()
        for mark in self._marks:
            mark.close()
        self._marks.clear()
        self.ports.clear()


def hold_ports(wanted: Sequence[int], within: tuple[int, int] | None) -> HeldPorts:
    """Hold these ports, and one of our choice for each 0.

    within: choose in this range (PORT_RANGE). Raises UsageError naming every port that is in use,
    and by whom.
    """
    held = HeldPorts()
    problems: list[Problem] = []
    candidates = _candidates(within)
    is_short = False
    for port in wanted:
        if not port:
            is_short |= not any(map(held.take, candidates))
        elif port > HIGHEST_PORT:
            what = f"port {port} is above the last one, {HIGHEST_PORT}"
            problems.append(Problem(what, "start lower with --start-port"))
            break
        elif not held.take(port):
            problems.append(_in_use(port))
    if is_short:
        what = f"not enough free ports: {len(held.ports)} found"
        hint = "widen PORT_RANGE, or end the programs that hold them (ss -ltnp)"
        problems.append(Problem(what, hint))
    if problems:
        held.release()
        raise UsageError.of(problems[:16])
    return held


def _candidates(within: tuple[int, int] | None) -> Iterator[int]:
    """Every usable port once, from a random place on, round the range."""
    low, high = within if within else _quiet_range()
    count = high - low + 1
    start = int.from_bytes(os.urandom(4), "little") % count
    for i in range(count):
        yield low + (start + i) % count


def _quiet_range() -> tuple[int, int]:
    """The larger range of ports that the kernel does not give out by itself."""
    try:
        with open(EPHEMERAL_RANGE, "rb") as f:
            low, high = (int(word) for word in f.read().split())
    except (OSError, ValueError):
        low, high = EPHEMERAL_DEFAULT
    below = (LOWEST_PORT, low - 1)
    above = (high + 1, HIGHEST_PORT)
    best = max(below, above, key=lambda r: r[1] - r[0])
    return best if best[1] - best[0] >= 1000 else (LOWEST_PORT, HIGHEST_PORT)


def _mark(port: int) -> socket | None:
    mark = socket(AF_UNIX, SOCK_STREAM, 0)
    try:
        mark.bind(b"\0paddock-port-%d" % port)
    except OSError:
        mark.close()
        return None
    return mark


def _bind(port: int) -> socket | None:
    """Bind the port on every address, IPv6 included; None when someone has it."""
    try:
        hold = socket(AF_INET6, SOCK_STREAM, 0)
    except OSError:  # no IPv6 on this host
        hold = socket(AF_INET, SOCK_STREAM, 0)
        return _bound(hold, ("", port))
    hold.setsockopt(IPPROTO_IPV6, IPV6_V6ONLY, 0)
    return _bound(hold, ("::", port))


def _bound(hold: socket, address: tuple[str, int]) -> socket | None:
    """Bind the port exclusively; peers that connect before the rank listens are refused."""
    try:
        hold.bind(address)
        return hold
    except OSError:
        pass
    hold.setsockopt(SOL_SOCKET, SO_REUSEADDR, 1)  # past TIME_WAIT of the last attempt
    try:
        hold.bind(address)
        hold.listen(1)  # two bound sockets may share a port, two listening ones may not
        hold.shutdown(SHUT_RD)  # it listens no more, and is bound
        hold.setsockopt(SOL_SOCKET, SO_REUSEADDR, 0)  # and is not shared
    except OSError:
        hold.close()
        return None
    return hold


def _in_use(port: int) -> Problem:
    owner = describe_owner(port)
    return Problem(
        f"port {port} is in use{' by ' + owner if owner else ''}",
        "choose another with --start-port (or in --servers, --workers), or end that program",
    )


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
