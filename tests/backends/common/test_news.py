"""What statuses tell of a job that goes on: stalls of its nodes, its progress, its trackers."""

from __future__ import annotations

from typing import Any

import pytest

from paddock.backends.common.news import with_news
from paddock.backends.ssh.state import status_of
from paddock.backends.types import JobStatus
from web.made import BEGAN, stall_row

SEEN = [{"kind": "seen", "at": BEGAN, "name": name, "text": text}
        for name, text in (("W&B", "https://w/1"), ("progress", "plain"))]  # fmt: skip


def running(at: float) -> JobStatus:
    return JobStatus("running", BEGAN + at, why="2 of 3 nodes")


def test_a_stall_is_the_reason_with_its_suspect_first_and_for_how_long() -> None:
    found = with_news(running(150), [("", [stall_row(1, [0, 2]), *SEEN])])
    assert found.why == (
        "stalled for 2m, the others wait for rank 1: 1 x read <b> at data.py:12 (rank 1)"
        " · 2 x all_reduce at train.py:88"
    )
    assert (found.is_stalled, found.profile) == (True, "plain")
    assert found.trackers == (("W&B", "https://w/1"),)


def test_the_node_that_knows_the_suspect_is_named_first() -> None:
    """Of three nodes two are shown."""
    blind = {"kind": "stall", "at": BEGAN, "seconds": 8.0, "groups": [[[4, 5], "send at t.py:1"]]}
    found = with_news(running(30), [("a", [blind]), ("b", [stall_row(1, [0])]), ("c", [blind])])
    assert found.why.startswith("b: stalled for 8s, the others wait for rank 1: ")
    assert "; a: stalled for 38s: 2 x send at t.py:1 (ranks 4-5); and 1 more node" in found.why


def test_ranks_that_differ_are_named_as_that() -> None:
    row = {**stall_row(1, [0, 2, 3]), "suspects": [], "differing": [1]}
    found = with_news(running(60), [("", [row])])
    assert found.why.startswith("stalled for 38s, rank 1 differs from the others: 1 x read")


def test_a_stall_of_many_places_is_a_line_that_people_can_read() -> None:
    """Each of 1,024 ranks waits on a connection of its own."""
    groups = [[[rank], f"recv from 10.0.0.1:{rank}"] for rank in range(1024)]
    found = with_news(running(60), [("", [{**stall_row(1000, [0]), "groups": groups}])])
    assert found.why.startswith("stalled for 38s, the others wait for rank 1000: 1 x recv")
    assert found.why.endswith("(rank 14) · and 1008 other places")


def test_a_rank_that_its_user_holds_is_no_stall() -> None:
    held = [{"kind": "held", "at": BEGAN, "rank": rank} for rank in (3, 1, 2)]
    found = with_news(running(60), [("", held[:1])])
    assert (found.why, found.is_stalled) == ("rank 3 is stopped", False)
    found = with_news(running(60), [("a", held), ("b", [stall_row(1, [0]), held[0]])])
    assert found.why.startswith("b: stalled for 38s, the others wait for rank 1: ")
    assert found.why.endswith("; rank 3 is stopped; a: ranks 1-3 are stopped")


@pytest.mark.parametrize("state", ["stopping", "failed", "lost", "starting"])
def test_only_a_job_that_runs_is_stalled(state: Any) -> None:
    """The launcher was killed in the stall, or ends the job because of it."""
    found = with_news(JobStatus(state, BEGAN, why="rank 1 was lost"), [("", [stall_row(1, [0])])])
    assert (found.why, found.is_stalled) == ("rank 1 was lost", False)


@pytest.mark.parametrize(
    "news",
    [7, [7], ["x"], [{"kind": "stall", "at": 1.0}], [{"kind": "stall", "at": 1.0, "seconds": 1.0,
     "groups": [["x", 3]]}], [{"kind": "seen", "at": "now"}], {"a": 1}],
)  # fmt: skip
def test_news_of_an_untrusted_host_are_checked(news: object) -> None:
    row = {"state": "running", "now": BEGAN, "ranks": {}, "whole": {}, "news": news}
    status = status_of(["h1"], [row], BEGAN)
    assert (status.state, status.why, status.is_stalled) == ("running", "", False)


def test_a_stall_on_a_host_counts_by_our_clock() -> None:
    """Its clock is an hour ahead."""
    stall = {**stall_row(1, [0]), "at": BEGAN + 3600 - 60}
    row = {"state": "running", "now": BEGAN + 3600, "ranks": {}, "whole": {}, "news": [stall]}
    status = status_of(["h1"], [row], BEGAN)
    assert status.is_stalled and status.why.startswith("stalled for 1m, the others wait for rank 1")
