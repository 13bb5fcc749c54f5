"""The latest rows of a job's histories in words, for its status: stalls, progress, trackers."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from paddock.backends.text import age
from paddock.backends.types import JobStatus
from paddock.local.report.text import count
from paddock.watch.history import first_row, latest_rows, seen_rows
from paddock.watch.stacks import StackGroup, blame_text, groups_text, ranks_text

Row = Mapping[str, Any]
NODES_SHOWN = 2


def noted(status: JobStatus, paths: Sequence[str | os.PathLike[str]]) -> JobStatus:
    """Return the status with the news of the histories of the job's nodes."""
    hosts = [str(first_row(path).get("host", "")) if len(paths) > 1 else "" for path in paths]
    read = seen_rows if status.is_final else latest_rows
    return with_news(status, zip(hosts, map(read, paths), strict=True))


def with_news(status: JobStatus, nodes: Iterable[tuple[str, Iterable[Row]]]) -> JobStatus:
    """Return the status with the news of nodes: their names, "" for the only one, and rows."""
    stalls: list[tuple[bool, str]] = []  # first those that name ranks
    seen, is_stalled = [], False
    for host, rows in nodes:
        texts, held, is_blind = list[str](), list[int](), True
        for row in rows:
            if row["kind"] == "seen":
                seen.append((str(row.get("name")), str(row.get("text"))))
            elif row["kind"] == "held":
                held.append(row["rank"])
            elif row["kind"] == "stall":
                texts.append(stall_text(row, status.as_of))
                is_blind = is_blind and not (row.get("suspects") or row.get("differing"))
        is_stalled = is_stalled or (bool(texts) and status.state == "running")
        if held:
            verb = "is" if len(held) == 1 else "are"
            texts.append(f"{ranks_text(sorted(held))} {verb} stopped")
        if texts and status.state == "running":
            stalls.append((is_blind, f"{host}: " * bool(host) + "; ".join(texts)))
    texts = [text for _, text in sorted(stalls, key=lambda each: each[0])]
    more = len(texts) - NODES_SHOWN
    texts[NODES_SHOWN:] = [f"and {count(more, 'more node')}"] if more > 0 else []
    return replace(
        status,
        why="; ".join(texts) or status.why,
        is_stalled=is_stalled,
        profile=next((text for name, text in seen if name == "progress"), ""),
        trackers=tuple(pair for pair in dict.fromkeys(seen) if pair[0] != "progress"),
    )


def stall_text(row: Row, now: float) -> str:
    """Return a stall in words; from a minute on, in whole minutes.

    >>> stall_text({"kind": "stall", "at": 60.0, "seconds": 20.0, "suspects": [2], "groups":
    ...             [[[0, 1], "send at t.py:8"], [[2], "read at t.py:2"]]}, 205.0)
    'stalled for 2m, the others wait for rank 2: 1 x read at t.py:2 (rank 2) · 2 x send at t.py:8'
    """
    seconds = now - row["at"] + row["seconds"]
    text = f"stalled for {age(seconds // 60 * 60 or seconds)}"
    groups = [StackGroup(place, tuple(ranks)) for ranks, place in row.get("groups", ())]
    suspects, differing = row.get("suspects", ()), row.get("differing", ())
    groups.sort(key=lambda each: not {*each.ranks} & {*suspects, *differing})
    blamed = blame_text(groups, suspects, differing)
    head = ", ".join(filter(None, (text, blamed)))
    return ": ".join(filter(None, (head, groups_text(groups))))
