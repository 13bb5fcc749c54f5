"""Which pushes of which trainer have been applied, so that a repeat changes nothing. No I/O here.

A push is named by (trainer, incarnation, sequence). Sequences are counted per server from 1, with
no hole: whoever gives a number to a push resends it under that number until it is answered, and
uses the number of a *refused* push for the next one. An incarnation is one life of a trainer's
process; a larger one is newer.

    incarnation     sequence                        check      note
    -------------   -----------------------------   --------   --------------------------
    newer           as below, from an empty window  (below)    the older one is fenced
    the known one   applied before                  REPEAT     nothing
    the known one   up to AHEAD_MAX after applied   FRESH      remembered
    the known one   further                         TOO_FAR    nothing
    older           any                             STALE      nothing
"""

from __future__ import annotations

import threading
from enum import Enum
from typing import Any

from paddock.errors import PaddockError

# Of one trainer to one server: pushes applied before one with a lower number was.
AHEAD_MAX = 1024


class Verdict(Enum):
    """What to do with a push. FRESH: apply it. REPEAT: acknowledge it. Otherwise refuse it."""

    FRESH = "fresh"
    REPEAT = "repeat"
    STALE = "stale incarnation"
    TOO_FAR = "too far ahead"


class _Window:
    """One incarnation: everything up to `applied`, and some numbers after it."""

    __slots__ = ("ahead", "applied", "incarnation")

    def __init__(self, incarnation: int, applied: int = 0, ahead: set[int] | None = None) -> None:
        self.incarnation = incarnation
        self.applied = applied
        self.ahead = ahead or set()

    def judge(self, sequence: int) -> Verdict:
        if sequence <= self.applied or sequence in self.ahead:
            return Verdict.REPEAT
        return Verdict.FRESH if sequence <= self.applied + AHEAD_MAX else Verdict.TOO_FAR

    def note(self, sequence: int) -> None:
        if sequence != self.applied + 1:
            self.ahead.add(sequence)
            return
        self.applied = sequence
        while self.applied + 1 in self.ahead:
            self.applied += 1
            self.ahead.remove(self.applied)


class Windows:
    """The windows of all trainers; part of a server's state, of its snapshots and of its log.

    Each call is whole by itself, whatever the threads. That check and note of one push see the
    same window is up to the caller: two copies of a push must not be between them at once (they
    concern one table, so its lock does it).

    >>> windows = Windows()
    >>> windows.check(0, 7, 1)
    <Verdict.FRESH: 'fresh'>
    >>> windows.note(0, 7, 1), windows.check(0, 7, 1)
    (<Verdict.FRESH: 'fresh'>, <Verdict.REPEAT: 'repeat'>)
    >>> windows.fence(0, 8)
    True
    >>> windows.check(0, 7, 2)
    <Verdict.STALE: 'stale incarnation'>
    """

    def __init__(self) -> None:
        self._windows: dict[int, _Window] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._windows)

    def check(self, trainer: int, incarnation: int, sequence: int) -> Verdict:
        """What the push would be. Changes nothing.

        Raises:
            PaddockError: the sequence is below 1.
        """
        with self._lock:
            window = self._windows.get(trainer)
            if window is not None and incarnation == window.incarnation and sequence >= 1:
                return window.judge(sequence)
            if sequence < 1:
                raise PaddockError(
                    f"trainer {trainer}: a push with sequence {sequence} has no identity",
                    hint="sequences are counted per server from 1",
                )
            if window is not None and incarnation < window.incarnation:
                return Verdict.STALE
            return Verdict.FRESH if sequence <= AHEAD_MAX else Verdict.TOO_FAR

    def note(self, trainer: int, incarnation: int, sequence: int) -> Verdict:
        """Remember the push as applied; what it was before. Changes something only when FRESH."""
        with self._lock:
            window = self._windows.get(trainer)
            if window is not None and incarnation < window.incarnation:
                return Verdict.STALE
            known = window is not None and incarnation == window.incarnation
            target = window if window is not None and known else _Window(incarnation)
            verdict = target.judge(sequence)
            if verdict is Verdict.FRESH:
                target.note(sequence)
                self._windows[trainer] = target
            return verdict

    def fence(self, trainer: int, incarnation: int) -> bool:
        """Refuse every older incarnation from now on. False when this one is itself not newer."""
        with self._lock:
            window = self._windows.get(trainer)
            if window is not None and window.incarnation >= incarnation:
                return False
            self._windows[trainer] = _Window(incarnation)
            return True

    def incarnation_of(self, trainer: int) -> int | None:
        """The newest incarnation known; None for a trainer never seen."""
        window = self._windows.get(trainer)
        return None if window is None else window.incarnation

    def applied(self, trainer: int) -> int:
        """The sequence up to which all pushes of the newest incarnation are applied; 0 for none."""
        window = self._windows.get(trainer)
        return 0 if window is None else window.applied

    def newest(self, trainer: int, incarnation: int) -> int:
        """The highest sequence of this life that was applied or skipped; 0 for none."""
        with self._lock:
            window = self._windows.get(trainer)
            if window is None or window.incarnation != incarnation:
                return 0
            return max(window.ahead, default=window.applied)

    def to_json(self) -> dict[str, Any]:
        """JSON-ready; equal states give equal data."""
        with self._lock:
            return {
                str(trainer): [window.incarnation, window.applied, sorted(window.ahead)]
                for trainer, window in sorted(self._windows.items())
            }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Windows:
        """The windows that to_json gave."""
        windows = cls()
        for trainer, (incarnation, applied, ahead) in data.items():
            windows._windows[int(trainer)] = _Window(incarnation, applied, set(ahead))
        return windows
