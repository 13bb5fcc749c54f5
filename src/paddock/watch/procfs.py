"""A process as seen from outside: state, CPU time, memory, bytes moved. Reads /proc (proc(5))."""

from __future__ import annotations

import os
import re

from paddock.core.value import value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

TICKS = os.sysconf("SC_CLK_TCK")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
TREE_MAX = 64  # processes of one rank that are looked at
ENDS_MAX = 4096
UNREAD_MAX = 8
Ends = dict[str, int]  # the address of a rank's end of a connection -> the rank


@value
class ProcessFacts:
    """A rank and its descendants at one moment.

    state: of the rank itself, a letter of proc(5): R, S, D, T (stopped), t (traced).
    cpu_seconds, read_bytes, written_bytes: since the start, of all. rss_bytes: now, of all.
    pids: all of them, the rank first.
    """

    state: str
    cpu_seconds: float
    rss_bytes: int
    read_bytes: int
    written_bytes: int
    pids: tuple[int, ...] = ()


def facts_of(pid: int) -> ProcessFacts | None:
    """The facts of a rank; None once it has ended."""
    pids = tree_of(pid)
    own, *others = [_stat(each) for each in pids]
    if own is None or own[0] == "Z":
        return None
    stats = [own, *filter(None, others)]
    moved = [_io(each) for each in pids]
    return ProcessFacts(
        own[0], sum(cpu for _, cpu, _ in stats), sum(rss for *_, rss in stats),
        sum(read for read, _ in moved), sum(written for _, written in moved), pids,
    )  # fmt: skip


def pressure_of(pid: int) -> tuple[float, int]:
    """The seconds that a main thread has waited for a core; the process's major page faults."""
    waited = _read(f"/proc/{pid}/schedstat").split()  # Documentation/scheduler/sched-stats.rst
    text = _read(f"/proc/{pid}/stat")
    fields = text[text.rfind(")") + 2 :].split()
    return int(waited[1]) / 1e9 if len(waited) > 1 else 0.0, int(fields[9]) if fields else 0


def tree_of(pid: int) -> tuple[int, ...]:
    """A process and its descendants, breadth first, at most TREE_MAX."""
    found = [pid]
    for each in found:
        if len(found) >= TREE_MAX:
            break
        text = _read(f"/proc/{each}/task/{each}/children")
        found += [int(word) for word in text.split()]
    return tuple(found[:TREE_MAX])


def tracer_of(pid: int) -> int:
    """The pid of a debugger that is attached; 0 without one."""
    for line in _read(f"/proc/{pid}/status").splitlines():
        if line.startswith("TracerPid:"):
            return int(line.split()[1])
    return 0


def signal_masks(pid: int) -> tuple[int, int]:
    """The signals that a process catches; those that its main thread blocks or has yet to take."""
    masks = dict(re.findall(r"^(S\w+):\t([0-9a-f]+)$", _read(f"/proc/{pid}/status"), re.MULTILINE))
    caught, *held = (int(masks.get(n, "0"), 16) for n in ("SigCgt", "SigBlk", "SigPnd", "ShdPnd"))
    return caught, held[0] | held[1] | held[2]


def wait_of(pid: int) -> str:
    """The kernel function in which the main thread waits, or the system call; "" if it runs."""
    place = _read(f"/proc/{pid}/wchan").strip()
    if place and place != "0":
        return place
    number, _ = call_of(pid)
    return f"system call {number}" if number >= 0 else ""


def call_of(pid: int) -> tuple[int, int]:
    """The number of the system call that the main thread is in, and its first argument; else -1."""
    words = _read(f"/proc/{pid}/syscall").split()
    if len(words) < 2 or not words[0].isdigit():
        return -1, -1
    return int(words[0]), int(words[1], 16)


# System calls whose first argument is a descriptor (asm/unistd_64.h, asm-generic/unistd.h).
_ON_DESCRIPTOR = {
    "x86_64": {0: "read", 1: "write", 20: "writev", 42: "connect", 44: "sendto", 45: "recvfrom",
               46: "sendmsg", 47: "recvmsg", 72: "fcntl", 73: "flock", 74: "fsync"},
    "aarch64": {25: "fcntl", 32: "flock", 63: "read", 64: "write", 66: "writev", 82: "fsync",
                203: "connect", 206: "sendto", 207: "recvfrom", 211: "sendmsg", 212: "recvmsg"},
}  # fmt: skip


