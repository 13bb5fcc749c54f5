"""The launcher's watch: a thread that looks at this node's ranks, and takes their stacks.

No rank and no line of a log waits for it. Its imports are made in its thread, once the ranks run;
the standard library only.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from time import monotonic, thread_time

from paddock.core.value import value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from socket import socket
    from typing import Protocol

    from paddock.core.attempt.exits import Exit
    from paddock.core.rendezvous.messages import ToCoordinator
    from paddock.local.loop import Loop
    from paddock.local.node import NodeRunner

    class WatchedMember(Protocol):
        """A node's part in the job (agent/member.py)."""

        uid: str
        joined_at: float
        exits: list[Exit]  # of the latest attempt, a list that grows, another one for each

        def clock_offset(self) -> float:
            """The seconds that the coordinator's monotonic clock, and that of exits, is ahead."""

        def say(self, level: str, text: str) -> None:
            """Tell people. In the loop's thread, as tell_if_in."""

        def tell_if_in(self, attempt: int, message: ToCoordinator) -> None:
            """Tell the coordinator, unless the attempt has passed."""


LOOK_SECONDS = 0.4  # at logs and reports
LOOK_SHARE = 0.03  # of a core at most; with many ranks the looks are rarer
END_SECONDS = 15.0  # the imports of a short job's watch take seconds on a busy machine
STOP_SECONDS = 1.0  # for which a stop waits, at most,
STOP_SHARE = 0.25  # and so much of --grace: SIGTERM comes with the most of it left


@value
class WatchedRun:
    """A run on this node; the thread of the watch reads node and member, too.

    began_at: when the launcher began, in seconds since 1970. waits_from: since when it waits for
    nodes, monotonic seconds, 0.0 for a job of one node. is_waiting: this node coordinates, and
    waits for nodes now. folder: the entry of the run. metrics_listener: for Prometheus.
    """

    node: NodeRunner
    member: WatchedMember
    loop: Loop
    env: Mapping[str, str]
    run_id: str
    began_at: float
    waits_from: float
    is_waiting: Callable[[], bool]
    folder: str
    metrics_listener: socket | None = None

    @property
    def path(self) -> str:
        """The path of the history."""
        return os.path.join(self.node.directory or self.node.logs, "history.jsonl")

    def tell(self, text: str) -> None:
        """Tell people, from any thread."""
        self.loop.post(lambda: self.member.say("WARNING", text))


class Watcher:
    """Looks at the ranks of this node, in a thread of its own. bill: once it has ended."""

    def __init__(self, run: WatchedRun) -> None:
        self.bill = ""
        self._run = run
        self._is_over = False
        self._wake = threading.Event()
        self._stops: deque[tuple[str, float, Callable[[], None]]] = deque()
        self._thread = threading.Thread(target=self._watch, name="paddock-watch", daemon=True)

    def start(self) -> None:
        """Start the thread. Raises RuntimeError when there can be none."""
        self._thread.start()
        self._run.node.before_stop = self._before_stop

    def close(self) -> None:
        """Take a last look, write the end, and make the bill; gives up on a disk that hangs."""
        self._is_over = True
        self._wake.set()
        self._thread.join(END_SECONDS)

    def _before_stop(self, reason: str, then: Callable[[], None]) -> None:
        """Take all stacks, then call then() in the loop, which waits a second at most."""
        if not self._thread.is_alive():
            then()
            return
        left, loop = [then], self._run.loop
        seconds = min(STOP_SECONDS, STOP_SHARE * self._run.node.job.grace_seconds)

        def go() -> None:
            if left:
                loop.at("stacks", None, go)
                left.pop()()

        loop.at("stacks", loop.now() + seconds, go)
        self._stops.append((reason, max(0.01, seconds * 0.9), lambda: loop.post(go)))
        self._wake.set()

    def _watch(self) -> None:
        from paddock.watch.looks import NodeLooks

        run = self._run
        try:
            looks = NodeLooks(run)
        except OSError as error:
            run.tell(f"this run is not watched: {run.path}: {error.strerror}")
            if run.metrics_listener is not None:
                run.metrics_listener.close()
            return
        due = monotonic()
        while not self._is_over:
            if (began := monotonic()) >= due:
                used = thread_time()
                looks.look()
                due = began + max(LOOK_SECONDS, (thread_time() - used) / LOOK_SHARE)
            self._wake.wait(max(0.0, due - monotonic()))
            self._wake.clear()
            looks.read_mailbox()
            while self._stops and not self._is_over:
                reason, seconds, then = self._stops.popleft()
                looks.take_stacks(reason, seconds)
                then()
        self.bill = looks.close()
