"""A token bucket: how long the next call has to wait. Pure."""

from __future__ import annotations


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
