"""End every descendant of this process, round by round: each round's orphans become our
children, as we are their nearest subreaper (guardian.py).

Nothing is found by name: only our own unreaped children are killed, whose pids cannot be reused.
A round never waits. Between two of them the guardian sleeps, and the launcher's loop goes on; both
give up in the end, as a process in uninterruptible sleep (a hung file system) cannot be killed.
"""

from __future__ import annotations

import os
from time import monotonic

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Set

    from paddock.local.loop import Loop

SIGKILL = 9
SWEEP_SECONDS = 5.0
ROUND_SECONDS = 0.02  # between two looks at those that do not end; pidfds tell sooner
ROUND_MAX = 256  # processes


class SweepProgress:
    """The progress of a sweep. keep: children that are not to be ended, read in each round."""

    def __init__(self, *keep: Set[int]) -> None:
        self.killed: set[int] = set()
        self._foreign: set[int] = set()
        self._keep = (*keep, self._foreign)

    def round(self) -> list[int] | None:
        """Kill and reap the children. None: there were none; else those that have not ended yet.

        After an empty list another round is due at once: their children may be ours now.
        """
        kept = frozenset[int]().union(*self._keep)
        children = [pid for pid in children_of_self() if pid not in kept]
        if not children:
            return None
        children.sort(key=self.killed.__contains__)  # a few that cannot be killed hide no others
        return [pid for pid in children[:ROUND_MAX] if not self._end(pid)]

    def _end(self, pid: int) -> bool:
        """Kill a process; True when it is gone, or another user's."""
        is_new = pid not in self.killed and state_of(pid) != b"Z"
        try:
            os.kill(pid, SIGKILL)
        except ProcessLookupError:
            return True
        except PermissionError:  # it has become another user (sudo)
            self._foreign.add(pid)
            return True
        if is_new:
            self.killed.add(pid)
        return _reaped(pid)


def end_descendants(*, keep: frozenset[int] = frozenset()) -> int:
    """Kill all descendants and wait for their end; returns how many were killed."""
    from select import poll

    sweep = SweepProgress(keep)
    deadline = monotonic() + SWEEP_SECONDS
    while (left := sweep.round()) is not None and monotonic() < deadline:
        if left:
            poller = poll()
            fds = _pidfds(left)
            for fd in fds:
                poller.register(fd, 1)
            poller.poll(ROUND_SECONDS * 1000)
            for fd in fds:
                os.close(fd)
    return len(sweep.killed)


def sweep_on(loop: Loop, done: Callable[[int], None], *keep: Set[int]) -> None:
    """Kill all descendants without waiting: done(number of killed) is called when that is over.

    keep: read again in each round: children may be added meanwhile.
    """
    sweep = SweepProgress(*keep)
    deadline = monotonic() + SWEEP_SECONDS
    fds: list[int] = []
    timer = f"sweep {id(sweep)}"  # there may be two at a time

    def look(_events: int = 0) -> None:
        for fd in fds:
            loop.unwatch(fd)
            os.close(fd)
        fds.clear()
        left = sweep.round()
        if left is None or monotonic() >= deadline:
            loop.at(timer, None, look)
            done(len(sweep.killed))
            return
        fds.extend(_pidfds(left))
        for fd in fds:
            loop.watch(fd, 1, look)
        loop.at(timer, monotonic() + (ROUND_SECONDS if left else 0.0), look)

    look()


def children_of_self() -> list[int]:
    """Pids of our children, ended or not."""
    return children_of(os.getpid())


def children_of(pid: int) -> list[int]:
    """Pids of a process's children, ended or not; none when it is gone.

    Source: proc(5), /proc/pid/task/tid/children; where the kernel lacks it, every /proc/N/stat.
    """
    found: list[int] = []
    try:
        for task in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{task}/children", encoding="ascii") as f:
                found.extend(int(word) for word in f.read().split())
        return found
    except (FileNotFoundError, ProcessLookupError):
        pass  # no CONFIG_PROC_CHILDREN, or it has just ended
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", "rb") as f:
                    fields = f.read().rpartition(b")")[2].split()
            except OSError:
                continue  # ended meanwhile
            if int(fields[1]) == pid:
                found.append(int(name))
    return found


def _reaped(pid: int) -> bool:
    try:
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    except ChildProcessError:
        return True


def state_of(pid: int) -> bytes:
    """The state of a process as in proc(5): Z: ended or gone; T: stopped by a signal."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as f:
            return f.read().rpartition(b")")[2].split()[0]
    except OSError:
        return b"Z"


def _pidfds(pids: list[int]) -> list[int]:
    """The pidfds of the first of these processes; none on kernels without pidfd."""
    fds = []
    for pid in pids[:64]:
        try:
            fds.append(os.pidfd_open(pid))
        except (OSError, AttributeError):
            break
    return fds
