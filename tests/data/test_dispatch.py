"""The dispatcher's rules as transcripts; PADDOCK_RECORD=1 writes them anew, to be read as text."""

from __future__ import annotations

import json
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
    ProgressReport,
    RegisterWorker,
    Rejoin,
    ReleaseChunks,
    place_in,
)
from paddock.data.dispatch.service import event_from, question_of, reply_from
from paddock.data.dispatch.state import DEATHS_MAX, Dispatch
from paddock.errors import UsageError

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


def test_event_that_comes_twice_writes_no_note_anew() -> None:
    """The servers' log holds what changed: a repeated event changes nothing."""
    dispatch = Dispatch({})
    for event in (RegisterWorker(0, 1, PassPlan("d", 2)), Poll(0, 1, "d", 0)):
        replies, noted = [], []
        for _ in range(2):
            replies.append(dispatch.handle(event))
            noted.append(sorted(dispatch.changes()))
        assert replies[0] == replies[1]
        assert noted == [["course", "w/0"], []]


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


def test_messages_keep_their_names_on_the_wire() -> None:
    """A server of one version understands the workers of another."""
    poll = Poll(1, 2, "d", 0, (LeaseResult(5, 10, "bad line"),), 3)
    question = json.loads(json.dumps(question_of(poll)))
    assert question == {
        "do": "turn", "worker": 1, "life": 2, "digest": "d", "pass_": 0,
        "reports": [[5, 10, "bad line"]], "hold": 3,
    }  # fmt: skip
    assert event_from((1, 2), question) == poll
    assert reply_from({"is": "Anew"}) == Rejoin()
    answer = {"is": "Granted", "pass_": 0, "leases": [], "is_over": False, "is_robbed": True}
    assert reply_from(answer) == Granted(0, (), leases_revoked=True)


def test_worker_speaks_for_itself_and_reports_another() -> None:
    """The connection says who asks; a progress report is about a worker that is gone."""
    leave = {"do": "leave", "worker": 7, "life": 7, "seen": {"3": 4}}
    assert event_from((1, 2), leave) == ReleaseChunks(1, 2, {3: 4})
    found = {"do": "found", "worker": 7, "life": 8, "seen": {"3": [4, 5]}}
    assert event_from((1, 2), found) == ProgressReport(7, 8, {3: (4, 5)})


@pytest.mark.parametrize(
    "question",
    [
        {"do": "x"},
        {"do": "turn"},
        {"do": "leave", "seen": {"a": 1}},
        {"do": "leave", "seen": {"1": -1}},
        {"do": "turn", "digest": "d", "pass_": 0, "reports": [[1, 2]], "hold": 1},
        {"do": "turn", "digest": "d", "pass_": 0, "reports": [], "hold": True},
    ],
)
def test_question_that_is_none_is_refused(question: dict[str, object]) -> None:
    """A wrong question names what is wrong with it, and changes nothing."""
    with pytest.raises(UsageError):
        event_from((1, 2), question)
