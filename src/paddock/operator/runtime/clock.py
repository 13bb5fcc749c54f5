"""Time for the runtime: a wall clock for what is shown, and one that never goes back.

Timers are the event loop's, so a test on a loop with virtual time lives through hours in
milliseconds.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from types import TracebackType

CANCEL_AGAIN_SECONDS = 1.0


class Clock:
    """This machine's clocks. now: seconds since 1970, which may jump. monotonic: seconds that only
    grow, those that the machine was suspended among them.

    A lease runs out while its holder sleeps; CLOCK_MONOTONIC would not notice (clock_gettime(2)).
    """

    def now(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        if hasattr(time, "CLOCK_BOOTTIME"):  # Linux
            return time.clock_gettime(time.CLOCK_BOOTTIME)
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Return that much later; at once for nothing or less."""
        await asyncio.sleep(max(0.0, seconds))


class TimeLimit:
    """``async with TimeLimit(5.0):`` raises asyncio.TimeoutError in the body when it takes longer.

    asyncio.timeout is not in Python 3.10, and asyncio.wait_for of 3.10 and 3.11 may swallow the
    cancellation of its caller (https://github.com/python/cpython/issues/86296).
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._is_over = False

    async def __aenter__(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._task = task
        loop = asyncio.get_running_loop()
        self._handle = loop.call_later(max(0.0, self._seconds), self._end)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._handle.cancel()
        if not self._is_over:
            return
        # Python 3.11 counts who asked for the cancellation: there may be another one to obey.
        uncancel = getattr(self._task, "uncancel", None)
        others = uncancel() if uncancel is not None else 0
        if others == 0 and kind is asyncio.CancelledError:
            raise asyncio.TimeoutError from error

    def _end(self) -> None:
        self._is_over = True
        self._task.cancel()


async def end(*tasks: asyncio.Future[Any]) -> None:
    """Cancel what still runs and come back when it has ended, whoever cancels us meanwhile.

    Its errors are read elsewhere, or never. Cancelled again each CANCEL_AGAIN_SECONDS: before
    Python 3.12 asyncio.wait_for loses a cancellation that comes with its result (bpo-37658), and a
    watch would go on for ever, a leader would never begin, or never step down.
    """
    cancelled: asyncio.CancelledError | None = None
    running, is_due = set(tasks), True
    while running:
        for task in running if is_due else ():
            task.cancel()
        try:
            _, running = await asyncio.wait(running, timeout=CANCEL_AGAIN_SECONDS)
            is_due = True
        except asyncio.CancelledError as error:
            cancelled, is_due = error, False
    await asyncio.gather(*tasks, return_exceptions=True)
    if cancelled is not None:
        raise cancelled
