"""Named barriers of all members, and how far each trainer has read its data. Pure; no I/O here.

A barrier that opened once may have let somebody go on: so its opening is a record (Opened),
logged before anybody hears of it. Who waits is not durable: trainers ask again after a restart.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from paddock.ps.consistency.step_words import Opened, Reach
from paddock.ps.protocol.refusals import Refusal

BARRIERS_MAX = 1000
POSITION_BYTES_MAX = 4096
# Of each trainer. Under sync at most one is of a step not committed yet.
POSITIONS_KEPT = 4


class Barriers:
    """Barriers by name, each used any number of times, and who waits at one.

    The server counts the turns: a barrier opens when everyone waits at it. turn in Reach: the
    trainer's own count in this life, which tells a question that is asked again from a new one.

    A life that has done no batch yet, and that has asked for fewer turns than have opened, is
    *late*: it was started again, or came later, and the others may be past this barrier.

    >>> barriers = Barriers()
    >>> for trainer in (0, 1):
    ...     barriers.waiting[trainer] = Reach(trainer, 7, 0, "loaded", turn=1)
    >>> opened = barriers.complete((0, 1))
    >>> opened
    Opened(name='loaded', turn=1, passed=((0, 7, 1), (1, 7, 1)))
    >>> barriers.apply(opened)
    >>> barriers.has_passed(Reach(0, 7, 0, "loaded", turn=1)), barriers.waiting
    (True, {})
    """

    def __init__(self) -> None:
        # Durable: how often each has opened; what each trainer has passed last.
        self._turns: dict[str, int] = {}
        self._passed: dict[int, tuple[int, str, int]] = {}  # incarnation, name, its turn
        self.waiting: dict[int, Reach] = {}

    def is_one_too_many(self, name: str) -> bool:
        """Whether there are too many names to remember another one."""
        known = self._turns.keys() | {reach.name for reach in self.waiting.values()}
        return name not in known and len(known) >= BARRIERS_MAX

    def describe(self) -> dict[str, list[int]]:
        """Who waits where, by name; for people."""
        names = sorted({reach.name for reach in self.waiting.values()})
        return {n: sorted(t for t, r in self.waiting.items() if r.name == n) for n in names}

    def has_passed(self, reach: Reach) -> bool:
        """Whether this very question was answered: the answer was lost."""
        return self._passed.get(reach.trainer) == (reach.incarnation, reach.name, reach.turn)

    def complete(self, everyone: Iterable[int]) -> Opened | None:
        """The record to log when everyone waits at the same barrier."""
        waits = [self.waiting.get(trainer) for trainer in everyone]
        there = [reach for reach in waits if reach is not None]
        if not there or len(there) < len(waits) or len({reach.name for reach in there}) > 1:
            return None
        name = there[0].name
        passed = tuple((reach.trainer, reach.incarnation, reach.turn) for reach in there)
        return Opened(name, self._turns.get(name, 0) + 1, passed)

    def let_late_pass(self) -> list[Reach]:
        """Those that are late, and where nobody else waits: they wait no longer."""
        late = {t for t, r in self.waiting.items() if self._is_late(r)}
        met = {reach.name for trainer, reach in self.waiting.items() if trainer not in late}
        going = [t for t in sorted(late) if self.waiting[t].name not in met]
        return [self.waiting.pop(trainer) for trainer in going]

    def _is_late(self, reach: Reach) -> bool:
        return reach.is_fresh and reach.turn <= self._turns.get(reach.name, 0)

    def apply(self, opened: Opened) -> None:
        """Carry out the record; once more changes nothing."""
        self._turns[opened.name] = max(opened.turn, self._turns.get(opened.name, 0))
        for trainer, incarnation, turn in opened.passed:
            self._passed[trainer] = incarnation, opened.name, turn
            self.waiting.pop(trainer, None)

    def to_json(self) -> dict[str, Any]:
        """The durable state."""
        return {
            "turns": dict(sorted(self._turns.items())),
            "passed": {str(t): list(passed) for t, passed in sorted(self._passed.items())},
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Barriers:
        """The barriers that to_json gave; nobody waits."""
        barriers = cls()
        barriers._turns = {name: int(turn) for name, turn in data["turns"].items()}
        barriers._passed = {
            int(t): (life, n, turn) for t, (life, n, turn) in data["passed"].items()
        }
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
