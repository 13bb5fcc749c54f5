"""Named barriers of all members. Pure; no I/O here.

A barrier that opened once may have let somebody go on: so its opening is a record (BarrierOpened),
logged before anybody hears of it. Who waits is not durable: trainers ask again after a restart.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from paddock.ps.group.messages import BarrierOpened, Reach

BARRIERS_MAX = 1000


@dataclass(eq=False)
class Barriers:
    """Barriers by name, each used any number of times, and who waits at one.

    The server counts the turns: a barrier opens when everyone waits at it. turn in Reach: the
    trainer's own count in this incarnation, which tells a question that is asked again from a new
    one.

    An incarnation that has done no batch yet, and that has asked for fewer turns than have opened,
    is *late*: it was started again, or came later, and the others may be past this barrier.

    >>> barriers = Barriers()
    >>> for trainer in (0, 1):
    ...     barriers.waiting[trainer] = Reach(trainer, 7, 0, "loaded", turn=1)
    >>> opened = barriers.complete((0, 1))
    >>> opened
    BarrierOpened(name='loaded', turn=1, passed=((0, 7, 1), (1, 7, 1)))
    >>> barriers.apply(opened)
    >>> barriers.has_passed(Reach(0, 7, 0, "loaded", turn=1)), barriers.waiting
    (True, {})
    """

    # Durable: how often each has opened; what each trainer has passed last.
    _turns: dict[str, int] = field(default_factory=dict)
    # trainer -> (incarnation, name, turn)
    _passed: dict[int, tuple[int, str, int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.waiting: dict[int, Reach] = {}

    def is_one_too_many(self, name: str) -> bool:
        """True when there are too many names to remember another one."""
        known = self._turns.keys() | {reach.name for reach in self.waiting.values()}
        return name not in known and len(known) >= BARRIERS_MAX

    def describe(self) -> dict[str, list[int]]:
        """The trainers that wait at each barrier, by its name; for people."""
        names = sorted({reach.name for reach in self.waiting.values()})
        return {n: sorted(t for t, r in self.waiting.items() if r.name == n) for n in names}

    def has_passed(self, reach: Reach) -> bool:
        """True when this very question was answered: the answer was lost."""
        return self._passed.get(reach.trainer) == (reach.incarnation, reach.name, reach.turn)

    def complete(self, everyone: Iterable[int]) -> BarrierOpened | None:
        """The record to log when everyone waits at the same barrier."""
        waits = [self.waiting.get(trainer) for trainer in everyone]
        there = [reach for reach in waits if reach is not None]
        if not there or len(there) < len(waits) or len({reach.name for reach in there}) > 1:
            return None
        name = there[0].name
        passed = tuple((reach.trainer, reach.incarnation, reach.turn) for reach in there)
        # Who counts over all incarnations, those of servers before too, may be ahead of us.
        counted = [reach.turn for reach in there if reach.is_counted]
        turn = max([self._turns.get(name, 0) + 1, *counted])
        return BarrierOpened(name, turn, passed)

    def let_late_pass(self) -> list[Reach]:
        """Late trainers wait no longer at barriers where no other trainer waits."""
        late = {t for t, r in self.waiting.items() if self.is_late(r)}
        met = {reach.name for trainer, reach in self.waiting.items() if trainer not in late}
        going = [t for t in sorted(late) if self.waiting[t].name not in met]
        return [self.waiting.pop(trainer) for trainer in going]

    def is_late(self, reach: Reach) -> bool:
        """True when the others may be past this barrier."""
        return reach.is_fresh and reach.turn <= self._turns.get(reach.name, 0)

    def apply(self, opened: BarrierOpened) -> None:
        """Carry out the record; once more changes nothing."""
        self._turns[opened.name] = max(opened.turn, self._turns.get(opened.name, 0))
        for trainer, incarnation, turn in opened.passed:
            self._passed[trainer] = incarnation, opened.name, turn
            self.waiting.pop(trainer, None)
