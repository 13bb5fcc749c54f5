"""The table of a sweep, and which ends of its runs count as lost."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from typing import Any

import pytest

from paddock.backends.sweeps.machine import Sweep, SweepPoint, with_loss
from paddock.backends.sweeps.results import json_rows, rows_of, table_lines, write_csv
from paddock.backends.types import Culprit, JobStatus, NodeStatus, RankStatus
from paddock.errors import UsageError

POINTS = (
    SweepPoint("a", {"lr": "0.1", "loss": "x"}, "succeeded", "a-1", 1, 0, 5.0, 8.0,
               results={"loss": 2.0}),
    SweepPoint("b", {"lr": "0.02", "loss": "y"}, "failed", "b-1", 2, 0, 5.0, 65.0, "code 3"),
    SweepPoint("c", {"lr": "1e-3", "loss": "z"}, results={"loss": float("nan")}),
    SweepPoint("d", {"lr": "7", "loss": "z"}, "running", "d-1", 1, 0, 60.0, results={"loss": 1.0}),
)  # fmt: skip
SWEEP = Sweep(POINTS, 2)
RANK = RankStatus("worker", 0, "failed", 137)
LOST = NodeStatus("h2", "lost")


@pytest.mark.parametrize(
    ("sort", "names"),
    [("lr", "cbad"), ("-lr", "dabc"), ("loss", "dabc"), ("-loss", "adbc"), ("state", "bdac"),
     ("-state", "cadb"), ("time", "adbc"), ("", "abcd")],
)  # fmt: skip
def test_rows_are_sorted_by_numbers(sort: str, names: str) -> None:
    """Numbers as numbers, whatever their spelling; without one, and nan, last in both orders."""
    assert [row["name"] for row in rows_of(SWEEP, 70.0, sort)] == list(names)


def test_an_unknown_column_names_the_nearest() -> None:
    """Exit code 2."""
    with pytest.raises(UsageError, match="cannot sort by 'los'") as caught:
        rows_of(SWEEP, 70.0, "los")
    assert "loss" in caught.value.hint


def test_the_table_shows_retries_and_reasons() -> None:
    """Where a point was tried again there is a column, and the reason stands last."""
    lines = table_lines(rows_of(SWEEP, 70.0))
    assert lines == [
        "lr    loss  state      time  tries  loss  run",
        "0.1   x     succeeded  3.0s  1      2     a-1",
        "0.02  y     failed     1m    2      -     b-1  code 3",
        "1e-3  z     waiting    -     0      nan   -",
        "7     z     running    10s   1      1     d-1",
    ]


def test_json_has_null_for_nan() -> None:
    """RFC 8259 has no other word for it, and jq refuses NaN."""
    rows = json_rows(rows_of(SWEEP, 70.0))
    assert json.loads(json.dumps(rows, allow_nan=False))[2]["results"] == {"loss": None}
    assert rows[0]["results"] == {"loss": 2.0}


def test_csv_names_each_column_once() -> None:
    """A value that is called as a result is told apart."""
    file = io.StringIO()
    write_csv(rows_of(SWEEP, 70.0), file)
    head, first, *_ = file.getvalue().splitlines()
    assert head == "name,lr,sweep.loss,loss,state,seconds,tries,run,why"
    assert first == "a,0.1,x,2.0,succeeded,3.0,1,a-1,"


@pytest.mark.parametrize(
    ("status", "backend", "state"),
    [
        ({"nodes": (NodeStatus("h1", "failed", (RANK,)), LOST), "code": 137}, "ssh", "failed"),
        ({"nodes": (NodeStatus("h1", "cancelled"), LOST), "code": 1}, "ssh", "lost"),
        ({"nodes": (LOST,), "code": 1}, "kubernetes", "failed"),
        ({"culprit": Culprit("node", -1, "h2", 125, "node-lost")}, "kubernetes", "lost"),
        ({"culprit": Culprit("worker", 1, "h2", 1), "nodes": (LOST,)}, "ssh", "failed"),
        ({"culprit": Culprit("worker", 1, "h2", 137, "oom"), "code": 137}, "local", "failed"),
        ({"code": 137}, "local", "lost"),
        ({"code": 137, "nodes": (NodeStatus("h1", "failed", (RANK,)),)}, "local", "failed"),
        ({"code": 124}, "local", "failed"),
        ({"why": "a node was lost"}, "slurm", "lost"),
        ({"why": "the time limit is reached"}, "slurm", "failed"),
        ({"state": "succeeded", "nodes": (LOST,)}, "ssh", "succeeded"),
    ],
)
def test_lost_is_told_from_failed(status: dict[str, Any], backend: str, state: str) -> None:
    """A rank that failed is never lost: retries of the same program would fail again."""
    assert with_loss(replace(JobStatus("failed", 1.0), **status), backend).state == state
