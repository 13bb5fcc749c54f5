"""All that descends from the ranks: how it is told to end, and the grace of what outlives them.

A trainer below a shell that a signal has ended goes to this process, the nearest subreaper, and a
pidfd tells its end. Loaded when an attempt stops.
"""

from __future__ import annotations

import os
import signal
from time import monotonic

from paddock.local.guardian import children_of, children_of_self, pidfds, state_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence, Set

    from paddock.local.loop import Loop

    Family = Sequence[tuple[int, int]]  # (pid of the parent, pid), parents first


# They hand a signal to the program below them, which would get it twice: a second SIGINT raises
# KeyboardInterrupt again, in the midst of saving.
FORWARDERS = ("timeout", "tini", "dumb-init", "catatonit")


def living_children(keep: Set[int]) -> list[int]:
    """Our children that live, but those of keep and our own tools, which are in our group."""
    group = os.getpgrp()
    return [
        pid
        for pid in children_of_self()
        if pid not in keep and state_of(pid) != b"Z" and _group_of(pid) != group
    ]


def terminate(family: Family, groups: Set[int], number: int = signal.SIGTERM) -> None:
    """Send SIGTERM, or another signal, to those in other process groups than these.

    timeout(1), setsid(1) and a shell's `set -m` make such groups.
    """
    for parent, pid in family:
        if _group_of(pid) not in groups:
            _signal(pid, parent, number)


def ask(family: Family, number: int, first: int, filters: Set[int]) -> None:
    """Send each of them, once, the signal that it can do most with: signal_for.

    first: the signal that told the job to end; number: it, or the SIGTERM that follows it.
    filters: those of them that get none, see find_filters.
    """
    for parent, pid in family:
        chosen = 0 if pid in filters else _choose(number, first, pid)
        if chosen:
            _signal(pid, parent, chosen)


def find_filters(family: Family, first: int) -> set[int]:
    """Return those that read, by a pipe, the output of another that may be saving: tee(1), say.

    It ends with its writers. If the signal ended it before, what a trainer prints while it saves
    would end that one (SIGPIPE). first: as above.
    """
    pids = [pid for _, pid in family]
    readers = {pid: pipe for pid in pids if (pipe := _pipe_of(pid, 0))}
    if not readers:
        return set()
    handled = 1 << first - 1 | 1 << signal.SIGTERM - 1
    savers = {pid for pid in pids if _masks(pid)[1] & handled}
    outputs = {pid: {_pipe_of(pid, 1), _pipe_of(pid, 2)} for pid in pids}
    filters = set[int]()
    while True:
        pipes = set[str]().union(*(outputs[pid] for pid in savers | filters))
        found = {pid for pid, pipe in readers.items() if pipe in pipes} - savers
        if found <= filters:
            return filters
        filters |= found


def _pipe_of(pid: int, fd: int) -> str:
    """Return the name of the pipe that a process has there (proc(5)), "" if it is none."""
    try:
        name = os.readlink(f"/proc/{pid}/fd/{fd}")
    except OSError:
        return ""
    return name if name.startswith("pipe:") else ""


def signal_for(number: int, first: int, *, caught: int, ignored: int) -> int:
    """The signal for a process that handles and ignores these, as bits of proc(5); 0 for none.

    The first one where it has a handler for it, as every Python has for SIGINT. If it has one for
    SIGTERM only, that, at once: another one would do nothing, or end it before it could save. The
    SIGTERM that follows is not for those that handle the first one alone: it would end them, and
    they may be saving.
    """
    takes_first, takes_term = caught >> (first - 1) & 1, caught >> (signal.SIGTERM - 1) & 1
    if number != first:
        return 0 if takes_first and not takes_term else number
    if takes_first:
        return first
    if takes_term:
        return signal.SIGTERM
    return 0 if ignored >> (first - 1) & 1 else first


def _choose(number: int, first: int, pid: int) -> int:
    name, caught, ignored = _masks(pid)
    if not name or name in FORWARDERS:
        return 0
    return signal_for(number, first, caught=caught, ignored=ignored)


def _masks(pid: int) -> tuple[str, int, int]:
    """Return the name of a process, "" if it has ended, and the signals it handles and ignores.

    Source: proc(5), SigCgt and SigIgn of /proc/pid/status.
    """
    fields: dict[str, str] = {}
    try:
        with open(f"/proc/{pid}/status", encoding="utf-8", errors="replace") as f:
            for line in f:
                name, _, text = line.partition(":")
                fields[name] = text.strip()
    except OSError:
        return "", 0, 0
    caught, ignored = (int(fields.get(name, "0"), 16) for name in ("SigCgt", "SigIgn"))
    return fields.get("Name", ""), caught, ignored


def descendants(keep: Set[int]) -> Family:
    """Return the pids of all descendants after their parents', but for our tools.

    keep: of these children neither they nor their descendants are among them.
    """
    own = os.getpgrp()
    pairs = [
        (os.getpid(), pid)
        for pid in children_of_self()
        if pid not in keep and _group_of(pid) != own  # else a tool of ours
    ]
    for _, pid in pairs:  # which grows: breadth first
        pairs += [(pid, child) for child in children_of(pid)]
    return pairs


def _signal(pid: int, parent: int, number: int) -> None:
    try:
        fd = os.pidfd_open(pid)
    except OSError:
        return
    try:
        with open(f"/proc/{pid}/stat", "rb") as f:
            fields = f.read().rpartition(b")")[2].split()
        # Looked at behind the pidfd: else another process might have got the number meanwhile.
        if int(fields[1]) in (parent, os.getpid()):
            signal.pidfd_send_signal(fd, number)
    except OSError:
        return  # it has ended, or is another user's
    finally:
        os.close(fd)


def _group_of(pid: int) -> int:
    try:
        return os.getpgid(pid)
    except OSError:
        return 0


class Lingering:
    """Waits until look() returns no living process any more, or its time is over; then done()."""

    def __init__(
        self, loop: Loop, look: Callable[[], list[int]], until: float, done: Callable[[], None]
    ) -> None:
        """until: monotonic seconds. done may be called at once."""
        self.until = until
        self._loop = loop
        self._look = look
        self._done: Callable[[], None] | None = done
        self._fds: list[int] = []
        self._on_event()

    def _on_event(self, _events: int = 0) -> None:
        self._forget()
        living = self._look() if monotonic() < self.until else []
        if not living:
            self.end()
            return
        self._fds = pidfds(living)
        for fd in self._fds:
            self._loop.watch(fd, 1, self._on_event)
        self._loop.at("lingering", self.until, self._on_event)

    def shorten(self, until: float) -> None:
        """Wait no longer than that, monotonic seconds."""
        self.until = min(self.until, until)
        if self._done is not None:
            self._loop.at("lingering", self.until, self._on_event)

    def end(self) -> None:
        """Wait no longer."""
        done = self.cancel()
        if done is not None:
            done()

    def cancel(self) -> Callable[[], None] | None:
        """Forget the wait; returns what was to be called."""
        self._forget()
        done, self._done = self._done, None
        return done

    def _forget(self) -> None:
        self._loop.at("lingering", None, self._on_event)
        for fd in self._fds:
            self._loop.unwatch(fd)
            os.close(fd)
        self._fds.clear()
