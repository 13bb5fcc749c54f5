"""Which data comes next in online learning, and where it lies. Pure.

    ROOT/20191001/00/part-*  ROOT/20191001/00/DONE  ROOT/20191001/01/...

A day has splits of `interval` minutes, named HH where they are whole hours, else HHMM; so many
splits are one pass. A pass has a number over all days, which is an epoch of the training loop: so
a checkpoint, or the next incarnation, goes on at the right pass, and within it. Keys are those of
PaddleRec 2.x (start_day, end_day, split_interval, split_per_pass, checkpoint_per_pass,
data_donefile, data_sleep_second) and of 1.8.5 and 0.1 (days, train_time_interval,
checkpoint_interval).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Any

from paddock.errors import Problem, UsageError

DAY_MINUTES = 24 * 60
EPOCH = date(2000, 1, 1)  # Numbers stay below 2^24, which float32 has exactly.
DAYS_MAX = 36600
KEYS = (
    "start_day", "end_day", "days", "split_interval", "train_time_interval", "split_per_pass",
    "checkpoint_per_pass", "checkpoint_interval", "data_donefile", "data_sleep_second",
    "data_wait_second",
)  # fmt: skip
FORMS = "20191001, 20191001+10 (eleven days), {20191001..20191010}, several of them with blanks"


@dataclass(frozen=True)
class Online:
    """A schedule. days: in order. interval: minutes. done_file: "" where a directory is enough.

    >>> online = Online((date(2019, 10, 1),), interval=60, per_pass=12)
    >>> [online.name(number) for number in online.numbers]
    ['20191001/00', '20191001/12']
    >>> online.directories("data", online.numbers[1])[:2]
    ['data/20191001/12', 'data/20191001/13']
    """

    days: tuple[date, ...]
    interval: int = 60
    per_pass: int = 1
    checkpoint_every: int = 1
    done_file: str = ""
    sleep_seconds: float = 30.0
    wait_seconds_max: float = 86400.0

    @property
    def splits(self) -> int:
        """The number of splits of a day."""
        return DAY_MINUTES // self.interval

    @property
    def passes(self) -> int:
        """The number of passes of a day."""
        return -(-self.splits // self.per_pass)

    @property
    def numbers(self) -> list[int]:
        """Numbers of all passes, rising."""
        return [
            (day - EPOCH).days * self.passes + one
            for day in self.days
            for one in range(self.passes)
        ]

    def name(self, number: int) -> str:
        """The day, and the first split of the pass."""
        return self._names(number)[0]

    def directories(self, root: str, number: int) -> list[str]:
        """The directories with the data of a pass."""
        return [f"{root.rstrip('/')}/{name}" for name in self._names(number)]

    def is_last_of_day(self, number: int) -> bool:
        """True if the day ends with this pass."""
        return number % self.passes == self.passes - 1

    def is_due(self, number: int) -> bool:
        """True if a checkpoint is made behind this pass."""
        is_counted = (number % self.passes + 1) % self.checkpoint_every == 0
        return is_counted or self.is_last_of_day(number)

    def _names(self, number: int) -> list[str]:
        day = EPOCH + timedelta(number // self.passes)
        first = number % self.passes * self.per_pass
        starts = [
            one * self.interval for one in range(first, min(first + self.per_pass, self.splits))
        ]
        is_hourly = self.interval % 60 == 0
        return [
            f"{day:%Y%m%d}/{start // 60:02d}{'' if is_hourly else f'{start % 60:02d}'}"
            for start in starts
        ]


def online_of(config: Mapping[str, object], run: str = "") -> Online | None:
    """The schedule that a configuration has; None: it has none. run: the runner's name, of 1.8.5.

    >>> found = online_of({"runner.start_day": 20191001, "runner.end_day": "20191003"})
    >>> found is not None and len(found.days)
    3
    """

    said: dict[str, Any] = {}
    for space in ("train.", "runner.", f"runner.{run}."):
        for name in KEYS:
            if (value := config.get(space + name)) not in (None, ""):
                said[name] = value
    first, last, days = (said.get(name) for name in ("start_day", "end_day", "days"))
    if first is None and days is None:
        return None
    problems: list[Problem] = []
    told = str(days) if days is not None else f"{{{first}..{last if last is not None else first}}}"
    online = Online(
        _days(told, problems),
        _number(said, ("split_interval", "train_time_interval"), 60, problems),
        _number(said, ("split_per_pass",), 1, problems),
        _number(said, ("checkpoint_per_pass", "checkpoint_interval"), 1, problems),
        str(said.get("data_donefile") or ""),
        _number(said, ("data_sleep_second",), 30, problems),
        _number(said, ("data_wait_second",), 86400, problems),
    )
    if DAY_MINUTES % online.interval:
        told = "minutes that divide a day: 5, 15, 60"
        problems.append(Problem(f"split_interval is {online.interval}", told))
    if problems:
        raise UsageError.of(problems)
    return online


def _number(
    said: Mapping[str, Any], names: Sequence[str], default: int, problems: list[Problem]
) -> int:
    value = next((said[name] for name in names if name in said), None)
    text = str(default if value is None else value).strip()
    if text.isdigit() and int(text) > 0:
        return int(text)
    problems.append(Problem(f"{names[0]} is {value!r}", "a whole number, at least 1"))
    return default


def _days(text: str, problems: list[Problem]) -> tuple[date, ...]:
    """
    >>> [str(day) for day in _days("20191001+1 {20191230..20200101}", [])][1:]
    ['2019-10-02', '2019-12-30', '2019-12-31', '2020-01-01']
    """
    found: set[date] = set()
    for one in re.sub(r"\s*\.\.\s*", "..", text).replace(",", " ").split():
        match = re.fullmatch(r"\{?(\d{8})(?:\+(\d+)|\.\.(\d{8}))?\}?", one)
        try:
            if match is None:
                raise ValueError
            first = _day(match[1])
            last = _day(match[3]) if match[3] else first + timedelta(int(match[2] or 0))
            if not first <= last <= first + timedelta(DAYS_MAX) or first < EPOCH:
                raise ValueError
        except (ValueError, OverflowError):
            problems.append(Problem(f"days are {one!r}", FORMS))
            continue
        found |= {first + timedelta(count) for count in range((last - first).days + 1)}
    return tuple(sorted(found))


def _day(text: str) -> date:
    return date(int(text[:4]), int(text[4:6]), int(text[6:]))
