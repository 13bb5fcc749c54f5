"""The bill: every rank-second is in one kind, and the sum is the wall time times the ranks."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddock.watch.bill import KINDS, bill_line, bill_of, needed_rows, phases_of, read_attempts
from paddock.watch.history import HistoryRows, merged


def row(at: float, kind: str, **more: object) -> dict[str, object]:
    return {"kind": kind, "at": at, **more}


def attempt(at: float, ranks: int = 2) -> dict[str, object]:
    listed = [["worker", rank, 100 + rank, ""] for rank in range(ranks)]
    return row(at, "attempt", attempt=int(at), ranks=listed)


def spent(*rows: dict[str, object]) -> dict[str, float]:
    bill = bill_of(HistoryRows(tuple(rows)))
    assert bill is not None
    assert sum(ms for _, ms in bill.spent_ms) == bill.wall_ms * bill.ranks
    assert bill_of(HistoryRows(tuple(filter(needed_rows(), rows)))) == bill
    return {kind: ms / 1000 for kind, ms in bill.spent_ms if ms}


def test_a_run_that_tells_no_step_is_useful_from_its_start() -> None:
    """It was 98 % warm-up: of a script that prints nothing, or a line at its end."""
    run = [row(0, "begin"), attempt(1), row(100, "attempt_end"), row(100, "end")]
    assert spent(*run) == {"start": 2, "useful": 198}
    assert spent(*run[:2], row(99, "line", rank=0), *run[2:]) == {"start": 2, "useful": 198}


def test_an_attempt_that_ends_before_its_first_step_is_warm_up() -> None:
    """Another attempt of the run has told steps."""
    rows = [row(0, "begin"), attempt(0, 1), row(5, "attempt_end", attempt=0), attempt(5, 1)]
    assert spent(*rows, progress(8, 1), row(20, "end")) == {"warm-up": 5 + 3, "useful": 12}


def test_a_rank_that_its_user_holds_stands_still() -> None:
    """Others go on with their steps: only the rank itself, from before the row that tells it."""
    rows = [row(0, "begin"), attempt(0), *(progress(at, at) for at in range(41))]
    rows += [row(0, "progress", rank=1, step=0), row(20, "held", rank=1, seconds=10.0)]
    rows += [row(30, "held_over", rank=1), row(40, "end")]
    rows.sort(key=lambda each: each["at"])  # type: ignore[arg-type,return-value]
    assert spent(*rows) == {"useful": 40 + 20, "stalled": 20}


def test_ranks_that_wait_for_a_held_one_stand_still() -> None:
    """No rank does a step while it is held, but the one that was on its way."""
    rows = [row(0, "begin"), attempt(0), progress(0, 0), progress(11, 1)]
    rows += [row(20, "held", rank=1, seconds=10.0), row(30, "held_over", rank=1)]
    assert spent(*rows, progress(31, 2), row(40, "end")) == {"useful": 20 + 21, "stalled": 20 + 19}
    assert spent(*rows[:2], *rows[4:], row(40, "end")) == {"useful": 40, "stalled": 40}


@pytest.mark.parametrize("over", [row(30, "exit", rank=0, ok=True), attempt(30, 1)])
def test_a_held_rank_that_ends_is_held_no_more(over: dict[str, object]) -> None:
    rows = [row(0, "begin"), attempt(0, 1), row(20, "held", rank=0, seconds=10.0)]
    assert spent(*rows, over, row(40, "end"))["stalled"] == 20


def test_a_stall_that_a_restart_ends_is_no_lost_work() -> None:
    """Nothing was done in it that could be lost; nor is it warm-up where the first step hangs."""
    rows = [row(0, "begin"), attempt(0, 1), progress(1, 1), progress(2, 2), progress(3, 3)]
    rows += [row(20, "stall", seconds=16.0), row(20, "stopping"), row(21, "attempt_end", attempt=0)]
    rows += [attempt(22, 1), progress(23, 2), row(30, "end")]
    assert spent(*rows) == {"warm-up": 2, "useful": 1 + 7, "lost": 2, "stalled": 16,
                            "draining": 1, "restart": 1}  # fmt: skip
    hung = [row(0, "begin"), attempt(0, 1), row(20, "stall", seconds=16.0), row(20, "stopping"),
            row(20, "attempt_end", attempt=0), attempt(20, 1), progress(21, 1)]  # fmt: skip
    assert spent(*hung, row(30, "end")) == {"warm-up": 4 + 1, "stalled": 16, "useful": 9}


def test_the_way_of_the_code_to_a_node_is_start() -> None:
    """A node's time runs from when the backend gave it."""
    rows = [row(0, "allocated"), row(6, "code_there"), row(8, "begin"), attempt(9, 1)]
    history = HistoryRows((*rows, row(10, "end")))
    assert spent(*history.rows) == {"start": 9, "useful": 1}
    assert phases_of(history, read_attempts(history)) == {
        0: [("allocated", 0, 6000), ("code_there", 6000, 8000), ("start", 8000, 9000),
            ("useful", 9000, 10_000)],
    }  # fmt: skip


