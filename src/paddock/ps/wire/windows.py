"""Windows: the pushes of a trainer that are applied, so that a push is idempotent. No I/O here.

A push is named by (trainer, incarnation, sequence). Sequences are counted per server from 1, with
no hole: whoever gives a number to a push resends it under that number until it is answered, and
uses the number of a *refused* push for the next one. An incarnation is one process of a
trainer, from its start to its end; a larger number is newer.

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
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

# Of one trainer to one server: pushes applied before one with a lower number was.
AHEAD_MAX = 1024


class SequenceStatus(Enum):
    """The decision on a push. FRESH: apply it. REPEAT: acknowledge it. Otherwise refuse it."""

    FRESH = "fresh"
    REPEAT = "repeat"
    STALE = "stale incarnation"
    TOO_FAR = "too far ahead"


@dataclass(slots=True)
class _Window:
    """An incarnation's applied pushes: everything up to `applied`, and some numbers after it."""

    incarnation: int = -1
    applied: int = 0
    ahead: set[int] = field(default_factory=set)


_NONE = _Window()


class Windows:
    """The windows of all trainers; part of a server's state, of its snapshots and of its log.

    Each call is whole by itself, whatever the threads. That check and note of one push see the
    same window is up to the caller: two copies of a push must not be between them at once (they
    concern one table, so its lock does it).

    >>> windows = Windows()
    >>> windows.check(0, 7, 1)
    <SequenceStatus.FRESH: 'fresh'>
    >>> windows.mark_applied(0, 7, 1), windows.check(0, 7, 1)
    (<SequenceStatus.FRESH: 'fresh'>, <SequenceStatus.REPEAT: 'repeat'>)
    >>> windows.fence(0, 8)
    True
    >>> windows.check(0, 7, 2)
    <SequenceStatus.STALE: 'stale incarnation'>
    """

    def __init__(self) -> None:
        self._windows: dict[int, _Window] = {}
        self._lock = threading.RLock()

    def check(self, trainer: int, incarnation: int, sequence: int) -> SequenceStatus:
        """The decision that this push would get. Changes nothing."""
        with self._lock:
            window = self._windows.get(trainer, _NONE)
            if incarnation < window.incarnation:
                return SequenceStatus.STALE
            if incarnation > window.incarnation:
                window = _NONE
            if sequence <= window.applied or sequence in window.ahead:
                return SequenceStatus.REPEAT
            is_near = sequence <= window.applied + AHEAD_MAX
            return SequenceStatus.FRESH if is_near else SequenceStatus.TOO_FAR

    def mark_applied(self, trainer: int, incarnation: int, sequence: int) -> SequenceStatus:
        """Remember the push as applied; what it was before. Changes something only when FRESH."""
        with self._lock:
            verdict = self.check(trainer, incarnation, sequence)
            if verdict is SequenceStatus.FRESH:
                window = self._windows.get(trainer, _NONE)
                if incarnation > window.incarnation:
                    window = self._windows[trainer] = _Window(incarnation)
                window.ahead.add(sequence)
                while window.applied + 1 in window.ahead:
                    window.applied += 1
                    window.ahead.remove(window.applied)
            return verdict

    def fence(self, trainer: int, incarnation: int) -> bool:
        """Refuse every older incarnation from now on. False when this one is itself not newer."""
        with self._lock:
            is_newer = incarnation > self._windows.get(trainer, _NONE).incarnation
            if is_newer:
                self._windows[trainer] = _Window(incarnation)
            return is_newer

    def newest(self, trainer: int, incarnation: int) -> int:
        """The highest sequence of this incarnation that was applied or skipped; 0 for none."""
        with self._lock:
            window = self._windows.get(trainer, _NONE)
            is_its = window.incarnation == incarnation
            return max(window.ahead, default=window.applied) if is_its else 0

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
