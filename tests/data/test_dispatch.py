"""The dispatcher's rules as transcripts; PADDOCK_RECORD=1 writes them anew, to be read as text."""

from __future__ import annotations

import os
import tracemalloc
from pathlib import Path

import pytest

from data.dispatch_replay import replay
from paddock.data.dispatch.messages import (
    Granted,
    LeaseResult,
    Over,
    PassPlan,
    Poll,
    RegisterWorker,
    place_in,
)
from paddock.data.dispatch.state import DEATHS_MAX, Dispatch

SCENARIOS = sorted((Path(__file__).parent / "scenarios").glob("*.txt"))


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_scenario_goes_as_it_is_written(path: Path) -> None:
    """Each rule of the dispatcher is a story that people can read."""
    told = path.read_text()
    happened = replay(told)
    if os.environ.get("PADDOCK_RECORD"):
        path.write_text(happened)
    assert happened == told


@pytest.mark.parametrize("count", [1, 2, 3, 7, 64, 1000])
def test_each_pass_has_every_chunk_once_in_another_order(count: int) -> None:
    """The order is a permutation that takes no memory."""
    orders = [[place_in(count, 3, pass_, i) for i in range(count)] for pass_ in range(3)]
    assert all(sorted(order) == list(range(count)) for order in orders)
    assert count < 7 or orders[0] != orders[1] != orders[2]


def test_million_chunks_take_no_memory_and_no_notes() -> None:
    """What is done is not kept: it is what lies before the cursor, and is nothing else."""
    dispatch = Dispatch({})
    tracemalloc.start()
    dispatch.handle(RegisterWorker(0, 1, PassPlan("d", 10**6)))
    for _ in range(1000):
        reply = dispatch.handle(Poll(0, 1, "d", 0, (), 1))
        assert isinstance(reply, Granted)
        report = LeaseResult(reply.leases[0].number, 5)
        dispatch.handle(Poll(0, 1, "d", 0, (report,), 0))
    changes, used = dispatch.changes(), tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert used < 100_000
    assert len(str(changes)) < 500


def test_chunk_that_kills_every_worker_is_set_aside_in_the_end() -> None:
    """A chunk on which workers die does not hold up the pass for ever."""
    dispatch = Dispatch({})
    plan = PassPlan("d", 1)
    for incarnation in range(1, DEATHS_MAX + 1):
        begun = dispatch.handle(RegisterWorker(0, incarnation, plan))
        assert isinstance(begun, Granted)
        dispatch.handle(Poll(0, incarnation, "d", 0))
    assert dispatch.handle(RegisterWorker(0, DEATHS_MAX + 1, plan)) == Granted(0, (), True, True)
    assert dispatch.handle(Poll(0, DEATHS_MAX + 1, "d", 0)) == Over(False)
    assert [one.chunk for one in dispatch.aside] == [0]


def test_deaths_at_other_records_do_not_add_up() -> None:
    """A worker that gets further each time is not held up by its chunk."""
    dispatch = Dispatch({})
    plan = PassPlan("d", 1)
    dispatch.handle(RegisterWorker(0, 1, plan))
    dispatch.handle(Poll(0, 1, "d", 0))
    for incarnation in range(2, 3 * DEATHS_MAX):
        begun = dispatch.handle(RegisterWorker(0, incarnation, plan, {1: incarnation}))
        assert isinstance(begun, Granted)
        assert [lease.number for lease in begun.leases] == [1]
