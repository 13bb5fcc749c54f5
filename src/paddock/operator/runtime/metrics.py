"""Counters, gauges and histograms, and the text that Prometheus reads. One loop's, no locks.

Source: https://prometheus.io/docs/instrumenting/exposition_formats/ (text format 0.0.4).
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from paddock.watch.metrics import series_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

Labels = tuple[str, ...]
SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
SERIES_MAX = 2000  # of one metric: a label that grows without end must not eat the memory


@dataclass
class Counter:
    """Counts up. labels: the names; their values are given with each count."""

    name: str
    text: str
    labels: Labels = ()
    kind = "counter"

    def __post_init__(self) -> None:
        self._counts: dict[Labels, float] = {} if self.labels else {(): 0.0}

    def add(self, *values: str) -> None:
        """Count one."""
        if values in self._counts or len(self._counts) < SERIES_MAX:
            self._counts[values] = self._counts.get(values, 0.0) + 1.0

    def lines(self) -> Iterator[str]:
        for values, count in sorted(self._counts.items()):
            yield _line(self.name, self.labels, values, count)


@dataclass
class Gauge:
    """Is asked when it is read. ask: label values -> value."""

    name: str
    text: str
    ask: Callable[[], Mapping[Labels, float]]
    labels: Labels = ()
    kind = "gauge"

    def lines(self) -> Iterator[str]:
        for values, value in sorted(self.ask().items()):
            yield _line(self.name, self.labels, values, value)


@dataclass
class Histogram:
    """How long things took, in seconds."""

    name: str
    text: str
    labels: Labels = ()
    _counts: dict[Labels, list[int]] = field(default_factory=dict)
    _sums: dict[Labels, float] = field(default_factory=dict)
    kind = "histogram"

    def observe(self, seconds: float, *values: str) -> None:
        """Add a duration."""
        counts = self._counts.get(values)
        if counts is None:
            if len(self._counts) >= SERIES_MAX:
                return
            counts = self._counts[values] = [0] * (len(SECONDS) + 1)
            self._sums[values] = 0.0
        counts[bisect_left(SECONDS, seconds)] += 1
        self._sums[values] += seconds

    def lines(self) -> Iterator[str]:
        for values, counts in sorted(self._counts.items()):
            total = 0
            for limit, count in zip((*SECONDS, "+Inf"), counts, strict=True):
                total += count
                labels, given = (*self.labels, "le"), (*values, str(limit))
                yield _line(f"{self.name}_bucket", labels, given, total)
            yield _line(f"{self.name}_sum", self.labels, values, self._sums[values])
            yield _line(f"{self.name}_count", self.labels, values, total)


class Metrics:
    """Every metric of the operator, by what it measures."""

    def __init__(self) -> None:
        request = ("verb", "resource")
        self.restarts = Counter(
            "paddock_job_restarts_total", "Attempts of jobs after the first one.", ("cause",)
        )
        self.reconcile_seconds = Histogram(
            "paddock_reconcile_seconds", "One look at a job with all its writes."
        )
        self.reconcile_errors = Counter(
            "paddock_reconcile_errors_total", "Looks at a job that failed.", ("kind",)
        )
        self.request_seconds = Histogram(
            "paddock_api_request_seconds",
            "Calls of the API server; watches are not timed.",
            request,
        )
        self.requests = Counter(
            "paddock_api_requests_total",
            "Calls of the API server; code 0: no answer.",
            (*request, "code"),
        )
        self.watch_restarts = Counter(
            "paddock_watch_restarts_total", "Watches that ended in an error.", ("resource",)
        )
        self.events_dropped = Counter(
            "paddock_events_dropped_total", "Events that were not written.", ("why",)
        )
        # In the order of /metrics: as they stand above, the gauges after them.
        self._all: list[Counter | Gauge | Histogram] = [*vars(self).values()]

    def gauge(
        self, name: str, text: str, ask: Callable[[], Mapping[Labels, float]], labels: Labels = ()
    ) -> None:
        """Show one more; it is asked at each scrape."""
        self._all.append(Gauge(name, text, ask, labels))

    def text(self) -> str:
        lines: list[str] = []
        for metric in self._all:
            lines.append(f"# HELP {metric.name} {metric.text}")
            lines.append(f"# TYPE {metric.name} {metric.kind}")
            lines.extend(metric.lines())
        return "\n".join(lines) + "\n"


def _line(name: str, labels: Labels, values: Labels, value: float) -> str:
    return series_line(name, dict(zip(labels, values, strict=True)), value)
