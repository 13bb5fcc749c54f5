"""The lines of a trainer that waits for others, so that a job that cannot go on is not silent.

The commonest cause is a second process with the number of the first: nobody is the trainer that is
waited for, and the trainer that was told so has ended.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

# Shorter waits are those of a batch or a checkpoint; each line comes after twice the time.
FIRST_SECONDS = 10.0


class WaitReport:
    """The lines of one wait of a trainer, on the standard error.

    now: seconds of a clock that does not go back.
    """

    def __init__(self, trainer: int, now: Callable[[], float] = time.monotonic) -> None:
        self.trainer, self.now = trainer, now
        self.since, self.due = now(), FIRST_SECONDS

    def look(self, ask_group: Callable[[], Mapping[str, Any]]) -> None:
        """Write a line where one is due. ask_group: the group, as its coordinator describes it."""
        seconds = self.now() - self.since
        if seconds < self.due:
            return
        self.due = 2 * seconds
        whom = describe_awaited(self.trainer, ask_group())
        if whom:
            text = f"trainer {self.trainer} has waited {seconds:.0f} s for {whom}"
            sys.stderr.write(f"paddock.ps: {text}\n")
            sys.stderr.flush()


def describe_awaited(trainer: int, group: Mapping[str, Any]) -> str:
    """Name the trainers that this one waits for; "" where nobody is known.

    >>> describe_awaited(0, {"expected": 3, "members": [{"trainer": 0, "step": 4}]})
    'trainers 1 and 2, which have not joined: each needs its own PADDLE_TRAINER_ID'
    >>> members = [{"trainer": 0, "step": 4}, {"trainer": 1, "step": 3}]
    >>> describe_awaited(0, {"expected": 2, "members": members, "waiting_for": [1]})
    'trainer 1, after its step 3'
    """
    steps = {one["trainer"]: one["step"] for one in group.get("members", ())}
    awaited = [number for number in group.get("waiting_for", ()) if number != trainer]
    if awaited:
        return ", ".join(f"trainer {number}, after its step {steps[number]}" for number in awaited)
    asking = group.get("asking", ())
    absent = [
        str(number)
        for number in range(group.get("expected", 0))
        if number not in steps and number not in asking and number != trainer
    ]
    if not absent:
        return ""
    if len(absent) == 1:
        who = f"trainer {absent[0]}, which has"
    else:
        who = f"trainers {', '.join(absent[:-1])} and {absent[-1]}, which have"
    return f"{who} not joined: each needs its own PADDLE_TRAINER_ID"
