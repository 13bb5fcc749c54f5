"""Workers of a job with a real server, each a thread of this process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from paddock import ps
from paddock.ps.server.engine import Engine
from paddock.ps.server.options import read_options
from paddock.ps.server.serve import Server
from paddock.ps.server.store import Store
from paddock.rec.worker_group import PsWorkers

STRATEGIES = ("sync", "async", "half_async", "geo")


@pytest.fixture
def endpoint() -> Iterator[str]:
    """A server for two trainers."""
    settings = read_options(["--port=0", "--num_gradient_servers=2", "--job=team"], {})
    server = Server(settings, Engine(Store(0, 1), None, "memory"))
    server.start()
    yield f"127.0.0.1:{server.port}"
    server.stop()


def both(endpoint: str, strategy: str, does: Callable[[PsWorkers], Any]) -> list[Any]:
    """What each of two workers returns."""

    def one(worker: int) -> Any:
        client = ps.Client(
            endpoint, strategy=strategy, trainer=worker, trainers=2, job="team",
            token_file="", tls_ca="",
        )  # fmt: skip
        with client:
            return does(PsWorkers(client))

    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(one, range(2)))


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_counts_are_added_up_over_workers(endpoint: str, strategy: str) -> None:
    """Also those that one float32 cannot hold, and each time anew."""
    big = float(2**40 + 1)

    def does(group: PsWorkers) -> Any:
        first = group.total("a", 0, np.array([big, group.worker, 0.25]))
        again = [group.total("a", n, np.full(100, n)).tolist() for n in range(1, 5)]
        return first.tolist(), [one[99] for one in again]

    assert both(endpoint, strategy, does) == [([2 * big, 1.0, 0.5], [2.0, 4.0, 6.0, 8.0])] * 2


def test_counts_of_many_metrics_are_added_up_in_parts(endpoint: str) -> None:
    """One all_reduce takes 65,536 numbers: that is eight histograms of an auc."""
    found = both(endpoint, "async", lambda group: group.total("a", 0, np.arange(140_000.0)))
    assert all(np.array_equal(one, 2 * np.arange(140_000.0)) for one in found)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_workers_with_different_numbers_of_batches_end_an_epoch_together(
    endpoint: str, strategy: str
) -> None:
    """In sync who has fewer goes on with empty steps: nobody waits for ever, nothing is lost."""

    def does(group: PsWorkers) -> float:
        group.client.create(ps.DenseSpec("w", 1, ps.OptimizerSpec("sum"), merge="sum"))
        for epoch in range(2):
            for _ in range(3 if group.worker == epoch else 7):
                group.client.push_dense("w", np.ones(1))
                group.client.step()
            group.end_epoch({"epoch": epoch, "step": 0, "at": None})
        group.client.flush()
        group.client.barrier("end")
        return float(group.client.pull_dense("w")[0])

    found = both(endpoint, strategy, does)
    if strategy != "geo":  # Its copies agree when they are closed.
        assert found == [20.0, 20.0]


def test_a_worker_that_was_started_again_knows_that_all_are_through(endpoint: str) -> None:
    """It takes no step more than the others, who are in the next epoch."""

    def ends(group: PsWorkers) -> tuple[int, int]:
        group.end_epoch({"epoch": 0, "step": 0, "at": None})
        return group.client.open_step, group.client.ended

    assert both(endpoint, "sync", ends) == [(2, 1)] * 2
    assert both(endpoint, "sync", ends) == [(2, 1)] * 2, "no other step"


def test_a_later_run_counts_its_own_epochs(endpoint: str) -> None:
    """Servers go on over the runs of a recipe, and have those of the run before."""

    def ends(group: PsWorkers) -> int:
        for group.run in (0, 1):
            for _ in range(2 * group.worker):
                group.client.step()
            for epoch in range(2):
                group.end_epoch({"epoch": epoch, "step": 0, "at": None})
        return group.client.open_step

    assert both(endpoint, "sync", ends) == [9, 9]
