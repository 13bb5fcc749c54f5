"""Worlds of seeds: whoever dies wherever, each record of each pass is trained once."""

from __future__ import annotations

import pytest

from data.sim_world import Sim

STRATEGIES = ("sync", "async")


def check_exact(sim: Sim, without: frozenset[int] = frozenset()) -> None:
    """Each server has each record once a pass."""
    records = {record for chunk in sim.chunks for record in chunk} - without
    for counter in sim.disk.counts:
        assert {r: counter[r] for r in records} == dict.fromkeys(records, sim.plan.passes)


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("block", range(2))
def test_each_record_is_trained_once_where_workers_come_back(strategy: str, block: int) -> None:
    """Workers die at any point and come back; the dispatcher dies around its writes, and its
    answers are lost."""
    for seed in range(block * 25, block * 25 + 25):
        sim = Sim(
            seed, strategy=strategy, workers=1 + seed % 4, batch_size=1 + seed % 5, ahead=seed % 3
        )
        sim.run()
        check_exact(sim)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_worker_may_die_at_each_of_its_points_and_come_back(strategy: str) -> None:
    """No point between two actions is left out."""
    point, was_reached = 0, True
    while was_reached:
        point += 1
        sim = Sim(
            5, strategy=strategy, workers=2, chunks=(5, 2, 6), passes=2, die_at=point,
            ahead=point % 2,
        )  # fmt: skip
        sim.run()
        check_exact(sim)
        was_reached = sim.disk.lives[0] > 1
    assert point > 15


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_worker_may_die_at_each_of_its_points_and_stay_away(strategy: str) -> None:
    """In sync the others train the rest once. Else at most its open batch is trained twice."""
    point, was_reached = 0, True
    while was_reached:
        point += 1
        sim = Sim(
            9, strategy=strategy, workers=3, chunks=(5, 2, 6, 4), passes=2, gone=[0], die_at=point
        )
        sim.run()
        was_reached = bool(sim.away)
        if strategy == "sync":
            check_exact(sim)
            continue
        for counter in sim.disk.counts:
            twice = counter.total() - 2 * sum(map(len, sim.chunks))
            assert min(counter[r] for chunk in sim.chunks for r in chunk) == 2
            assert 0 <= twice <= sim.batch_size
    assert point > 15


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_chunk_with_a_bad_record_is_tried_and_set_aside_over_deaths(strategy: str) -> None:
    """Records before the batch with the bad one are trained once, records of other chunks too."""
    for seed in range(40):
        sim = Sim(seed, strategy=strategy, workers=1 + seed % 3, bad=[12], passes=1)
        sim.run()
        lost = frozenset(range(10, 22))  # the chunk
        check_exact(sim, lost)
        assert all(counter[r] <= 1 for counter in sim.disk.counts for r in lost)
        assert all(counter[r] == 0 for counter in sim.disk.counts for r in (12, 21))
        aside = [(one["chunk"], one["reason"]) for one in sim.look()["aside"]]
        assert aside == [(3, "ValueError: record 12")]
