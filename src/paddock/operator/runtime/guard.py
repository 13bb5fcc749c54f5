"""Middleware between the operator and the API server: fence, rate, limits, retry, metrics.

Its one rule: no write leaves without the fence being asked right before it is sent.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Any

from paddock.errors import PaddockError
from paddock.kube.client import KubeClient, KubeError
from paddock.operator.runtime.clock import TimeLimit

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from paddock.kube.client import Call, Change
    from paddock.operator.runtime.clock import Clock
    from paddock.operator.runtime.metrics import Metrics

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
        """True while a write may be sent."""
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


@dataclass(eq=False)
class GuardedClient(KubeClient):
    """A KubeClient of middleware: it measures and limits calls, and the fence may stop writes.

    Raises what a KubeClient raises, and FencedError. A call that takes longer than it may is a
    KubeError without an answer. A 429 or 503 that says how long to wait is waited for and asked
    again, TRIES_MAX times in all, keeping its place among those in flight: others wait as well.

    All waiting (rate, places in flight) is done here, before the fence is asked; the client below
    makes no call wait.
    """

    client: KubeClient
    _: KW_ONLY
    clock: Clock
    metrics: Metrics
    fence: Fence | None
    rate: TokenBucket | None
    tries_max: int = TRIES_MAX

    def __post_init__(self) -> None:
        self._in_flight = asyncio.Semaphore(IN_FLIGHT_MAX)

    async def request(self, call: Call) -> Any:
        async with self._in_flight:
            tries = 0
            while True:
                if self.rate is not None:
                    await self.clock.sleep(self.rate.take(self.clock.monotonic()))
                if call.is_write and self.fence is not None:
                    self.fence.check()
                try:
                    return await self._timed(call)
                except KubeError as error:
                    tries += 1
                    may_pass = error.status in (429, 503) and error.retry_after > 0
                    if not call.is_write or not may_pass or tries >= self.tries_max:
                        raise
                    await self.clock.sleep(min(error.retry_after, WAIT_SECONDS_MAX))

    async def stream(self, call: Call) -> AsyncGenerator[Change[Any], None]:
        """The changes of the client below; counted, and neither limited nor timed."""
        code = "200"
        try:
            async with contextlib.aclosing(self.client.stream(call)) as stream:
                async for change in stream:
                    yield change
        except KubeError as error:
            code = str(error.status)
            raise
        finally:
            self.metrics.requests.add(call.verb, call.target, code)

    async def close(self) -> None:
        await self.client.close()

    async def _timed(self, call: Call) -> Any:
        limit = LIST_SECONDS_MAX if call.verb == "list" else CALL_SECONDS_MAX
        began = self.clock.monotonic()
        code = "200"
        try:
            async with TimeLimit(limit):
                return await self.client.request(call)
        except KubeError as error:
            code = str(error.status)
            raise
        except asyncio.TimeoutError as error:
            code = "0"
            raise KubeError(
                f"{call.verb} {call.target}: no answer from the API server for {limit:g} s"
            ) from error
        finally:
            seconds = self.clock.monotonic() - began
            self.metrics.requests.add(call.verb, call.target, code)
            self.metrics.request_seconds.observe(seconds, call.verb, call.target)