@value
class SeenWait:
    """The thing that a main thread waits on. call: the system call and its file, "" for none.

    peer: the other end's address, of a connection; rank: whose that is, -1 where it is unknown.
    unread: addresses whose owner leaves bytes of this rank unread, or cannot be reached.
    """

    call: str = ""
    peer: str = ""
    rank: int = -1
    unread: tuple[str, ...] = ()


def waits_on(pids: Mapping[int, int]) -> tuple[dict[int, SeenWait], Ends]:
    """Find what each rank waits on, and the ranks' ends of connections to other nodes.

    pids: rank -> pid, of this machine. The result has the ranks that wait on something.
    """
    names = _ON_DESCRIPTOR.get(os.uname().machine, {})
    known = connections(pids.values())
    sockets = {rank: sockets_of(pid) for rank, pid in pids.items()} if known else {}
    ends = {
        known[inode][0]: rank
        for rank, inodes in sockets.items()
        for inode in inodes.values()
        if inode in known
    }
    found, elsewhere = {}, {}
    for rank, pid in pids.items():
        inodes = sockets.get(rank, {})
        number, fd = call_of(pid)
        call = peer = ""
        if number in names:
            try:
                call = f"{names[number]}: {os.readlink(f'/proc/{pid}/fd/{fd}')}"
            except OSError:
                pass  # another user's, or closed meanwhile
            if inodes.get(fd) in known:
                call, peer = names[number], known[inodes[fd]][1]
        mine = [known[inode] for inode in inodes.values() if inode in known]
        elsewhere.update({own: rank for own, there, _ in mine if there not in ends})
        unread = sorted({there for _, there, unsent in mine if unsent})
        if call or unread:
            found[rank] = SeenWait(call, peer, ends.get(peer, -1), tuple(unread[:UNREAD_MAX]))
    return found, dict(list(elsewhere.items())[:ENDS_MAX])


def sockets_of(pid: int) -> dict[int, int]:
    """The inodes of a process's open sockets, by descriptor."""
    found = {}
    try:
        names = os.listdir(f"/proc/{pid}/fd")
    except OSError:
        return {}
    for name in names:
        try:
            target = os.readlink(f"/proc/{pid}/fd/{name}")
        except OSError:
            continue
        if target.startswith("socket:["):
            found[int(name)] = int(target[8:-1])
    return found


def connections(pids: Iterable[int]) -> dict[int, tuple[str, str, int]]:
    """The established TCP connections of this network namespace, by inode.

    Each with its own address, the peer's, and the bytes that the peer has not acknowledged.
    """
    found: dict[int, tuple[str, str, int]] = {}
    for pid in pids:
        for name in ("tcp", "tcp6"):
            for line in _read(f"/proc/{pid}/net/{name}").splitlines()[1:]:
                fields = line.split()
                if len(fields) > 9 and fields[3] == "01":
                    unsent = int(fields[4].partition(":")[0], 16)
                    found[int(fields[9])] = (_address(fields[1]), _address(fields[2]), unsent)
        break  # they share the namespace
    return found


def _address(text: str) -> str:
    """An address of /proc/net/tcp as host:port; only the port matters for IPv6.

    >>> _address("0100007F:1F90")
    '127.0.0.1:8080'
    """
    host, _, port = text.partition(":")
    octets = bytes.fromhex(host[-8:])[::-1] if len(host) in (8, 32) else b""
    return f"{'.'.join(map(str, octets))}:{int(port, 16)}"


def _stat(pid: int) -> tuple[str, float, int] | None:
    text = _read(f"/proc/{pid}/stat")
    fields = text[text.rfind(")") + 2 :].split()  # a command may have spaces and parentheses
    if len(fields) < 22:
        return None
    cpu = (int(fields[11]) + int(fields[12])) / TICKS
    return fields[0], cpu, int(fields[21]) * PAGE_BYTES


def _io(pid: int) -> tuple[int, int]:
    """rchar and wchar; 0 of another user's process."""
    words = _read(f"/proc/{pid}/io").split()
    return (int(words[1]), int(words[3])) if len(words) > 3 else (0, 0)


def _read(path: str) -> str:
    """The text of a file. Not by open(): that costs as much again as the kernel does."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        found = b""
        while part := os.read(fd, 1 << 16):  # a page at most, of a file of the kernel's
            found += part
        return found.decode("utf-8", "replace")
    except OSError:
        return ""
    finally:
        os.close(fd)
