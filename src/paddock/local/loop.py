"""The event loop of a thread: descriptors, timers and posted calls. It sleeps in the kernel.

Rule: callbacks never block. Other threads only ``post``.
"""

from __future__ import annotations

import os
import select
from _thread import RLock  # `import threading` costs a rank 1.5 ms of waiting
from collections import deque
from time import monotonic, monotonic_ns, time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

READ = select.EPOLLIN
WRITE = select.EPOLLOUT
MAX_EVENTS = 256
WAIT_SECONDS_MAX = 86_400.0  # epoll counts milliseconds in an int


class Loop:
    """Runs callbacks when a descriptor is ready, a time has come, or a call was posted."""

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._callbacks: dict[int, Callable[[int], None]] = {}
        self._timers: dict[str, tuple[float, Callable[[], None]]] = {}
        self._posted: deque[Callable[[], None]] = deque()
        self._wake_read, self._wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._running = False
        self._closing = RLock()  # a thread must not write into a pipe that is closed, or another's
        self._is_closed = False
        self.watch(self._wake_read, READ, self._on_wake)

    def now(self) -> float:
        """The monotonic second, as in ``at``."""
        return monotonic()

    def now_ns(self) -> int:
        """The monotonic time in nanoseconds."""
        return monotonic_ns()

    def wall(self) -> float:
        """Seconds since 1970, only to compare with another host's."""
        return time()

    def watch(self, fd: int, events: int, callback: Callable[[int], None]) -> None:
        """Call ``callback(events)`` whenever fd is ready; replaces an earlier watch."""
        if fd in self._callbacks:
            self._epoll.modify(fd, events)
        else:
            self._epoll.register(fd, events)
        self._callbacks[fd] = callback

    def unwatch(self, fd: int) -> None:
        """Stop watching fd; to be called before it is closed."""
        if self._callbacks.pop(fd, None) is not None:
            self._epoll.unregister(fd)

    def at(self, name: str, when: float | None, callback: Callable[[], None]) -> None:
        """Set the timer of a name: one call at monotonic second ``when``. None: cancel it."""
        if when is None:
            self._timers.pop(name, None)
        else:
            self._timers[name] = (when, callback)

    def post(self, call: Callable[[], None]) -> None:
        """Run ``call`` in the loop's thread soon. The one method other threads may use."""
        with self._closing:
            if self._is_closed:
                return
            self._posted.append(call)
            try:
                os.write(self._wake_write, b"!")
            except BlockingIOError:
                return  # the pipe is full of wake-ups already

    @property
    def wake_fd(self) -> int:
        """The descriptor for signal.set_wakeup_fd: a byte written there wakes the loop."""
        return self._wake_write

    def run(self) -> None:
        """Run until stop()."""
        self._running = True
        while self._running:
            for fd, events in self._epoll.poll(self._timeout(), MAX_EVENTS):
                callback = self._callbacks.get(fd)
                if callback is not None:
                    callback(events)
            self._run_posted()
            self._run_timers()

    def stop(self) -> None:
        """Make run() return after the current round."""
        self._running = False

    def close(self) -> None:
        """Release the descriptors; what is posted later is dropped."""
        with self._closing:
            self._is_closed = True
            self._epoll.close()
            os.close(self._wake_read)
            os.close(self._wake_write)

    def _timeout(self) -> float | None:
        if self._posted:
            return 0
        if not self._timers:
            return None
        wait = min(when for when, _ in self._timers.values()) - monotonic()
        return min(WAIT_SECONDS_MAX, max(0.0, wait))

    def _run_timers(self) -> None:
        if not self._timers:
            return
        now = monotonic()
        due = [(when, name) for name, (when, _) in self._timers.items() if when <= now]
        for _, name in sorted(due):
            entry = self._timers.get(name)
            if entry is not None and entry[0] <= now:
                del self._timers[name]
                entry[1]()

    def _run_posted(self) -> None:
        for _ in range(len(self._posted)):
            self._posted.popleft()()

    def _on_wake(self, _events: int) -> None:
        try:
            os.read(self._wake_read, 4096)
        except BlockingIOError:
            return