def test_a_run_without_a_fault() -> None:
    assert spent(
        row(0, "begin"), attempt(1), row(5, "progress", rank=0, step=1),
        row(6, "progress", rank=1, step=1), row(20, "attempt_end"), row(21, "end"),
    ) == {"start": 2, "warm-up": 9, "useful": 29, "draining": 2}  # fmt: skip


def test_ranks_that_print_nothing_begin_with_the_others() -> None:
    assert spent(
        row(0, "begin"), attempt(0), row(5, "progress", rank=0, step=1), row(10, "end")
    ) == {"warm-up": 10, "useful": 10}  # fmt: skip


def test_a_line_before_the_first_step_ends_no_warm_up() -> None:
    assert spent(
        row(0, "begin"), attempt(0), row(1, "line", rank=0), row(1, "line", rank=1),
        row(6, "progress", rank=0, step=1), row(10, "end"),
    ) == {"warm-up": 12, "useful": 8}  # fmt: skip


def test_work_that_a_restart_does_again_is_lost() -> None:
    rows = [row(0, "begin"), attempt(0, 1)]
    rows += [row(at, "progress", rank=0, step=at) for at in range(1, 11)]
    rows += [row(11, "attempt_end"), attempt(13, 1), row(15, "progress", rank=0, step=7)]
    rows += [row(20, "end")]
    assert spent(*rows) == {
        "warm-up": 1 + 2, "useful": 6 + 5, "lost": 4, "restart": 2,
    }  # fmt: skip


def progress(at: float, step: int, **more: object) -> dict[str, object]:
    return row(at, "progress", **{"rank": 0, "step": step, **more})


def test_work_is_lost_to_an_attempt_that_comes_after_one_without_a_step() -> None:
    rows = [row(0, "begin"), attempt(0, 1), *(progress(at, at) for at in range(1, 11))]
    rows += [row(11, "attempt_end", attempt=0), attempt(12, 1), row(13, "attempt_end", attempt=12)]
    rows += [attempt(14, 1), progress(15, 7), row(20, "end")]
    assert spent(*rows) == {"warm-up": 3, "useful": 6 + 5, "lost": 4, "restart": 2}


