"""Threads of one trainer through one client: one push a round, bits free of timing."""

from __future__ import annotations

import itertools
import random
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paddock.errors import PaddockError, UsageError
from paddock.ps import Client
from paddock.ps.client.merged import TrainerThread
from paddock.ps.client.strategy import STRATEGIES
from paddock.ps.spec import AccessorSpec, DenseSpec, InitialSpec, OptimizerSpec, SparseSpec
from paddock.ps.wire.errors import RequestError
from ps.client.running import Fleet, fleet

DIM = 3
SGD = OptimizerSpec("sgd", 1.0)
ZEROS = InitialSpec("zeros")
WORDS = SparseSpec("words", DIM, SGD, initial=ZEROS)
NUMBERS = itertools.count()
ONES = np.ones((1, DIM), np.float32)
Act = Callable[[TrainerThread], Any]


@pytest.fixture(scope="module")
def running() -> Iterator[Fleet]:
    """Two servers for all examples, which take a table each."""
    with fleet(2) as made:
        yield made


def together(client: Client, acts: list[Act], timeout: float = 20.0) -> list[Any]:
    """What each act returned or raised; act i has thread i."""

    def run(ps: TrainerThread, act: Act) -> Any:
        try:
            with ps:
                return act(ps)
        except PaddockError as error:
            return error

    threads = client.merged(len(acts), timeout=timeout)
    with ThreadPoolExecutor(len(acts)) as pool:
        return list(pool.map(run, threads, acts))


def steps_of(client: Client, table: str) -> int:
    """Steps that the table's optimizer has made."""
    (found,) = {
        one["step"]
        for status in client.status()
        for one in status["tables"]
        if one["name"] == table
    }
    return int(found)


KEYS = st.lists(st.integers(-4, 4), max_size=6)


@settings(max_examples=40)
@given(
    rounds=st.lists(st.lists(st.lists(KEYS, max_size=3), min_size=1, max_size=4), max_size=3),
    how=st.sampled_from(["sum", "mean"]),
    seed=st.integers(0, 2**31),
)
def test_a_merged_push_is_the_sum_or_mean_of_its_parts(
    rounds: list[list[list[list[int]]]], how: str, seed: int, running: Fleet
) -> None:
    """Each key's gradients over all pushes of all threads, divided by the threads for mean."""
    threads = max(map(len, rounds), default=1)
    name, wanted = f"t{next(NUMBERS)}", np.zeros((9, DIM))
    rng = np.random.default_rng(seed)
    given_: list[list[list[tuple[list[int], Any]]]] = [[] for _ in range(threads)]
    for parts in rounds:
        for thread in range(threads):
            pushes = [
                (keys, rng.normal(size=(len(keys), DIM)).astype(np.float32))
                for keys in (parts[thread] if thread < len(parts) else [])
            ]
            given_[thread].append(pushes)
            for keys, grads in pushes:
                np.add.at(
                    wanted, np.array(keys, int) + 4, grads / (threads if how == "mean" else 1)
                )

    def act(ps: TrainerThread) -> None:
        for pushes in given_[ps.thread]:
            for keys, grads in pushes:
                ps.push(name, keys, grads)
            ps.step()

    with running.client(strategy="half_async") as client:
        client.create(SparseSpec(name, DIM, SGD, initial=ZEROS, merge=how))
        assert together(client, [act] * threads) == [None] * threads
        assert np.allclose(client.pull(name, np.arange(-4, 5)), -wanted, atol=1e-5)


@pytest.mark.parametrize("how", ["sum", "mean"])
def test_a_round_is_one_step_of_the_optimizer(how: str) -> None:
    """Of sparse and dense tables, whatever the threads; statistics add up in any case."""
    spec = SparseSpec("w", 1, SGD, initial=ZEROS, merge=how, accessor=AccessorSpec(statistics=True))
    scale = 1 if how == "sum" else 1 / 3

    def act(ps: TrainerThread) -> float:
        ps.create(spec)
        ps.create(DenseSpec("d", 4, SGD, merge=how))
        for _ in range(2):
            ps.push("w", [5, 5], np.full((2, 1), 3.0, np.float32), shows=[1, 1], clicks=[0, 1])
            ps.push_dense("d", np.full(4, ps.thread, np.float32))
            ps.step()
        return float(ps.pull("w", [5])[0, 0])

    with fleet() as running, running.client(strategy="half_async") as client:
        assert together(client, [act] * 3) == [pytest.approx(-2 * 3 * 6 * scale)] * 3
        assert client.pull_dense("d").tolist() == pytest.approx([-2 * (0 + 1 + 2) * scale] * 4)
        assert steps_of(client, "w") == steps_of(client, "d") == 2


def trained(strategy: str, seed: int) -> dict[str, str]:
    """The digest after four threads have trained, started in an order drawn from `seed`."""
    gates = [threading.Event() for _ in range(4)]

    def act(ps: TrainerThread) -> None:
        rng = np.random.default_rng(ps.thread)
        gates[ps.thread].wait(10)
        for _ in range(5):
            keys = rng.integers(0, 40, 30)
            rows = ps.pull("words", keys) + rng.normal(size=(30, DIM)).astype(np.float32)
            ps.push("words", keys, rows)
            ps.push("words", keys[:3], rows[:3] * 1e-3)
            ps.push_dense("top", ps.pull_dense("top") + rng.normal(size=50).astype(np.float32))
            gates[seed % 4].set()
            ps.step()

    order = random.Random(seed).sample(range(4), 4)
    with fleet(2) as running, running.client(strategy=strategy, geo_step=2) as client:
        client.create(SparseSpec("words", DIM, OptimizerSpec("adagrad", 0.1)))
        client.create(DenseSpec("top", 50, OptimizerSpec("adam", 0.1)))
        for number in order:
            threading.Timer(0.002 * order.index(number), gates[number].set).start()
        assert together(client, [act] * 4) == [None] * 4
        return client.digest()


