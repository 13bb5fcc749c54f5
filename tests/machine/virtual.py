"""An event loop whose time is made up: when there is nothing to do, the next timer is due.

Hours pass in milliseconds, the same way each time. Where neither work nor a timer is left the
program under test waits for ever; that is an error, told at once.
"""

from __future__ import annotations

import asyncio
import selectors
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

T = TypeVar("T")
START = 1_800_000_000.0  # seconds since 1970, in 2027


class StuckError(Exception):
    """Everybody waits and no timer runs."""


class _Selector(selectors.SelectSelector):
    """Never waits; tells the loop that the time asked for is over."""

    time = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if ready or timeout == 0:
            return ready
        if timeout is None:
            raise StuckError("nothing is left to do, and no timer runs")
        self.time += timeout
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    """Its time() begins at 0."""

    def __init__(self) -> None:
        self._virtual = _Selector()
        super().__init__(self._virtual)

    def time(self) -> float:
        """Seconds that have passed so far."""
        return self._virtual.time


class VirtualClock:
    """The Clock of a VirtualLoop. jump: set the wall clock, and nothing else, by that much."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop
        self._ahead = 0.0

    def now(self) -> float:
        """Wall clock."""
        return START + self._loop.time() + self._ahead

    def monotonic(self) -> float:
        """Seconds that have passed so far."""
        return self._loop.time()

    async def sleep(self, seconds: float) -> None:
        """Return that much later."""
        await asyncio.sleep(max(0.0, seconds))

    async def pass_time(self, seconds: float) -> None:
        """Let everybody do what they do in that time."""
        await self.sleep(seconds)

    def jump(self, seconds: float) -> None:
        """Somebody set the clock."""
        self._ahead += seconds


def run_virtual(main: Callable[[VirtualClock], Awaitable[T]]) -> T:
    """Run it to its end in made-up time; tasks that are left are cancelled.

    What a task that nobody waited for raised is raised here.
    """
    loop = VirtualLoop()
    lost: list[BaseException] = []
    loop.set_exception_handler(lambda _, context: lost.append(_said(context)))

    async def whole() -> T:
        return await main(VirtualClock(loop))

    try:
        answer = loop.run_until_complete(whole())
    finally:
        try:
            loop.run_until_complete(_end_others())
            loop.run_until_complete(loop.shutdown_asyncgens())
        finally:
            loop.close()
    if lost:
        raise lost[0]
    return answer


async def _end_others() -> None:
    left = asyncio.all_tasks() - {asyncio.current_task()}
    for task in left:
        task.cancel()
    await asyncio.gather(*left, return_exceptions=True)


def _said(context: dict[str, object]) -> BaseException:
    error = context.get("exception")
    return error if isinstance(error, BaseException) else AssertionError(str(context))
