"""The bill: every rank-second is in one kind, and the sum is the wall time times the ranks."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from paddock.watch.bill import KINDS, bill_line, bill_of, needed_rows
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
    return row(at, "progress", rank=0, step=step, **more)


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
    rows += [row(10, "waited", seconds=3.0), attempt(14, 1), row(14, "line", rank=0)]
    assert spent(*rows, row(20, "end")) == {
        "useful": 20 + 6, "rendezvous": 2 * 3 + 6, "restart": 2,
    }  # fmt: skip


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
    bill = bill_of(
        HistoryRows((row(0, "begin"), attempt(2), row(2, "line", rank=0), row(10, "end")))
    )
    assert bill is not None
    assert bill_line(bill) == "80 % useful, 20 % start · 10.0 s x 2 ranks = 0.0056 rank-hours"


def test_a_run_that_never_began_has_no_bill() -> None:
    assert bill_of(HistoryRows(())) is None


KINDS_OF_ROWS = ["begin", "attempt", "progress", "line", "stall", "stall_over", "stopping", "exit",
                 "attempt_end", "waited", "sample", "end"]  # fmt: skip
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
