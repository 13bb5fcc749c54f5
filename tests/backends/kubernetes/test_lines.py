"""Logs of pods as one stream: times, processes, and what a query wants of them."""

from __future__ import annotations

import pytest

from paddock.backends.kubernetes.follow import NS, is_wanted, piece_of, split_time
from paddock.backends.types import LogQuery
from paddock.kube.objects import rfc3339

LINE = b"2026-01-01T00:00:05.5Z [rank 3] loss 0.25\n"


def test_a_line_of_a_worker_is_of_its_rank_and_any_other_of_none() -> None:
    piece, rank = piece_of("a-1", LINE)
    assert (piece.label, piece.data, rank) == ("a-1 rank 3", b"loss 0.25\n", 3)
    piece, rank = piece_of("a-1", b"2026-01-01T00:00:05.5Z [server 3] serving\n")
    assert (piece.label, rank) == ("a-1 server 3", None)
    piece, rank = piece_of("a-1", b"2026-01-01T00:00:05.5Z LAUNCH INFO Pod completed\n")
    assert (piece.label, rank) == ("a-1", None)


def test_times_are_read_to_the_nanosecond() -> None:
    first, _ = split_time(b"2026-01-01T00:00:05.000000001Z x")
    second, _ = split_time(b"2026-01-01T00:00:05.000000002Z x")
    assert second - first == 1


def test_a_line_without_a_time_is_kept_whole() -> None:
    assert split_time(b"unable to retrieve container logs\n") == (
        0, b"unable to retrieve container logs\n",
    )  # fmt: skip


AT = split_time(LINE)[0] / 1e9


@pytest.mark.parametrize(
    ("query", "wanted"),
    [
        (LogQuery(), True),
        (LogQuery(ranks=(3,)), True),
        (LogQuery(ranks=(0,)), False),
        (LogQuery(since=AT + 0.1), False),
        (LogQuery(since=AT - 0.1), True),
        (LogQuery(until=AT - 0.1), False),
    ],
)
def test_a_query_takes_lines_by_rank_and_time(query: LogQuery, wanted: bool) -> None:
    assert is_wanted(*piece_of("a-1", LINE), query) is wanted


def test_the_server_is_asked_for_no_less_than_is_wanted() -> None:
    at_ns, _ = split_time(LINE)
    assert rfc3339(at_ns // NS) == "2026-01-01T00:00:05Z"
