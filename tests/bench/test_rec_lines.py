"""The benchmark of `paddock rec` reads what a worker prints."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from benchmarks.ps.figure import Figure, table
from benchmarks.rec.bench import RecBench, epochs_of
from benchmarks.rec.strategies import last_area
from benchmarks.rec.training import rate_of

from paddock.rec.report import TrainingReport, format_numbers


def test_rates_and_areas_are_read_from_a_reports_own_lines() -> None:
    """A line that is worded anew would otherwise measure nothing, and say so only in an hour."""
    out, now = io.StringIO(), 0.0
    report = TrainingReport(out, 1000, lambda: now)
    for epoch in range(2):
        report.begin()
        now += 2.0 + 2.0 * epoch
        numbers = {"loss": 0.6, "auc": 0.7 + epoch / 10}
        report.end(epoch, numbers, 8000, 0, report.seconds())
    best = "the best possible auc on these examples: 0.8205"
    report.line(f"test, {format_numbers({'loss': 0.5, 'auc': 0.81})} ({best})")
    found = epochs_of(out.getvalue())
    assert [line.get("auc") for line in found] == [0.7, 0.8, 0.81]
    assert rate_of([found]) == found[1]["rate"] == 2000.0
    assert last_area([found]) == 0.81


def test_a_failed_run_gives_no_figure() -> None:
    """Rather than the rate of what was left of it."""
    assert rate_of([]) is None
    assert rate_of([[{"rate": 1.0}], []]) is None
    assert last_area([[]]) is None


@pytest.mark.parametrize(("seconds", "samples"), [(1e6, [1.0, 1.0, 1.0]), (0.0, [])])
def test_what_there_is_no_time_for_is_left_out_and_told(
    seconds: float, samples: list[float]
) -> None:
    """The whole benchmark ends when it was told to."""
    bench = RecBench(Path("src"), quick=False, idle_seconds=0.0, with_peer=False)
    bench.seconds = seconds
    figure = Figure("rate", "ex/s")
    bench.rounds(0.5, 3, [("ours", [figure], lambda: figure.add("ours", 1.0))])
    bench.close()
    assert figure.samples.get("ours", []) == samples
    assert ("left out: no time" in table([figure])) == (not samples)
