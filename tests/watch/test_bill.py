"""The bill: every rank-second is in one kind, and the sum is the wall time times the ranks."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from paddock.watch.bill import KINDS, bill_line, bill_of
from paddock.watch.history import HistoryRows


def row(at: float, kind: str, **more: object) -> dict[str, object]:
    return {"kind": kind, "at": at, **more}


def attempt(at: float, ranks: int = 2) -> dict[str, object]:
    return row(at, "attempt", ranks=[["worker", rank, 100 + rank, ""] for rank in range(ranks)])


def spent(*rows: dict[str, object]) -> dict[str, float]:
    bill = bill_of(HistoryRows(tuple(rows)))
    assert bill is not None
    assert sum(ms for _, ms in bill.spent_ms) == bill.wall_ms * bill.ranks
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


def test_work_that_a_restart_does_again_is_lost() -> None:
    rows = [row(0, "begin"), attempt(0, 1)]
    rows += [row(at, "progress", rank=0, step=at) for at in range(1, 11)]
    rows += [row(11, "attempt_end"), attempt(13, 1), row(15, "progress", rank=0, step=7)]
    rows += [row(20, "end")]
    assert spent(*rows) == {
        "warm-up": 1 + 2, "useful": 6 + 5, "lost": 4, "restart": 2,
    }  # fmt: skip


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


ROWS = st.lists(
    st.tuples(
        st.floats(0, 1e6),
        st.sampled_from(["attempt", "progress", "line", "stall", "stall_over", "stopping",
                         "attempt_end", "waited", "sample"]),
        st.integers(0, 3),
        st.integers(0, 50),
    ),
    max_size=40,
)  # fmt: skip


@given(ROWS, st.booleans())
def test_the_sum_is_exact_for_any_rows(rows: list[tuple[float, str, int, int]], ends: bool) -> None:
    found = [row(0.0, "begin")]
    for at, kind, rank, step in sorted(rows):
        if kind == "attempt":
            found.append(attempt(at, rank))
        else:
            found.append(row(at, kind, rank=rank, step=step, seconds=float(step)))
    if ends:
        found.append(row(1e6, "end"))
    bill = bill_of(HistoryRows(tuple(found)))
    assert bill is not None
    assert sum(ms for _, ms in bill.spent_ms) == bill.wall_ms * bill.ranks
    assert all(ms >= 0 for _, ms in bill.spent_ms)
    assert [kind for kind, _ in bill.spent_ms] == list(KINDS)