def test_a_step_of_another_epoch_is_another_step() -> None:
    rows = [row(0, "begin"), attempt(0, 1)]
    rows += [progress(at, at % 5, epoch=at // 5) for at in range(1, 11)]
    rows += [row(11, "attempt_end", attempt=0), attempt(11, 1), progress(12, 3, epoch=1)]
    assert spent(*rows, row(20, "end")) == {"warm-up": 2, "useful": 7 + 8, "lost": 3}


def test_a_rank_without_a_node_waits_for_one() -> None:
    rows = [row(0, "begin"), attempt(0, 2), progress(0, 0), row(10, "attempt_end", attempt=0)]
    rows += [row(10, "waited", seconds=3.0), attempt(14, 1), progress(14, 1)]
    assert spent(*rows, row(20, "end")) == {
        "useful": 20 + 6, "rendezvous": 2 * 3 + 6, "restart": 2,
    }  # fmt: skip


def renumbered(at: float, *ranks: int, node: str = "a") -> dict[str, object]:
    """An attempt with these ranks on a node."""
    listed = [["worker", rank, 100 + rank, ""] for rank in ranks]
    return row(at, "attempt", attempt=int(at), ranks=listed, node=node)


def test_a_rank_with_another_number_is_the_same_rank() -> None:
    """As after the loss of a node, or when one joins: a node's own rows know its own ranks only."""
    rows = [row(0, "begin", node="a"), renumbered(0, 1), progress(0, 0, rank=1)]
    rows += [
        row(10, "attempt_end"),
        renumbered(10, 0),
        progress(10, 1),
        row(20, "attempt_end"),
        renumbered(20, 2),
    ]
    rows += [progress(20, 2, rank=2), row(30, "end")]
    assert spent(*rows) == {"useful": 30}


def test_a_rank_that_is_held_is_so_in_its_own_attempt() -> None:
    """Its number may be another rank's in the next."""
    rows = [row(0, "begin", node="a"), renumbered(0, 0, 1), progress(0, 0)]
    rows += [progress(0, 0, rank=1), row(10, "held", rank=1, seconds=5.0), progress(12, 1)]
    rows += [row(20, "attempt_end"), renumbered(20, 1, 2), progress(20, 2, rank=1)]
    rows += [progress(20, 2, rank=2), row(30, "end")]
    assert spent(*rows) == {"useful": 60 - 15, "stalled": 15}


def test_a_node_that_comes_for_another_has_its_place() -> None:
    """Else a run of two nodes would have paid for three all the time."""
    rows = [row(0, "begin", node="a"), row(0, "begin", node="b")]
    rows += [renumbered(0, 0, node="a"), renumbered(0, 1, node="b"), progress(0, 0)]
    rows += [progress(0, 0, rank=1), row(10, "attempt_end", attempt=0, node="a")]
    rows += [row(10, "attempt_end", attempt=0, node="b"), row(10, "begin", node="c")]
    rows += [renumbered(10, 0, node="b"), renumbered(10, 1, node="c"), progress(10, 1)]
    rows += [progress(10, 1, rank=1), row(20, "end", node="b")]
    assert spent(*rows) == {"useful": 40}


def test_a_node_that_leaves_does_not_end_the_run() -> None:
    """Its launcher's end is the end of its own history, and the others go on."""
    nodes = [[row(0, "begin", node=n), {**attempt(1, 0), "node": n,
              "ranks": [["worker", n, 1, ""]]}] for n in (0, 1)]  # fmt: skip
    nodes[1] += [row(5, "attempt_end", attempt=1, node=1), row(5, "end", node=1)]
    nodes[0] += [row(9, "attempt_end", attempt=1, node=0), row(10, "end", node=0)]
    bill = bill_of(HistoryRows(tuple(merged(nodes))))
    assert bill is not None and bill.is_over
    assert (bill.wall_ms, bill.ranks) == (10_000, 2)
    assert sum(ms for _, ms in bill.spent_ms) == 20_000


def test_a_stall_and_the_wait_for_nodes_have_their_own_kind() -> None:
    assert spent(
        row(0, "begin"), row(1, "waited", seconds=3.0), attempt(5, 1),
        row(6, "progress", rank=0, step=1), row(15, "stall", seconds=4.0), row(18, "stall_over"),
        row(20, "end"),
    ) == {"start": 2, "rendezvous": 3, "warm-up": 1, "useful": 7, "stalled": 7}  # fmt: skip


def test_the_line_says_the_largest_first() -> None:
    """Of ranks that tell no step nobody knows what was useful: they may have imported."""
    rows = [row(0, "begin"), attempt(2), row(2, "line", rank=0), row(10, "end")]
    sum_of_it = "20 % start · 10.0 s x 2 ranks = 0.0056 rank-hours"
    for more, name in (([], "running"), ([progress(2, 0)], "useful")):
        bill = bill_of(HistoryRows((*rows[:2], *more, *rows[2:])))
        assert bill is not None
        assert bill_line(bill) == f"80 % {name}, {sum_of_it}"


def test_a_run_that_never_began_has_no_bill() -> None:
    assert bill_of(HistoryRows(())) is None


KINDS_OF_ROWS = ["begin", "attempt", "progress", "line", "stall", "stall_over", "stopping", "exit",
                 "attempt_end", "waited", "sample", "held", "held_over", "allocated",
                 "code_there", "end"]  # fmt: skip
ROWS = st.lists(
    st.tuples(
        st.floats(0, 1e6), st.sampled_from(KINDS_OF_ROWS), st.integers(0, 3), st.integers(0, 50)
    ),
    max_size=40,
)
CLOCKS = st.tuples(st.floats(-1e6, 1e6), st.sampled_from([0.0, -5e5, 3.5]))


@given(st.lists(st.tuples(ROWS, CLOCKS), min_size=1, max_size=3))
def test_the_sum_is_exact_for_any_rows_of_any_nodes(nodes: list[Any]) -> None:
    """Nodes come and go, and clocks are set: no part is negative, none is missing."""
    found = []
    for node, (rows, (wall, offset)) in enumerate(nodes):
        mine = [row(0.0, "begin", node=node), row(0.0, "clock", wall=wall, offset=offset)]
        for at, kind, rank, number in rows:
            if kind == "attempt":
                ranks = [["worker", 4 * node + each, 100, ""] for each in range(rank)]
                mine.append(row(at, kind, attempt=number % 4, ranks=ranks, node=node))
            else:
                more = {"rank": 4 * node + rank, "seconds": float(number), "node": node}
                mine.append(row(at, kind, step=number, attempt=number % 4, **more))
        found.append(mine)
    bill = bill_of(HistoryRows(tuple(merged(found))))
    assert bill is not None
    assert sum(ms for _, ms in bill.spent_ms) == bill.wall_ms * bill.ranks
    assert all(ms >= 0 for _, ms in bill.spent_ms)
    assert [kind for kind, _ in bill.spent_ms] == list(KINDS)
