"""Small pulls of many connections, answered by one thread.

A thread for each connection is simple, but with many trainers the threads wait for one another
(the interpreter runs one at a time) more than for the sockets. So a connection that has just been
answered a small pull rests here: its own thread sleeps, and one thread reads from all that rest.
Whatever is no whole small pull wakes the connection's own thread, which goes on where it was.
"""

from __future__ import annotations

import select
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from paddock.ps.server.session import Session


# After a stop, the thread ends within these.
LOOK_SECONDS = 1.0


class Lobby:
    """Of one server. It takes a connection for as long as nothing else is asked there."""

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._resting: dict[int, tuple[Session, threading.Event]] = {}
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._is_stopped = False

    def rest(self, session: Session) -> None:
        """Called by the connection's own thread; returns when that is needed again."""
        needed = threading.Event()
        with self._lock:
            if self._is_stopped:
                return
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, daemon=True)
                self._thread.start()
            self._resting[session.stream.fileno()] = session, needed
            self._epoll.register(session.stream.fileno(), select.EPOLLIN)
        needed.wait()

    def _run(self) -> None:
        while self._resting or not self._is_stopped:
            for descriptor, _ in self._epoll.poll(LOOK_SECONDS):
                session, needed = self._resting[descriptor]
                if not session.answer_small():
                    self._epoll.unregister(descriptor)
                    del self._resting[descriptor]
                    needed.set()
        self._epoll.close()

    def stop(self) -> None:
        """Take nobody any more; the connections of those that rest must end."""
        with self._lock:
            self._is_stopped = True
            if self._thread is None:
                self._epoll.close()
