"""The states a run was in, as events.jsonl of its record has them: a line each, and its end.

The launcher of a run writes two: that it runs, and how it ended. A command that asks adds the
state that it saw, perhaps after the launcher's last line.

the run was     its last state    what was seen of it        the run
                that is an end    later
--------------  ----------------  -------------------------  ----------------------------------
launched here   any               anything                   has ended: each launch has a record
submitted       any               nothing, lost, unknown     has ended
submitted       any               pending, starting, ...     goes on: put back into the queue of
                                                             Slurm, or its script started again
any             none              lost                       has ended, until it is seen again
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any

ENDS = ("succeeded", "failed", "cancelled")
GOES_ON = ("pending", "starting", "running", "stopping")
TIME_MAX = 1e11  # seconds since 1970; a time that is later is damaged
BEGINNING = b'{"at": '  # of each line; within a text, its quotes would have backslashes


def read_events(folder: str | os.PathLike[str]) -> Iterator[dict[str, Any]]:
    """The states of a record, the latest first, without what is damaged.

    A line may follow half of one, whose writer was killed or had no room.
    """
    import json

    try:
        with open(os.path.join(folder, "events.jsonl"), "rb") as file:
            lines = file.read().splitlines()
    except OSError:
        return
    for line in reversed(lines):
        try:
            row = json.loads(line[max(line.rfind(BEGINNING), 0) :])
            at, code = float(row["at"]), row.get("code")
            if abs(at) < TIME_MAX and (code is None or isinstance(code, int)):
                yield {**row, "at": at, "state": str(row["state"])}
        except (ValueError, TypeError, LookupError, AttributeError, RecursionError,
                OverflowError):  # fmt: skip
            continue


def end_of(events: Iterable[dict[str, Any]], *, is_launch: bool) -> dict[str, Any] | None:
    """The event that ended a run, by the table above; None while it goes on. events: latest first.

    >>> end_of([{"at": 6.0, "state": "running"}, {"at": 5.0, "state": "failed"}], is_launch=True)
    {'at': 5.0, 'state': 'failed'}
    """
    last, seen_at = None, 0.0
    for event in events:
        last = last or event
        if event["state"] in ENDS:
            if is_launch or event["at"] >= seen_at:
                return event
            break
        if event["state"] in GOES_ON:
            seen_at = max(seen_at, event["at"])
    return last if last is not None and last["state"] == "lost" else None
