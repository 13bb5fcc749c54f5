"""The user's own shell command before each attempt (--elastic-pre-hook), without waiting for it."""

from __future__ import annotations

import os

from paddock.local.loop import READ, Loop
from paddock.local.spawn import DEFAULT_SIGNALS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

SIGKILL = 9


class Hook:
    """A running hook. The loop calls on_end(exit code), unless the hook was cancelled before."""

    def __init__(
        self, command: str, env: Mapping[str, str], loop: Loop, on_end: Callable[[int], None]
    ) -> None:
        self._loop = loop
        self._on_end = on_end
        self._pid = os.posix_spawn(
            "/bin/sh",
            ["/bin/sh", "-c", command],
            env,
            setpgroup=0,
            setsigmask=[],
            setsigdef=DEFAULT_SIGNALS,
        )
        self._pidfd = os.pidfd_open(self._pid)
        loop.watch(self._pidfd, READ, self._ended)

    def _ended(self, _events: int) -> None:
        self._on_end(os.waitstatus_to_exitcode(self._reap()))

    def cancel(self) -> None:
        """Kill the hook and its children, without waiting for their end."""
        os.killpg(self._pid, SIGKILL)
        self._loop.watch(self._pidfd, READ, self._forget)

    def _forget(self, _events: int) -> None:
        self._reap()

    def _reap(self) -> int:
        self._loop.unwatch(self._pidfd)
        os.close(self._pidfd)
        try:
            return os.waitpid(self._pid, 0)[1]
        except ChildProcessError:
            return 0  # cancelled, and swept away with all the rest
