"""One open watch: what it still has to deliver, and how it ends.

Time passes only in ``tick``. A stream belongs to the loop of the task that reads it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Literal

import msgspec

from paddock.kube.client import KubeError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from kube_memory.selectors import Document
    from kube_memory.store import Entry

Item = tuple[Literal["added", "modified", "deleted", "bookmark"], bytes]

# Before its end a watch gets a bookmark (cacher.nextBookmarkTime); a short one gets none.
LAST_BOOKMARK_SECONDS = 2.0


class Stream:
    """A watch as its server sees it. namespace "": all; client: the name of who reads it."""

    def __init__(
        self,
        kind: str,
        namespace: str,
        fits: Callable[[Document], bool],
        *,
        client: str,
        opened_at: float,
        ends_at: float,
        idle_seconds: float,
    ) -> None:
        self.kind = kind
        self.namespace = namespace
        self.client = client
        self._fits = fits
        self._ends_at = ends_at
        self._bookmark_at = ends_at - LAST_BOOKMARK_SECONDS
        self._idle_seconds = idle_seconds
        self._heard_at = opened_at
        self._ready: deque[Item] = deque()
        self._late: deque[tuple[float, Item]] = deque()  # (due, item), in order of the changes
        self._ended = False
        self._is_dead = False
        self._error: KubeError | None = None
        self._wake = asyncio.Event()

    def offer(self, entry: Entry, now: float, delay: float) -> None:
        """Deliver a change if it is selected, after the delay; never before an earlier one."""
        item = self._as_seen(entry)
        if item is None or self._is_dead or self._ended:
            return
        due = max(now + delay, self._late[-1][0] if self._late else 0.0)
        if due <= now and not self._late:
            self._deliver(item, now)
        else:
            self._late.append((due, item))

    def tick(self, now: float, version: int, bookmark_seconds: float) -> None:
        """Deliver what is due, a bookmark if it is time for one, and end what has to end."""
        while self._late and self._late[0][0] <= now and not self._is_dead:
            self._deliver(self._late.popleft()[1], now)
        if self._is_dead:
            if now - self._heard_at >= self._idle_seconds:
                self.cut(KubeError(f"watch of {self.kind}: silent for {self._idle_seconds:g} s"))
        elif now >= self._ends_at:
            self.end()
        elif self._late:
            return  # A bookmark must not overtake a change.
        elif now - self._heard_at >= bookmark_seconds or now >= self._bookmark_at:
            self._deliver(("bookmark", bookmark(version)), now)
            self._bookmark_at = float("inf") if now >= self._bookmark_at else self._bookmark_at

    def die(self) -> None:
        """Deliver nothing from now on, and do not say so: a half-open connection."""
        self._is_dead = True
        self._late.clear()

    def end(self) -> None:
        """End as a server ends a watch whose time is over."""
        self._ended = True
        self._wake.set()

    def cut(self, error: KubeError) -> None:
        """End with an error, after what was delivered before."""
        self._error = error
        self.end()

    async def items(self) -> AsyncIterator[Item]:
        """What was delivered, in order. Raises KubeError when the stream is cut."""
        while True:
            while self._ready:
                yield self._ready.popleft()
            if self._error is not None:
                raise self._error
            if self._ended:
                return
            self._wake.clear()
            await self._wake.wait()

    def _deliver(self, item: Item, now: float) -> None:
        self._ready.append(item)
        self._heard_at = now
        self._wake.set()

    def _as_seen(self, entry: Entry) -> Item | None:
        """The change as this selection sees it: what no longer fits is deleted, and so on."""
        if self.namespace and entry.now.peek["metadata"].get("namespace") != self.namespace:
            return None
        fits_now = entry.kind != "deleted" and self._fits(entry.now.peek)
        fitted = entry.was is not None and self._fits(entry.was.peek)
        if fits_now:
            return ("modified" if fitted else "added"), entry.now.text
        return ("deleted", entry.now.text) if fitted else None


def bookmark(version: int) -> bytes:
    """The object of a bookmark: a version, and nothing that decoders may require."""
    return msgspec.json.encode(
        {"metadata": {"resourceVersion": str(version), "creationTimestamp": None}}
    )
