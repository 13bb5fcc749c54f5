"""The loop: timers in order, posts from other threads, and nothing that spins."""

from __future__ import annotations

import os
import threading
from time import monotonic
from typing import TYPE_CHECKING

import pytest

from paddock.local.loop import READ, Loop

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def loop() -> Iterator[Loop]:
    """A loop with a limit of its own, closed after the test."""
    made = Loop()
    yield made
    made.close()


def test_timers_fire_in_order_of_their_time(loop: Loop) -> None:
    """Not in the order in which they were set."""
    fired: list[str] = []
    now = monotonic()
    loop.at("late", now + 0.02, lambda: (fired.append("late"), loop.stop()))  # type: ignore[func-returns-value]  # a lambda of two calls
    loop.at("soon", now + 0.01, lambda: fired.append("soon"))
    loop.run()
    assert fired == ["soon", "late"]


def test_a_timer_set_again_replaces_the_earlier(loop: Loop) -> None:
    """One name, one time."""
    fired: list[str] = []
    loop.at("a", monotonic(), lambda: fired.append("first"))
    loop.at("a", monotonic() + 0.01, loop.stop)
    loop.run()
    assert fired == []


def test_a_cancelled_timer_does_not_fire(loop: Loop) -> None:
    """Also when it is due in the same round."""
    fired: list[str] = []
    now = monotonic()
    loop.at("a", now, lambda: loop.at("b", None, loop.stop))
    loop.at("b", now + 0.000_001, lambda: fired.append("b"))
    loop.at("end", now + 0.01, loop.stop)
    loop.run()
    assert fired == []


def test_a_post_of_another_thread_wakes_the_loop(loop: Loop) -> None:
    """Without a timer the loop sleeps in the kernel for ever."""
    thread = threading.Timer(0.01, lambda: loop.post(loop.stop))
    thread.start()
    loop.run()
    thread.join()
    assert not thread.is_alive()


def test_posts_run_in_their_order(loop: Loop) -> None:
    """Also more of them than the wake-up pipe holds."""
    ran: list[int] = []
    for number in range(100_000):
        loop.post(lambda n=number: ran.append(n))  # type: ignore[misc]  # binds n now
    loop.post(loop.stop)
    loop.run()
    assert ran == list(range(100_000))


def test_a_descriptor_unwatched_in_its_round_is_left_alone(loop: Loop) -> None:
    """Its number may belong to another file by then."""
    pipes = [os.pipe() for _ in range(2)]
    called: list[int] = []

    def on_ready(mine: int, other: int) -> None:
        called.append(mine)
        loop.unwatch(other)
        loop.unwatch(mine)
        loop.post(loop.stop)

    (a, a_in), (b, b_in) = pipes
    loop.watch(a, READ, lambda _: on_ready(a, b))
    loop.watch(b, READ, lambda _: on_ready(b, a))
    os.write(a_in, b"x")
    os.write(b_in, b"x")
    loop.run()
    for fd in (a, a_in, b, b_in):
        os.close(fd)
    assert len(called) == 1


def test_an_idle_loop_uses_no_processor(loop: Loop) -> None:
    """A launcher waits for weeks; 20 rounds would already be polling."""
    rounds: list[float] = []
    original = loop._timeout
    loop._timeout = lambda: (rounds.append(monotonic()), original())[1]  # type: ignore[func-returns-value, method-assign]  # counts the rounds
    loop.at("end", monotonic() + 0.2, loop.stop)
    loop.run()
    assert len(rounds) <= 20
