"""Named barriers of all members, and how far each trainer has read its data. Pure; no I/O here.

A barrier that opened once may have let somebody go on: so its opening is a record (Opened),
logged before anybody hears of it. Who waits is not durable: trainers ask again after a restart.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from paddock.ps.protocol.refusals import Refusal

BARRIERS_MAX = 1000
NAME_LENGTH_MAX = 200
POSITION_BYTES_MAX = 4096
# Of each trainer. Under sync at most one is of a step not committed yet.
POSITIONS_KEPT = 4


@dataclass(frozen=True, slots=True)
class Opened:
    """Record (Op.OPEN): every member has reached the barrier for the `turn`-th time."""

    name: str
    turn: int


class Barriers:
    """Barriers by name, each used any number of times. turn: the trainer's own count, from 1.

    Asking again gives the same answer. A trainer that starts anew counts from 1 and passes the
    turns that were opened before without waiting: it catches up with the others.
    members: Chief.everyone; nothing opens while there are none.

    >>> barriers = Barriers()
    >>> barriers.reach("loaded", 1, 0, [0, 1]), barriers.reach("loaded", 1, 1, [0, 1])
    (None, Opened(name='loaded', turn=1))
    >>> barriers.apply(Opened("loaded", 1)), barriers.is_open("loaded", 1)
    ([0, 1], True)
    """

    def __init__(self) -> None:
        self._opened: dict[str, int] = {}
        self._waiting: dict[str, dict[int, int]] = {}  # trainer: turn

    def objection(self, name: str, turn: int) -> Refusal | None:
        """Why the request is wrong; None when it is not."""
        if not 0 < len(name) <= NAME_LENGTH_MAX or turn < 1:
            return Refusal(
                "usage",
                f"barrier {name[:NAME_LENGTH_MAX]!r}, turn {turn}",
                hint=f"a name of 1 to {NAME_LENGTH_MAX} characters, turns from 1",
            )
        known = self._opened.keys() | self._waiting.keys()
        if name not in known and len(known) >= BARRIERS_MAX:
            return Refusal(
                "usage",
                f"barrier {name!r}: there are {BARRIERS_MAX} names already",
                hint="use one name again and again instead of a new one each time",
            )
        return None

    def describe(self) -> dict[str, list[int]]:
        """Who waits where, by name; for people."""
        return {name: sorted(waiting) for name, waiting in sorted(self._waiting.items())}

    def is_open(self, name: str, turn: int) -> bool:
        """Whether a trainer may go on at once."""
        return turn <= self._opened.get(name, 0)

    def reach(self, name: str, turn: int, trainer: int, members: Iterable[int]) -> Opened | None:
        """A trainer waits from now on (unless it is open); the record to log if that opens it."""
        if self.is_open(name, turn):
            return None
        self._waiting.setdefault(name, {})[trainer] = turn
        return self._complete(name, members)

    def _complete(self, name: str, members: Iterable[int]) -> Opened | None:
        waiting = self._waiting.get(name, {})
        turns = [waiting.get(trainer, 0) for trainer in members]
        lowest = min(turns, default=0)
        return Opened(name, lowest) if lowest > self._opened.get(name, 0) else None

    def withdraw(self, trainer: int) -> None:
        """The trainer does not wait any more: it left, was expelled or started anew."""
        for name, waiting in list(self._waiting.items()):
            waiting.pop(trainer, None)
            if not waiting:
                del self._waiting[name]

    def recheck(self, members: Iterable[int]) -> list[Opened]:
        """After the members changed: what opens by that."""
        staying = list(members)
        found = [self._complete(name, staying) for name in sorted(self._waiting)]
        return [opened for opened in found if opened is not None]

    def apply(self, opened: Opened) -> list[int]:
        """Carry out the record; the trainers that go on, by number."""
        self._opened[opened.name] = max(opened.turn, self._opened.get(opened.name, 0))
        waiting = self._waiting.pop(opened.name, {})
        later = {t: turn for t, turn in waiting.items() if not self.is_open(opened.name, turn)}
        if later:
            self._waiting[opened.name] = later
        return sorted(waiting.keys() - later.keys())

    def to_json(self) -> dict[str, Any]:
        """The durable state: which turns have opened."""
        return dict(sorted(self._opened.items()))

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Barriers:
        """The barriers that to_json gave; nobody waits."""
        barriers = cls()
        barriers._opened = {name: int(turn) for name, turn in data.items()}
        return barriers


def position_objection(position: object) -> Refusal | None:
    """Why a data position cannot be kept; None when it can.

    >>> position_objection({"shard": 3, "offset": 4096}) is None
    True
    """
    try:
        size = len(json.dumps(position, allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        return Refusal("usage", f"a data position must be JSON: {error}")
    if size > POSITION_BYTES_MAX:
        return Refusal(
            "usage",
            f"a data position of {size} bytes, the limit is {POSITION_BYTES_MAX}",
            hint="keep shard and offset, not the data",
        )
    return None


class Positions:
    """Per trainer: where its data goes on after a step.

    Under sync a trainer says the position with the step it belongs to, before the step is
    committed. If it dies then, its next life must not skip the batch: `at` gives the position of
    the newest step that was committed.

    >>> positions = Positions()
    >>> positions.note(0, 6, {"offset": 60}); positions.note(0, 7, {"offset": 70})
    >>> positions.at(0, committed=6), positions.at(0), positions.at(1)
    ({'offset': 60}, {'offset': 70}, None)
    """

    def __init__(self) -> None:
        self._notes: dict[int, list[tuple[int, Any]]] = {}  # in the order of steps

    def note(self, trainer: int, step: int, position: Any) -> None:
        """Remember it; what was said of this step and of later ones is void (it starts anew)."""
        earlier = [note for note in self._notes.get(trainer, []) if note[0] < step]
        self._notes[trainer] = [*earlier[1 - POSITIONS_KEPT :], (step, position)]

    def at(self, trainer: int, committed: int | None = None) -> Any:
        """The trainer's position after step `committed`, or the last one said; None if none."""
        for step, position in reversed(self._notes.get(trainer, [])):
            if committed is None or step <= committed:
                return position
        return None

    def to_json(self) -> dict[str, Any]:
        """The state, JSON-ready."""
        return {str(t): [list(note) for note in n] for t, n in sorted(self._notes.items())}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Positions:
        """The positions that to_json gave."""
        positions = cls()
        positions._notes = {int(t): [(step, p) for step, p in n] for t, n in data.items()}
        return positions
