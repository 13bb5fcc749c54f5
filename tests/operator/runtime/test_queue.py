"""The work queue: nobody works on a key twice at once, no key is lost, none starves."""

from __future__ import annotations

import asyncio
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from machine.virtual import run_virtual
from paddock.operator.runtime.queue import BACKOFF_MAX_SECONDS, Queue

if TYPE_CHECKING:
    from machine.virtual import VirtualClock


def remembered(queue: Queue[Any]) -> int:
    """How many things are kept of keys."""
    kept = (queue._dirty, queue._working, queue._later, queue._failures)
    return sum(len(of) for of in kept)


def test_a_key_added_often_is_worked_on_once() -> None:
    """Forty events of one job are one look at it."""

    async def main(clock: VirtualClock) -> int:
        queue: Queue[str] = Queue(clock, Random(0))
        for _ in range(40):
            queue.add("a")
        assert await queue.get() == "a"
        queue.done("a")
        return queue.depth

    assert run_virtual(main) == 0


def test_a_key_added_while_worked_on_comes_again_afterwards() -> None:
    """What changed during the work may not have been seen by it."""

    async def main(clock: VirtualClock) -> None:
        queue: Queue[str] = Queue(clock, Random(0))
        queue.add("a")
        assert await queue.get() == "a"
        queue.add("a")
        queue.add("b")
        assert await queue.get() == "b"  # and not "a", which is being worked on
        queue.done("a")
        assert await queue.get() == "a"

    run_virtual(main)


def test_the_earliest_of_several_times_wins() -> None:
    """A deadline in an hour must not postpone a retry in a second, nor the other way round."""

    async def main(clock: VirtualClock) -> list[float]:
        queue: Queue[str] = Queue(clock, Random(0))
        queue.add_after("a", 3600.0)
        queue.add_after("a", 1.0)
        queue.add_after("a", 60.0)
        times = []
        await queue.get()
        times.append(clock.monotonic())
        queue.done("a")
        # The other times were for a decision that is made anew now.
        queue.add_after("a", 10.0)
        await queue.get()
        times.append(clock.monotonic())
        return times

    assert run_virtual(main) == pytest.approx([1.0, 11.0])


def test_a_busy_key_does_not_starve_the_others() -> None:
    """One job with a flood of events must leave the workers to the others, too."""

    async def main(clock: VirtualClock) -> list[str]:
        queue: Queue[str] = Queue(clock, Random(0))
        for key in ("busy", "b", "c"):
            queue.add(key)
        order = []
        for _ in range(5):
            key = await queue.get()
            order.append(key)
            queue.add("busy")
            queue.done(key)
        return order

    assert run_virtual(main) == ["busy", "b", "c", "busy", "busy"]


def test_pauses_double_up_to_a_limit_and_begin_anew_after_success() -> None:
    """A job that fails for ever must cost next to nothing, and one that recovers no time."""

    async def main(clock: VirtualClock) -> tuple[list[float], float]:
        queue: Queue[str] = Queue(clock, Random(0))
        pauses = []
        for _ in range(20):
            pauses.append(queue.back_off("a"))
            await queue.get()
            queue.done("a")
        queue.forget("a")
        return pauses, queue.back_off("a")

    pauses, first = run_virtual(main)
    assert pauses[0] <= 0.05 and first <= 0.05
    assert pauses[:12] == sorted(pauses[:12])
    assert max(pauses) <= BACKOFF_MAX_SECONDS


def test_nothing_is_kept_of_keys_that_are_done() -> None:
    """Thousands of jobs come and go; the queue must not remember them."""

    async def main(clock: VirtualClock) -> int:
        queue: Queue[int] = Queue(clock, Random(0))
        for key in range(1000):
            queue.add(key)
            queue.add_after(key, 5.0)
        for _ in range(1000):
            key = await queue.get()
            queue.back_off(key)
            queue.forget(key)
            queue.done(key)
        await clock.pass_time(10.0)
        for _ in range(1000):
            queue.done(await queue.get())
        return remembered(queue)

    assert run_virtual(main) == 0


def test_clear_forgets_all_but_the_work_in_hand() -> None:
    """A new leader begins with its own list of jobs."""

    async def main(clock: VirtualClock) -> tuple[int, int]:
        queue: Queue[str] = Queue(clock, Random(0))
        queue.add("a")
        queue.add("b")
        queue.add_after("c", 1.0)
        await queue.get()
        queue.clear()
        queue.done("a")
        await clock.pass_time(5.0)
        return queue.depth, remembered(queue)

    assert run_virtual(main) == (0, 0)


STEPS = st.tuples(st.sampled_from(["add", "later", "done"]), st.integers(0, 4))


@given(st.lists(STEPS), st.data())
def test_no_order_of_calls_loses_a_key_or_gives_it_twice(
    steps: list[tuple[str, int]], data: st.DataObject
) -> None:
    """Compared with the obvious model: a set of what is dirty, a set of what is worked on."""

    async def main(clock: VirtualClock) -> None:
        queue: Queue[int] = Queue(clock, Random(0))
        dirty: set[int] = set()
        working: list[int] = []
        for step, key in steps:
            if step == "add":
                queue.add(key)
                dirty.add(key)
            elif step == "later":
                queue.add_after(key, 0.5)
                await clock.pass_time(1.0)
                dirty.add(key)
            elif working:
                queue.done(working.pop(key % len(working)))
            ready = dirty - set(working)
            if ready and data.draw(st.booleans()):
                got = await queue.get()
                assert got in ready
                dirty.discard(got)
                working.append(got)
        for key in working:
            queue.done(key)
        rest = {await asyncio.wait_for(queue.get(), 1.0) for _ in dirty}
        assert rest == dirty

    run_virtual(main)
