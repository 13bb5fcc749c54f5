"""Work queue: which job is looked at next.

A key is ready at most once, however often it is added; one that is added while it is being worked
on becomes ready when that is done, so no two workers ever have the same key. First come, first
served: a key that is always busy goes to the end of the line each time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Hashable
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from random import Random

    from paddock.operator.runtime.clock import Clock

K = TypeVar("K", bound=Hashable)

BACKOFF_FIRST_SECONDS = 0.05
BACKOFF_MAX_SECONDS = 300.0


class Queue(Generic[K]):
    """Keys to work on: ``get`` one, work, say ``done``. Of one event loop."""

    def __init__(self, clock: Clock, rng: Random) -> None:
        self._clock = clock
        self._rng = rng
        self._line: asyncio.Queue[K] = asyncio.Queue()  # at most one entry a key
        self._dirty: set[K] = set()
        self._working: set[K] = set()
        self._later: dict[K, tuple[float, asyncio.TimerHandle]] = {}
        self._failures: dict[K, int] = {}

    @property
    def depth(self) -> int:
        """Keys that could be worked on at once."""
        return len(self._dirty)

    def add(self, key: K) -> None:
        """Work on it as soon as there is a worker."""
        if key in self._dirty:
            return
        self._dirty.add(key)
        if key not in self._working:
            self._line.put_nowait(key)

    def add_after(self, key: K, seconds: float) -> None:
        """Work on it that much later. The earliest of several wins; ``get`` forgets the others."""
        if seconds <= 0:
            self.add(key)
            return
        due = self._clock.monotonic() + seconds
        known = self._later.get(key)
        if known is not None:
            if known[0] <= due:
                return
            known[1].cancel()
        handle = asyncio.get_running_loop().call_later(seconds, self._due, key)
        self._later[key] = (due, handle)

    def back_off(self, key: K, *, least_seconds: float = 0.0) -> float:
        """Work on it again after a pause that doubles each time; the pause in seconds."""
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        most = min(BACKOFF_MAX_SECONDS, BACKOFF_FIRST_SECONDS * 2.0 ** min(failures, 30))
        pause = max(most * self._rng.uniform(0.8, 1.0), least_seconds)
        self.add_after(key, pause)
        return pause

    def forget(self, key: K) -> None:
        """It went well: the next ``back_off`` begins anew."""
        self._failures.pop(key, None)

    async def get(self) -> K:
        """The next key. The caller must say ``done`` with it, whatever happens."""
        key = await self._line.get()
        self._dirty.discard(key)
        self._working.add(key)
        known = self._later.pop(key, None)
        if known is not None:
            known[1].cancel()
        return key

    def done(self, key: K) -> None:
        """The work is over, well or not."""
        self._working.discard(key)
        if key in self._dirty:
            self._line.put_nowait(key)

    def clear(self) -> None:
        """Forget everything that nobody works on."""
        for _, handle in self._later.values():
            handle.cancel()
        self._later.clear()
        self._failures.clear()
        self._dirty.clear()
        while not self._line.empty():
            self._line.get_nowait()

    def _due(self, key: K) -> None:
        self._later.pop(key, None)
        self.add(key)
