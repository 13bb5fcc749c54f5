"""What people see of a run: whether it moves now, how fast, and which rank failed."""

from __future__ import annotations

import pytest

from paddock.watch.history import HistoryRows
from paddock.watch.stacks import Frame, RankStack, differing, group, suspects
from paddock.watch.view import StepRate, run_view
from web.made import BEGAN, history_rows


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


def _at(function: str, *ranks: int) -> list[RankStack]:
    return [RankStack(rank, (Frame(function, "/code/train.py", 9),)) for rank in ranks]


def test_the_few_that_are_elsewhere_differ_where_no_collective_is_known() -> None:
    """A quarter at most, all others at one place; neither is called a suspect."""
    groups = group([*_at("my_exchange", 0, 1, 3), *_at("close", 2)])
    assert (suspects(groups), differing(groups)) == ((), (2,))


@pytest.mark.parametrize(
    "stacks",
    [
        [*_at("exchange", 0, 1), *_at("close", 2)],
        [*_at("exchange", 0, 1, 2, 3, 4, 5), *_at("close", 6), *_at("read", 7)],
        [*_at("exchange", 0, 1, 2), RankStack(3, wait="futex_do_wait")],
        [*_at("exchange", 0, 1, 2, 3)],
    ],
    ids=["a third", "at two places", "not known where", "none"],
)
def test_nothing_differs_where_it_is_not_clear(stacks: list[RankStack]) -> None:
    """Two halves, several places, or a rank whose stack could not be read."""
    assert differing(group(stacks)) == ()


def test_a_suspect_does_not_only_differ() -> None:
    """The others are in a collective: they wait for it."""
    torch = "/venv/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py"
    waits = (Frame("all_reduce", torch, 4), Frame("main", "/code/train.py", 88))
    groups = group([*(RankStack(rank, waits) for rank in range(3)), *_at("read", 3)])
    assert (suspects(groups), differing(groups)) == ((3,), ())


def test_a_rank_that_waits_for_its_own_processes_or_threads_is_in_no_collective() -> None:
    """The standard library has functions of the same names: a loader's worker is what hangs."""
    python = "/usr/lib/python3.11"
    torch = f"{python}/site-packages/torch"
    loads = (
        Frame("wait", f"{python}/multiprocessing/connection.py", 947),
        Frame("get", f"{python}/multiprocessing/queues.py", 113),
        Frame("__next__", f"{torch}/utils/data/dataloader.py", 725),
        Frame("main", "/code/train.py", 12),
    )
    waits = (Frame("all_reduce", f"{torch}/distributed/distributed_c10d.py", 4), *loads[3:])
    groups = group([*(RankStack(rank, waits) for rank in range(3)), RankStack(3, loads)])
    assert [one.place for one in groups] == ["all_reduce at train.py:12", "main at train.py:12"]
    assert suspects(groups) == (3,)
