"""Two threads that call one Client at once: one of them is refused, and nobody gets wrong rows."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

import numpy as np
import pytest

from paddock.errors import UsageError
from paddock.ps.client.client import Client
from paddock.ps.spec import InitialSpec, OptimizerSpec, SparseSpec
from paddock.ps.strategies import STRATEGIES
from ps.client.running import fleet

WORDS = SparseSpec("words", 2, OptimizerSpec("sgd", 1.0), initial=InitialSpec("zeros"))
KEYS = np.arange(2000)
ROWS = np.repeat(KEYS[:, None], 2, axis=1).astype(np.float32)  # of a key: its number, twice
IN_TIME = 30.0
ONCE = "two threads called one Client at once"


def held(ps: Client, call: Callable[[Client], Any], meanwhile: Callable[[Client], Any]) -> Any:
    """The answer of `meanwhile` in another thread, while `call` has asked and waits for answers."""
    ours, theirs = ps.group.pull, ThreadPoolExecutor(1)

    def pull(wanted: Any) -> Any:
        theirs.submit(meanwhile, ps).result(IN_TIME)
        return ours(wanted)

    ps.strategy.pull = lambda group, wanted: pull(wanted)  # type: ignore[assignment]
    with theirs:
        return call(ps)


@pytest.mark.parametrize("strategy", ["async", "sync", "geo"])
@pytest.mark.parametrize(
    "call",
    [
        lambda ps: ps.pull("words", KEYS),
        lambda ps: ps.prefetch("words", KEYS),
        lambda ps: ps.push("words", KEYS, ROWS),
        lambda ps: ps.set("words", KEYS, ROWS),
        lambda ps: ps.step(),
        lambda ps: ps.flush(),
        lambda ps: ps.barrier(),
        lambda ps: ps.commit_offset({"file": 1}),
        lambda ps: ps.set_lr("words", 0.5),
    ],
    ids=["pull", "prefetch", "push", "set", "step", "flush", "barrier", "offset", "rate"],
)
def test_a_call_while_another_thread_pulls_is_refused(
    strategy: str, call: Callable[[Client], Any]
) -> None:
    """And the pull gets its rows, and the client goes on."""
    with fleet(2) as running, running.client(strategy=strategy) as ps:
        ps.create(WORDS)
        ps.set("words", KEYS, ROWS)
        with pytest.raises(UsageError, match=ONCE):
            held(ps, lambda ps: ps.pull("words", KEYS), call)
        del ps.strategy.pull
        assert (ps.pull("words", KEYS[::-1]) == ROWS[::-1]).all()


def test_threads_that_pull_as_fast_as_they_can_get_their_own_rows_or_an_error() -> None:
    """Rows of small pulls were another thread's, without a word."""
    with fleet(2) as running, running.client() as ps:
        ps.create(WORDS)
        ps.set("words", KEYS, ROWS)
        start, refused = Barrier(2), [0, 0]

        def work(number: int) -> None:
            keys = KEYS[number * 7 :: 40][:40]
            start.wait(IN_TIME)
            for _ in range(300):
                try:
                    assert (ps.pull("words", keys) == ROWS[keys]).all()
                except UsageError:
                    refused[number] += 1

        with ThreadPoolExecutor(2) as pool:
            for done in [pool.submit(work, number) for number in range(2)]:
                done.result(IN_TIME)


def test_two_questions_to_a_server_at_once_are_refused() -> None:
    """Over the link that asks: the answers would be the other thread's."""
    with fleet(1) as running, running.client() as ps, ps.peers[0].one_thread:
        with ThreadPoolExecutor(1) as pool, pytest.raises(UsageError, match=ONCE):
            pool.submit(ps.kv_get, "a").result(IN_TIME)
        ps.kv_set("a", 1)  # This thread has it.
        assert ps.kv_get("a") == 1


@pytest.mark.parametrize(
    "question",
    [lambda ps: ps.kv_get("a"), lambda ps: ps.status(), lambda ps: ps.offsets()],
    ids=["kv", "status", "offsets"],
)
def test_a_question_while_another_thread_pulls_is_answered(
    question: Callable[[Client], Any],
) -> None:
    """A thread that watches a trainer asks over a link of its own."""
    with fleet(2) as running, running.client() as ps:
        ps.create(WORDS)
        ps.set("words", KEYS, ROWS)
        assert (held(ps, lambda ps: ps.pull("words", KEYS), question) == ROWS).all()


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_threads_use_a_client_one_after_the_other(strategy: str) -> None:
    """Made in one, trained with in another, closed in a third; the batch's end may call it."""
    with fleet(2) as running:
        made: list[Client] = []

        def train() -> None:
            ps = made[0]
            ps.before_step = lambda: ps.commit_offset({"file": 1})
            ps.create(WORDS)
            ps.push("words", KEYS, ROWS)
            ps.step()
            assert ps.pull("words", KEYS).shape == ROWS.shape

        for work in (
            lambda: made.append(running.client(strategy=strategy)),
            train,
            lambda: made[0].close(),
        ):
            with ThreadPoolExecutor(1) as pool:
                pool.submit(work).result(IN_TIME)
        assert made[0].peers[0].is_ended


def test_close_while_another_thread_pulls_ends_the_connections() -> None:
    """And says why not everything may have arrived."""
    with fleet(1) as running:
        ps = running.client()
        ps.create(WORDS)
        with pytest.raises(UsageError, match=ONCE):
            held(ps, lambda ps: ps.pull("words", KEYS), Client.close)
        assert ps.peers[0].is_ended
