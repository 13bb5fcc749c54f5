"""Processes of a run whose launcher and guardian were killed at one moment: nobody else ends them.

A process is the run's if the environment that it was started with (proc(5), /proc/PID/environ)
names the run, or if it descends from one that does. A name, a user or an age are no evidence, and
nothing is signalled but through a pidfd of the process that was looked at.
"""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from select import poll

from paddock.errors import PaddockError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    Owns = Callable[[Mapping[str, str]], bool]  # of an environment: whether it is the run's

PLACE, RUN = "PADDOCK_RUN_DIR", "PADDOCK_JOB_UID"  # of every rank (contracts/environment.py)
GRACE_SECONDS = 10.0  # as --grace: the launcher that knew another is gone
END_SECONDS = 5.0  # as of the guardian's sweep
SHOWN_MAX = 8


class Orphan:
    """A process that was left. start: as in proc(5). label: of a rank, "" for its children."""

    def __init__(self, pid: int, start: str, label: str) -> None:
        self.pid, self.start, self.label = pid, start, label

    def __str__(self) -> str:
        return f"{self.label} (pid {self.pid})" if self.label else f"pid {self.pid}"


def below(directory: str) -> Owns:
    """Own what was started with its logs below a directory."""
    above = os.path.realpath(directory) + os.sep

    def owns(env: Mapping[str, str]) -> bool:
        place = env.get(PLACE, "")
        return os.path.isabs(place) and os.path.realpath(place).startswith(above)

    return owns


def of_run(uid: str) -> Owns:
    """Own what a launch has started. uid: of its record; "" owns nothing."""
    return lambda env: bool(uid) and env.get(RUN) == uid


def find_orphans(owns: Owns) -> list[Orphan]:
    """The processes of a run, ranks first, without this one and those that it descends from."""
    parents: dict[int, int] = {}
    starts: dict[int, str] = {}
    labels: dict[int, str] = {}
    for name in os.listdir("/proc"):
        fields = _fields(name) if name.isdigit() else []
        if not fields or fields[0] == "Z":
            continue
        pid = int(name)
        parents[pid], starts[pid] = int(fields[1]), fields[19]
        env = _environment(pid)
        if owns(env):
            labels[pid] = f"rank {env['PADDOCK_RANK']}" if "PADDOCK_RANK" in env else ""
            if env.get("PADDOCK_ROLE", "worker") != "worker":
                labels[pid] = f"{env['PADDOCK_ROLE']} {labels[pid]}".strip()
    spared, pid = set(), os.getpid()
    while pid > 0:
        spared.add(pid)
        pid = parents.get(pid, 0)
    ours = [pid for pid in parents if _has_above(pid, labels, parents) and pid not in spared]
    found = [
        Orphan(pid, starts[pid], "" if parents[pid] in labels else labels.get(pid, ""))
        for pid in ours
    ]
    return sorted(found, key=lambda each: (not each.label, each.label, each.pid))


def _has_above(pid: int, some: Mapping[int, str], parents: Mapping[int, int]) -> bool:
    while pid > 0 and pid not in some:
        pid = parents.get(pid, 0)
    return pid > 0


def names_of(orphans: Sequence[Orphan]) -> str:
    """Name processes for people: the ranks, or what is left of them."""
    some = [each for each in orphans if each.label] or list(orphans)
    texts = [str(each) for each in some[:SHOWN_MAX]]
    more = f" and {len(some) - SHOWN_MAX} more" if len(some) > SHOWN_MAX else ""
    return ", ".join(texts) + more


def end_orphans(owns: Owns, *, now: bool) -> None:
    """End the processes of a run: SIGTERM, GRACE_SECONDS, SIGKILL; now: without grace.

    Raises PaddockError with those that cannot be ended.
    """
    if not now:
        _signal_all(find_orphans(owns), signal.SIGTERM, GRACE_SECONDS)
    deadline = time.monotonic() + END_SECONDS
    while orphans := find_orphans(owns):  # again: they may have started more
        if time.monotonic() > deadline:
            hint = "one that waits for a device or a file system that hangs ends when that answers"
            raise PaddockError(f"{names_of(orphans)} cannot be ended", hint=hint)
        _signal_all(orphans, signal.SIGKILL, 1.0)


def _signal_all(orphans: Sequence[Orphan], number: int, seconds: float) -> None:
    """Send a signal to these processes, and wait for so long at most until they have ended."""
    fds = []
    for each in orphans:
        with suppress(OSError):  # it has ended; it has become another user's
            fd = os.pidfd_open(each.pid)
            fds.append(fd)
            fields = _fields(str(each.pid))
            if fields and fields[19] == each.start:  # the pid was not reused before the pidfd
                signal.pidfd_send_signal(fd, number)
    deadline = time.monotonic() + seconds
    waited = set(fds)
    while waited and (left := deadline - time.monotonic()) > 0:
        poller = poll()
        for fd in waited:
            poller.register(fd, 1)
        waited -= {fd for fd, _ in poller.poll(left * 1000)}
    for fd in fds:
        os.close(fd)


def _fields(pid: str) -> list[str]:
    """The fields of /proc/PID/stat behind the name; [] of a process that has ended."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            return file.read().rpartition(")")[2].split()
    except OSError:
        return []


def _environment(pid: int) -> dict[str, str]:
    """The environment that a process was started with; {} of one that is not ours to read."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            pairs = (part.partition(b"=") for part in file.read().split(b"\0") if part)
            return {os.fsdecode(name): os.fsdecode(text) for name, _, text in pairs}
    except OSError:
        return {}
