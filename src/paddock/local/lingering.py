"""The grace of what processes leave behind: a trainer below a shell that SIGTERM has ended.

Linux gives it to this process, the nearest subreaper, and a pidfd tells its end. Loaded when an
attempt stops.
"""

from __future__ import annotations

import os
import signal
from time import monotonic

from paddock.local.guardian import children_of, children_of_self, pidfds, state_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Set

    from paddock.local.loop import Loop


def living_children(keep: Set[int]) -> list[int]:
    """Our children that live, but those of keep and our own tools, which are in our group."""
    group = os.getpgrp()
    return [
        pid
        for pid in children_of_self()
        if pid not in keep and state_of(pid) != b"Z" and _group_of(pid) != group
    ]


def terminate(groups: Set[int], keep: Set[int]) -> None:
    """Send SIGTERM to all descendants in other process groups than these.

    timeout(1), setsid(1) and a shell's `set -m` make such groups. keep: of these children neither
    they nor their descendants get it.
    """
    own = os.getpgrp()
    pairs = [(os.getpid(), pid) for pid in children_of_self() if pid not in keep]
    for parent, pid in pairs:  # which grows: breadth first
        group = _group_of(pid)
        if parent == os.getpid() and group == own:
            continue  # a tool of ours
        pairs += [(pid, child) for child in children_of(pid)]
        if group not in groups:
            _terminate(pid, parent)


def _terminate(pid: int, parent: int) -> None:
    try:
        fd = os.pidfd_open(pid)
    except OSError:
        return
    try:
        with open(f"/proc/{pid}/stat", "rb") as f:
            fields = f.read().rpartition(b")")[2].split()
        # Looked at behind the pidfd: else another process might have got the number meanwhile.
        if int(fields[1]) in (parent, os.getpid()):
            signal.pidfd_send_signal(fd, signal.SIGTERM)
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