@pytest.mark.parametrize("strategy", sorted({*STRATEGIES} - {"async"}))
def test_the_bits_do_not_depend_on_which_thread_is_first(strategy: str) -> None:
    """One trainer: the merge is in the order of threads. (async: a pull may overtake a push.)"""
    first, *others = (trained(strategy, seed) for seed in range(3))
    assert all(digest == first for digest in others)


def test_a_thread_without_more_batches_is_not_waited_for() -> None:
    """The mean is over those who took part in the round."""

    def act(ps: TrainerThread) -> None:
        for _ in range(ps.thread + 1):
            ps.push("words", [1], 6 * ONES)
            ps.step()

    with fleet() as running, running.client(strategy="half_async") as client:
        client.create(WORDS)
        assert together(client, [act] * 3) == [None] * 3
        assert client.pull("words", [1]).tolist() == [[-18.0] * DIM]
        assert steps_of(client, "words") == 3


def test_a_failed_thread_ends_the_others_at_once() -> None:
    """Waiting for it would be for ever; the error names it and what it said."""

    def fail(ps: TrainerThread) -> None:
        ps.push("words", [1], ONES)
        raise PaddockError("no more data")

    def act(ps: TrainerThread) -> None:
        ps.push("words", [1], ONES)
        ps.step()

    with fleet() as running, running.client(strategy="half_async") as client:
        client.create(WORDS)
        failed, *others = together(client, [fail, act, act])
        assert failed.message == "no more data"
        assert all("thread 0 ended: PaddockError: no more data" in o.message for o in others)
        assert not client.pull("words", [1]).any()


def test_a_bad_gradient_is_the_error_of_its_own_thread() -> None:
    """It is told at the push, and is no part of the round when the thread goes on."""

    def act(ps: TrainerThread) -> None:
        if ps.thread == 1:
            with pytest.raises(RequestError, match="key 1 has a gradient"):
                ps.push("words", [1], ONES * np.nan)
            with pytest.raises(UsageError, match="shape"):
                ps.push("words", [1, 2], ONES)
        ps.push("words", [1], 2 * ONES)
        ps.step()

    with fleet() as running, running.client(strategy="half_async") as client:
        client.create(WORDS)
        assert together(client, [act] * 2) == [None] * 2
        assert client.pull("words", [1]).tolist() == [[-2.0] * DIM]


def test_what_a_server_refuses_is_told_to_every_thread() -> None:
    """And the next round goes on, as with one thread."""

    def act(ps: TrainerThread) -> str:
        with pytest.raises(RequestError) as refused:
            ps.push("few", np.arange(4) + 10 * ps.thread, np.ones((4, DIM)))
            ps.step()
        ps.push("few", [1], ONES)
        ps.step()
        return refused.value.message

    with fleet() as running, running.client(strategy="half_async") as client:
        client.create(SparseSpec("few", DIM, SGD, initial=ZEROS, max_rows=5))
        first, second = together(client, [act] * 2)
        assert first == second and "max_rows" in first
        assert client.pull("few", [1]).tolist() == [[-1.0] * DIM]


def test_threads_that_wait_for_different_things_are_told() -> None:
    """A barrier in one and a step in the other would wait for ever."""
    acts: list[Act] = [lambda ps: ps.step(), lambda ps: ps.barrier("saved")]
    with fleet() as running, running.client() as client:
        for error in together(client, acts):
            assert "barrier('saved'), step()" in error.message


def test_a_thread_that_does_not_come_is_named() -> None:
    """After the limit, which is a parameter."""
    with fleet() as running, running.client() as client:
        threads = client.merged(2, timeout=0.05)
        with pytest.raises(PaddockError, match=r"thread 1 has not called step\(\) for 0.05 s"):
            threads[0].step()
        with pytest.raises(PaddockError, match="thread 1 has not"):
            threads[1].step()


def test_all_threads_pass_a_barrier_once() -> None:
    """One barrier of the trainer, however many threads it has; alone() lends the client."""

    def act(ps: TrainerThread) -> dict[str, str]:
        ps.create(WORDS)
        ps.barrier("ready")
        with ps.alone() as client:
            return client.digest()

    with fleet() as running, running.client() as client:
        first, second, third = together(client, [act] * 3)
        assert first == second == third and set(first) == {"words"}


def test_misuse_of_threads_is_an_error() -> None:
    """No threads; a thread that has left; pushes that were never sent."""
    with fleet() as running, running.client() as client:
        client.create(WORDS)
        with pytest.raises(UsageError, match="threads is 0"):
            client.merged(0)
        (ps,) = client.merged(1)
        ps.push("words", [1], ONES)
        with pytest.raises(PaddockError, match="1 pushes since its last step"):
            ps.leave()
        ps.leave()
        with pytest.raises(UsageError, match="thread 0 has left"):
            ps.pull("words", [1])
