"""What people see of a run: whether it moves now, how fast, and which rank failed."""

from __future__ import annotations

import pytest

from paddock.watch.history import HistoryRows
from paddock.watch.stacks import Frame, RankStack, group, suspects
from paddock.watch.view import StepRate, run_view, stall_in
from web.made import BEGAN, history_rows, stall_row

STALL = stall_row(1, [0])
HELD = {"kind": "held", "at": 31.0, "rank": 1}


@pytest.mark.parametrize("after", ["stall_over", "attempt", "attempt_end", "end"])
def test_a_stall_lasts_until_ranks_move_or_a_new_attempt_starts(after: str) -> None:
    """A run that was started again is not shown as stalled."""
    assert stall_in([{"kind": "attempt"}, STALL, {"kind": "sample"}]) is STALL
    assert stall_in([STALL, {"kind": after}]) is None


def test_a_rank_that_its_user_held_is_shown_until_it_goes_on() -> None:
    """Others may go on with their steps meanwhile."""
    assert stall_in([HELD, {"kind": "sample"}, {"kind": "progress"}]) is HELD
    assert stall_in([HELD, {"kind": "held_over"}]) is None


def test_a_rate_is_not_jagged_by_the_looks_at_a_log() -> None:
    """Ten steps every 1.1 s, seen at multiples of 0.4 s: between two rows it were 8.3 or 12.5."""
    rate = StepRate()
    found = [rate.add(round(1.1 * n / 0.4) * 0.4, 10 * n) for n in range(40)]
    assert all(one == pytest.approx(10 / 1.1, rel=0.15) for one in found[4:])


def test_steps_that_begin_again_have_no_rate_with_those_before() -> None:
    """A restart goes back to its checkpoint."""
    rate = StepRate()
    assert [rate.add(0.0, 90), rate.add(10.0, 100), rate.add(40.0, 50), rate.add(50.0, 60)] == [
        None, 1.0, None, 1.0,
    ]  # fmt: skip


def test_only_a_rank_that_failed_by_itself_is_a_culprit() -> None:
    """Not one that ended well, and not one that Paddock stopped."""
    exits = [
        {"kind": "exit", "at": BEGAN + 30, "rank": 0, "how": "exited with code 0", "ok": True},
        {"kind": "exit", "at": BEGAN + 30, "rank": 1, "how": "exited with code 7", "ok": False},
        {"kind": "exit", "at": BEGAN + 30, "rank": 2, "how": "SIGTERM", "ok": False, "by_us": True},
    ]
    view = run_view(HistoryRows((*history_rows(3), *exits)))
    assert view is not None
    assert [rank.is_culprit for rank in view.ranks] == [False, True, False]


def test_a_rank_in_the_backward_pass_of_data_parallel_training_waits_for_the_others() -> None:
    """Of two ranks, the one that is elsewhere is the suspect."""
    torch = "/venv/lib/python3.11/site-packages/torch"
    waits = (
        Frame("_engine_run_backward", f"{torch}/autograd/graph.py", 1113),
        Frame("backward", f"{torch}/autograd/__init__.py", 395),
        Frame("main", "/code/train.py", 41),
    )
    groups = group(
        [RankStack(0, waits), RankStack(1, (Frame("load_batch", "/code/train.py", 15),))]
    )
    assert [one.place for one in groups] == ["backward at train.py:41", "load_batch at train.py:15"]
    assert suspects(groups) == (1,)
