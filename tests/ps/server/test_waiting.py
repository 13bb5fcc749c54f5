"""Trainers that wait for one another, as the coordinator's server sees them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from paddock.errors import UsageError
from paddock.ps.client.client import Client
from paddock.ps.spec import SparseSpec
from paddock.ps.wire.errors import RequestError
from ps.client.running import Fleet, fleet

SECONDS_MAX = 10.0
ROW = np.ones((1, 4), np.float32)


def until(fact: Callable[[], Any]) -> Any:
    """The first true value of `fact`; the coordinator is asked, for it tells nobody."""
    end = time.monotonic() + SECONDS_MAX
    while not (value := fact()):
        if time.monotonic() > end:
            raise AssertionError("it has not come about")
        # sleep: what is waited for happens in another thread
        time.sleep(0.005)
    return value


def chief(servers: Fleet) -> dict[str, Any]:
    """What `paddock ps status` shows of the trainers."""
    coordinator = servers.servers[0].coordinator
    assert coordinator is not None
    return coordinator.describe()


def both(servers: Fleet, strategy: str, **settings: Any) -> list[Client]:
    """Two trainers of the job."""
    made = [servers.client(trainer=i, trainers=2, strategy=strategy, **settings) for i in range(2)]
    for ps in made:
        ps.create(SparseSpec("words", 4))
    return made


def close(*trainers: Client) -> None:
    """End trainers."""
    for ps in trainers:
        ps.close()


def test_status_names_the_trainer_that_sync_waits_for() -> None:
    """Until it has arrived as well."""
    with fleet(2, "--num_gradient_servers=2") as servers:
        assert chief(servers) == {}
        zero, one = both(servers, "sync")
        zero.push("words", [1], ROW)
        stepping = threading.Thread(target=zero.step)
        stepping.start()
        facts = until(lambda: (f := chief(servers))["waiting_for"] and f)
        assert facts["waiting_for"] == [1]
        assert [member["arrived"] for member in facts["members"]] == [1, None]
        one.push("words", [1], ROW)
        one.step()
        stepping.join(SECONDS_MAX)
        facts = chief(servers)
        assert (facts["step"], facts["waiting_for"]) == (1, [])
        close(zero, one)
        assert chief(servers)["members"] == []


def test_status_names_the_slowest_under_staleness() -> None:
    """The one that is more than N batches behind."""
    with fleet(1, "--num_gradient_servers=2") as servers:
        zero, one = both(servers, "staleness", staleness=1)
        zero.step()
        stepping = threading.Thread(target=zero.step)
        stepping.start()
        facts = until(lambda: (f := chief(servers))["waiting_for"] and f)
        assert facts["waiting_for"] == [1] and facts["staleness"] == 1
        one.step()
        stepping.join(SECONDS_MAX)
        close(zero, one)


def test_a_barrier_lets_nobody_through_before_the_last() -> None:
    """And says who has reached it."""
    with fleet(1, "--num_gradient_servers=2") as servers:
        zero, one = both(servers, "async")
        waiting = threading.Thread(target=zero.barrier, args=("read",))
        waiting.start()
        assert until(lambda: chief(servers)["barriers"]) == {"read": [0]}
        one.barrier("read")
        waiting.join(SECONDS_MAX)
        assert chief(servers)["barriers"] == {}
        close(zero, one)


def test_a_lost_trainer_fails_the_job_by_name() -> None:
    """The default; those that wait hear who it was."""
    with fleet(1, "--num_gradient_servers=2", "--trainer-timeout=0.3") as servers:
        zero, one = both(servers, "sync")
        for peer in one.peers:
            peer.close()  # As if it had been killed.
        zero.push("words", [1], ROW)
        with pytest.raises(RequestError, match=r"trainer 1 was silent for 0.3 s"):
            zero.step()
        assert "trainer 1" in chief(servers)["failure"]
        for peer in zero.peers:
            peer.close()


def test_a_lost_trainer_is_left_behind_where_that_is_asked_for() -> None:
    """Its part of the step is void, the others go on."""
    words = ("--num_gradient_servers=2", "--trainer-timeout=0.3", "--on-lost-trainer=rescale")
    with fleet(1, *words) as servers:
        zero, one = both(servers, "sync")
        one.push("words", [1], ROW)
        one.flush()
        for peer in one.peers:
            peer.close()
        zero.push("words", [2], ROW)
        zero.step()
        assert [member["trainer"] for member in chief(servers)["members"]] == [0]
        rows = zero.status()[0]["rows"]
        assert rows == 1
        close(zero)


def test_an_ending_server_lets_go_of_those_that_wait() -> None:
    """They hear it instead of waiting for ever."""
    with fleet(1, "--num_gradient_servers=2") as servers:
        zero, one = both(servers, "sync", timeout=0.5)
        told: list[BaseException] = []

        def step() -> None:
            try:
                zero.step()
            except Exception as error:  # noqa: BLE001  # shown below
                told.append(error)

        stepping = threading.Thread(target=step)
        stepping.start()
        until(lambda: chief(servers)["waiting_for"])
        servers.stop()
        stepping.join(SECONDS_MAX)
        assert len(told) == 1
        for peer in (*zero.peers, *one.peers):
            peer.close()


def alone(*trainers: Client) -> None:
    """End the connections of trainers without a good-bye, as kill -9 does."""
    for ps in trainers:
        for peer in ps.peers:
            peer.end()


def epochs(ps: Client, *names: str) -> None:
    """A step for "step", else a barrier of that name."""
    for name in names:
        if name == "step":
            ps.push("words", [1], ROW)
            ps.step()
        else:
            ps.barrier(name)


@pytest.mark.parametrize("strategy", ["sync", "staleness", "async"])
def test_a_trainer_that_comes_back_meets_the_others_at_their_barrier(strategy: str) -> None:
    """Its first life passed "epoch" twice; barriers that the others are past hold it up no more."""
    with fleet(2, "--num_gradient_servers=2") as servers, ThreadPoolExecutor(2) as pool:
        pair = both(servers, strategy)
        life = ["begin", "step", "epoch", "step", "epoch"]
        for done in [pool.submit(epochs, ps, *life) for ps in pair]:
            done.result(SECONDS_MAX)
        alone(pair[1])
        pair[1] = servers.client(trainer=1, trainers=2, strategy=strategy)
        pair[1].create(SparseSpec("words", 4))
        rest = ["step", "epoch", "step", "epoch"]
        first = pool.submit(epochs, pair[0], *rest)
        second = pool.submit(epochs, pair[1], "begin", *rest)
        assert first.result(SECONDS_MAX) is None
        assert second.result(SECONDS_MAX) is None
        assert chief(servers)["step"] == (0 if strategy == "async" else 4)
        close(*pair)


def test_a_trainer_in_a_barrier_holds_up_no_other_after_a_restart(tmp_path: Path) -> None:
    """staleness: clocks are not kept, so it says its own again where it waits."""
    with (
        fleet(1, "--num_gradient_servers=2", data=tmp_path) as servers,
        ThreadPoolExecutor(2) as pool,
    ):
        pair = both(servers, "staleness", staleness=1)
        for done in [pool.submit(epochs, ps, *["step"] * 3) for ps in pair]:
            done.result(SECONDS_MAX)
        first = pool.submit(epochs, pair[0], "step", "end")
        assert until(lambda: chief(servers)["barriers"]) == {"end": [0]}
        servers.stop_one(0)
        servers.restart(0)
        assert pool.submit(epochs, pair[1], "step", "end").result(SECONDS_MAX) is None
        assert first.result(SECONDS_MAX) is None
        close(*pair)


@pytest.mark.parametrize("strategy", ["sync", "staleness", "async", "half_async", "geo"])
def test_a_barrier_hears_of_a_lost_trainer(strategy: str) -> None:
    """Whatever the strategy: nobody waits for ever for one who is dead."""
    with fleet(1, "--num_gradient_servers=2", "--trainer-timeout=0.3") as servers:
        zero, one = both(servers, strategy)
        alone(one)
        with pytest.raises(RequestError, match=r"trainer 1 was silent for 0.3 s") as caught:
            zero.barrier("read")
        assert caught.value.code == "failed" and "--on-lost-trainer" in caught.value.hint
        assert chief(servers)["barriers"] == {}
        alone(zero)


def test_a_barrier_goes_on_without_an_expelled_trainer() -> None:
    """With rescale, also in async."""
    words = ("--num_gradient_servers=2", "--trainer-timeout=0.3", "--on-lost-trainer=rescale")
    with fleet(1, *words) as servers:
        zero, one = both(servers, "async")
        alone(one)
        zero.barrier("read")
        assert [member["trainer"] for member in chief(servers)["members"]] == [0]
        close(zero)


def test_a_barrier_says_who_has_not_come_in_time() -> None:
    """Its own limit, for one who is there and busy."""
    with fleet(1, "--num_gradient_servers=3") as servers, ThreadPoolExecutor(1) as pool:
        zero, one, two = [servers.client(trainer=i, trainers=3) for i in range(3)]
        waits = pool.submit(two.barrier, "read")
        with pytest.raises(RequestError, match=r"barrier 'read': trainer 1 has not come in 0.4 s"):
            zero.barrier("read", timeout=0.4)
        with pytest.raises(UsageError, match="timeout is 0"):
            zero.barrier("read", timeout=0)
        assert chief(servers)["barriers"] == {"read": [2]}, "who has no limit waits on"
        one.close()
        zero.barrier("read")
        assert waits.result(SECONDS_MAX) is None
        close(zero, two)


def test_trainers_that_all_wait_for_one_another_are_told_where() -> None:
    """Uneven batches and a barrier at the end: that is no slow trainer, it is for ever."""
    with fleet(1, "--num_gradient_servers=2") as servers, ThreadPoolExecutor(2) as pool:
        zero, one = both(servers, "sync")
        ends = [
            pool.submit(epochs, zero, "step", "end"),
            pool.submit(epochs, one, "step", "step", "end"),
        ]
        for end in ends:
            with pytest.raises(RequestError) as caught:
                end.result(SECONDS_MAX)
            assert "trainer 0 waits at barrier 'end'" in caught.value.message
            assert "trainer 1 waits at step 2" in caught.value.message
            assert caught.value.code == "failed"
            assert "close its client" in caught.value.hint and "staleness" in caught.value.hint
        alone(zero, one)


@pytest.mark.parametrize("strategy", ["staleness", "half_async", "async", "geo"])
def test_trainers_with_unequal_numbers_of_batches_meet_at_a_barrier(strategy: str) -> None:
    """Who has none left held up the others, who were then told that all wait for one another."""
    settings = {"staleness": 1} if strategy == "staleness" else {}
    with fleet(1, "--num_gradient_servers=3") as servers, ThreadPoolExecutor(3) as pool:
        made = [
            servers.client(trainer=i, trainers=3, strategy=strategy, **settings) for i in range(3)
        ]
        for ps in made:
            ps.create(SparseSpec("words", 4))
        passes = [[*["step"] * (1 + 4 * i), "pass"] * 2 for i in range(3)]
        done = [pool.submit(epochs, ps, *life) for ps, life in zip(made, passes, strict=True)]
        assert [one.result(SECONDS_MAX) for one in done] == [None, None, None]
        close(*made)
