"""Signals that reach the launcher: its own, and those that its guardian forwards."""

from __future__ import annotations

import os
import signal

from paddock.local.guardian import LOSSES, from_guardian

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from paddock.agent.launcher import Launcher
    from paddock.local.loop import Loop

REST_PARTS = 10  # the looks take at most one of so many parts of the time


class LauncherSignals:
    """Signals to this process, and those the guardian hands on.

    What was sent to both at once was sent once: how often is the larger of the two counts. Those
    that end a job are counted together, since any of them means the same.
    """

    def __init__(self, launcher: Launcher) -> None:
        self._launcher = launcher
        self._heard: dict[int, list[int]] = {}
        self._paused_at: float | None = None  # by the loop's clock
        launcher.at_end(self.wake_guardian)
        for number in (signal.SIGTSTP, signal.SIGCONT):
            self.watch(number, from_guardian(number))

    def take(self, number: int, *, is_handed_on: bool) -> None:
        """Act on a signal, in the loop, unless it has come the other way already."""
        if number in (signal.SIGTSTP, signal.SIGCONT):
            self._pause(number == signal.SIGTSTP)
            return
        if number in LOSSES:
            self._launcher.member.on_signal(signal.SIGTERM, LOSSES[number])
            return
        is_user = number in (signal.SIGUSR1, signal.SIGUSR2)
        heard = self._heard.setdefault(number if is_user else 0, [0, 0])
        before = max(heard)
        heard[is_handed_on] += 1
        if max(heard) == before:
            return
        if is_user:
            self._launcher.member.forward(number)
        else:
            self._launcher.member.on_signal(number)

    def _pause(self, is_paused: bool) -> None:
        """The guardian has been stopped by Ctrl-Z, or goes on; this process never stops."""
        member, now = self._launcher.member, self._launcher.loop.now()
        since, self._paused_at = self._paused_at, now if is_paused else None
        count = member.pause(is_paused=is_paused)
        if is_paused:
            member.say("INFO", f"paused: {count} stand still; `fg` or `bg` goes on")
        elif since is not None:
            member.say("INFO", f"goes on after {now - since:.0f} s")

    def wake_guardian(self) -> None:
        """Let a guardian that Ctrl-Z has stopped see that the job is over."""
        if self._paused_at is not None:
            os.kill(os.getppid(), signal.SIGCONT)

    def watch(self, number: int, came_as: int) -> None:
        """Take the signal `number` whenever `came_as` comes."""

        def act() -> None:
            self.take(number, is_handed_on=came_as != number)

        signal.signal(came_as, lambda _number, _frame: self._launcher.loop.post(act))


class OrphanReaper:
    """Calls look() in the loop soon after a child has ended, often enough for any of them.

    A look reads /proc, on some kernels all of it, so many ends within a short time are one look.
    """

    def __init__(self, loop: Loop, look: Callable[[], None]) -> None:
        self._loop = loop
        self._look = look
        self._next_at = 0.0

    def watch(self) -> None:
        """Look whenever SIGCHLD comes, which Linux sends once for several ends."""
        signal.signal(signal.SIGCHLD, lambda _number, _frame: self._loop.post(self._soon))

    def _soon(self) -> None:
        self._loop.at("reap", self._next_at, self._reap)

    def _reap(self) -> None:
        began_at = self._loop.now()
        self._look()
        ended_at = self._loop.now()
        self._next_at = ended_at + (ended_at - began_at) * REST_PARTS
