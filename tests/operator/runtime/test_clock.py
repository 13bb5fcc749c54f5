"""Clocks and the limit on how long something may take."""

from __future__ import annotations

import asyncio

import pytest

from machine.virtual import StuckError, VirtualClock, run_virtual
from paddock.operator.runtime.clock import Clock, TimeLimit, end


def test_a_body_that_takes_too_long_is_ended() -> None:
    """A call that never answers must not hold a worker for ever."""

    async def main(clock: VirtualClock) -> float:
        with pytest.raises(asyncio.TimeoutError):
            async with TimeLimit(5.0):
                await asyncio.Event().wait()
        return clock.monotonic()

    assert run_virtual(main) == pytest.approx(5.0)


def test_a_body_in_time_is_left_alone() -> None:
    """The timer must not strike after the body has ended."""

    async def main(clock: VirtualClock) -> str:
        async with TimeLimit(5.0):
            await clock.pass_time(4.0)
        await clock.pass_time(10.0)
        return "ended"

    assert run_virtual(main) == "ended"


def test_cancellation_from_outside_is_not_taken_for_the_limit() -> None:
    """A worker that is told to end must end, not report a slow server."""

    async def main(clock: VirtualClock) -> bool:
        async def body() -> None:
            async with TimeLimit(5.0):
                await asyncio.Event().wait()

        task = asyncio.ensure_future(body())
        await clock.pass_time(1.0)
        task.cancel()
        await asyncio.wait({task})
        return task.cancelled()

    assert run_virtual(main)


def test_the_system_clock_goes_on() -> None:
    """monotonic never goes back, and sleep of nothing returns."""

    async def main() -> tuple[float, float]:
        clock = Clock()
        before = clock.monotonic()
        await clock.sleep(-1.0)  # sleep: returns at once
        return before, clock.monotonic()

    before, after = asyncio.run(main())
    assert after >= before


def test_waiting_for_nothing_is_an_error_in_made_up_time() -> None:
    """A test of a program that hangs must fail, not hang."""

    async def main(_: VirtualClock) -> None:
        await asyncio.Event().wait()

    with pytest.raises(StuckError):
        run_virtual(main)


@pytest.mark.parametrize("is_cancelled", [False, True])
def test_a_task_that_loses_its_cancellation_ends_all_the_same(is_cancelled: bool) -> None:
    """As one in asyncio.wait_for before Python 3.12, when its result comes in the same moment.

    Whoever ends it and is cancelled meanwhile hears of it, and leaves nothing behind.
    """

    async def main(clock: VirtualClock) -> None:
        async def watch() -> None:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                await asyncio.Event().wait()

        watching = asyncio.ensure_future(watch())
        await clock.pass_time(1.0)
        ending = asyncio.ensure_future(end(watching))
        await clock.pass_time(0.5)
        assert not watching.done()
        if is_cancelled:
            ending.cancel()
        await asyncio.wait({ending})
        assert watching.cancelled() and ending.cancelled() == is_cancelled

    run_virtual(main)
