"""Which pass comes next, from the keys of all generations; and what a wrong one is told."""

from __future__ import annotations

from datetime import date
from typing import Any

import pytest

from paddock.errors import UsageError
from paddock.rec.online import Online, online_of

ONE = (date(2019, 10, 1),)
# keys -> how many passes, the first one's name, the last one's first directory
PLANS: list[tuple[dict[str, Any], int, str, str]] = [
    ({"runner.start_day": "20191001", "runner.end_day": 20191002}, 48, "20191001/00",
     "r/20191002/23"),
    ({"runner.start_day": "20191001", "runner.split_interval": 5}, 288, "20191001/0000",
     "r/20191001/2355"),
    ({"runner.start_day": "20191001", "runner.split_interval": 30, "runner.split_per_pass": 4}, 12,
     "20191001/0000", "r/20191001/2200"),
    ({"runner.train.days": "20191001+2", "runner.train.train_time_interval": 1440}, 3,
     "20191001/00", "r/20191003/00"),
    ({"train.days": "{20191231..20200101}", "runner.split_per_pass": 7}, 8, "20191231/00",
     "r/20200101/21"),
]  # fmt: skip


@pytest.mark.parametrize(("keys", "count", "first", "last"), PLANS)
def test_passes_follow_from_the_keys(
    keys: dict[str, Any], count: int, first: str, last: str
) -> None:
    """Of 2.x, of a runner of 1.8.5, and of 0.1."""
    online = online_of(keys, "train")
    assert online is not None
    assert len(online.numbers) == count
    assert online.numbers == sorted(set(online.numbers))
    assert online.name(online.numbers[0]) == first
    assert online.directories("r/", online.numbers[-1])[0] == last


def test_every_split_of_a_day_is_in_one_pass() -> None:
    """Also where they do not divide: the last pass is a short one."""
    online = Online(ONE, interval=60, per_pass=5)
    found = [place for number in online.numbers for place in online.directories("r", number)]
    assert found == [f"r/20191001/{hour:02d}" for hour in range(24)]


def test_checkpoints_are_due_by_passes_and_at_the_end_of_a_day() -> None:
    """A day's base is made whatever the number."""
    online = Online(ONE, interval=240, checkpoint_every=4)
    assert [online.is_due(number) for number in online.numbers] == [False] * 3 + [
        True,
        False,
        True,
    ]
    assert [online.is_last_of_day(number) for number in online.numbers] == [False] * 5 + [True]


def test_a_run_without_days_is_none_of_online_learning() -> None:
    """The other keys alone change nothing."""
    assert online_of({"runner.split_interval": 60}) is None


def test_all_that_is_wrong_with_the_keys_is_said_at_once() -> None:
    """Each with what it should be."""
    with pytest.raises(UsageError) as caught:
        online_of({"runner.days": "20191301 x", "runner.split_interval": 7,
                   "runner.split_per_pass": "two"})  # fmt: skip
    assert [problem.message for problem in caught.value.problems] == [
        "days are '20191301'", "days are 'x'", "split_per_pass is 'two'", "split_interval is 7",
    ]  # fmt: skip
