"""What stands between the operator and the API server: the fence, rate and limits, measuring.

Its one rule: no write leaves without the fence being asked right before it is sent.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from typing import TYPE_CHECKING, TypeVar

from paddock.errors import PaddockError
from paddock.kube.client import KubeError
from paddock.operator.runtime.clock import TimeLimit

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping

    from paddock.kube.client import (
        Change,
        KubeClient,
        Manifest,
        Page,
        PatchKind,
        Query,
        Resource,
        Warn,
    )
    from paddock.operator.runtime.clock import Clock
    from paddock.operator.runtime.metrics import Metrics

T = TypeVar("T")
U = TypeVar("U")

IN_FLIGHT_MAX = 64
CALL_SECONDS_MAX = 30.0
LIST_SECONDS_MAX = 120.0
TRIES_MAX = 4
WAIT_SECONDS_MAX = 10.0


class FencedError(PaddockError):
    """This operator is not, or no longer, the one that may write."""


class Fence:
    """Until when this process may write, in monotonic seconds. Open when there is no election."""

    def __init__(self, clock: Clock, *, until: float = math.inf) -> None:
        self._clock = clock
        self.until = until

    @property
    def is_open(self) -> bool:
        """Whether a write may be sent now."""
        return self._clock.monotonic() < self.until

    def check(self) -> None:
        """Raises FencedError unless a write may be sent now."""
        if not self.is_open:
            raise FencedError("this operator does not hold the lease: nothing is written")


class TokenBucket:
    """At most burst calls at once, and rate a second for long.

    Who has to wait is put in line: the bucket owes it a token from then on.

    >>> bucket = TokenBucket(rate=2.0, burst=1)
    >>> bucket.take(10.0), bucket.take(10.0), bucket.take(10.0), bucket.take(12.0)
    (0.0, 0.5, 1.0, 0.0)
    """

    def __init__(self, rate: float, burst: int) -> None:
        assert rate > 0 and burst >= 1
        self._rate = rate
        self._burst = burst
        self._tokens = float(burst)
        self._at: float | None = None

    def take(self, now: float) -> float:
        """Take one token; seconds until it is there. now: of a clock that only goes forward."""
        if self._at is not None:
            gained = max(now - self._at, 0.0) * self._rate
            self._tokens = min(self._tokens + gained, float(self._burst))
        self._at = now
        self._tokens -= 1.0
        return -self._tokens / self._rate if self._tokens < 0 else 0.0


class GuardedClient:
    """A KubeClient that is measured and limited, and whose writes the fence may stop.

    Raises what a KubeClient raises, and FencedError. A call that takes longer than it may is a
    KubeError without an answer. A 429 or 503 that says how long to wait is waited for and asked
    again, TRIES_MAX times in all, keeping its place among those in flight: others wait as well.

    All waiting (rate, places in flight) is done here, before the fence is asked; the client below
    makes no call wait.
    """

    def __init__(
        self,
        client: KubeClient,
        *,
        clock: Clock,
        metrics: Metrics,
        fence: Fence | None,
        rate: TokenBucket | None,
        tries_max: int = TRIES_MAX,
    ) -> None:
        self._client = client
        self._clock = clock
        self._metrics = metrics
        self._fence = fence
        self._rate = rate
        self._tries_max = tries_max
        self._in_flight = asyncio.Semaphore(IN_FLIGHT_MAX)

    async def get(self, resource: Resource[T], namespace: str, name: str) -> T:
        """One object. Raises KubeError 404 when it is not there."""
        return await self._read(
            "get", resource, lambda: self._client.get(resource, namespace, name), CALL_SECONDS_MAX
        )

    async def page(
        self, resource: Resource[T], query: Query, *, resource_version: str = "", rest: str = ""
    ) -> Page[T]:
        """A page of a list."""
        return await self._read(
            "list",
            resource,
            lambda: self._client.page(
                resource, query, resource_version=resource_version, rest=rest
            ),
            LIST_SECONDS_MAX,
        )

    async def watch(
        self, resource: Resource[T], query: Query, *, resource_version: str, timeout_seconds: float
    ) -> AsyncGenerator[Change[T], None]:
        """Changes after that version."""
        code = "200"
        watched = self._client.watch(
            resource, query, resource_version=resource_version, timeout_seconds=timeout_seconds
        )
        try:
            async with contextlib.aclosing(watched) as stream:
                async for change in stream:
                    yield change
        except KubeError as error:
            code = str(error.status)
            raise
        finally:
            self._metrics.requests.add("watch", resource.plural, code)

    async def create(
        self, resource: Resource[T], namespace: str, manifest: Manifest, *,
        dry_run: bool = False, warn: Warn | None = None,
    ) -> T:  # fmt: skip
        """Create; the object as stored."""
        return await self._write(
            "create",
            resource,
            lambda: self._client.create(resource, namespace, manifest, dry_run=dry_run, warn=warn),
        )

    async def patch(
        self,
        resource: Resource[T],
        namespace: str,
        name: str,
        change: Mapping[str, object] | list[object],
        *,
        kind: PatchKind = "merge",
        subresource: str = "",
    ) -> T:
        """Change part of an object."""
        return await self._write(
            "patch",
            resource,
            lambda: self._client.patch(
                resource, namespace, name, change, kind=kind, subresource=subresource
            ),
            subresource,
        )

    async def delete(
        self,
        resource: Resource[T],
        namespace: str,
        name: str,
        *,
        uid: str = "",
        grace_seconds: int | None = None,
    ) -> None:
        """Delete in the background; with uid, only that very object (409 otherwise)."""
        await self._write(
            "delete",
            resource,
            lambda: self._client.delete(
                resource, namespace, name, uid=uid, grace_seconds=grace_seconds
            ),
        )

    async def close(self) -> None:
        """Give back connections."""
        await self._client.close()

    async def _wait_for_rate(self) -> None:
        if self._rate is not None:
            await self._clock.sleep(self._rate.take(self._clock.monotonic()))

    async def _read(
        self, verb: str, resource: Resource[T], ask: Callable[[], Awaitable[U]], limit: float
    ) -> U:
        async with self._in_flight:
            await self._wait_for_rate()
            return await self._timed(verb, resource.plural, ask, limit)

    async def _write(
        self,
        verb: str,
        resource: Resource[T],
        ask: Callable[[], Awaitable[U]],
        subresource: str = "",
    ) -> U:
        target = f"{resource.plural}/{subresource}" if subresource else resource.plural
        async with self._in_flight:
            tries = 0
            while True:
                await self._wait_for_rate()
                if self._fence is not None:
                    self._fence.check()
                try:
                    return await self._timed(verb, target, ask, CALL_SECONDS_MAX)
                except KubeError as error:
                    tries += 1
                    is_asked = error.status in (429, 503) and error.retry_after > 0
                    if not is_asked or tries >= self._tries_max:
                        raise
                    await self._clock.sleep(min(error.retry_after, WAIT_SECONDS_MAX))

    async def _timed(
        self, verb: str, target: str, ask: Callable[[], Awaitable[U]], limit: float
    ) -> U:
        began = self._clock.monotonic()
        code = "200"
        try:
            async with TimeLimit(limit):
                return await ask()
        except KubeError as error:
            code = str(error.status)
            raise
        except asyncio.TimeoutError as error:
            code = "0"
            raise KubeError(
                f"{verb} {target}: no answer from the API server for {limit:g} s"
            ) from error
        finally:
            seconds = self._clock.monotonic() - began
            self._metrics.requests.add(verb, target, code)
            self._metrics.request_seconds.observe(seconds, verb, target)
