"""The line below a notebook's cell: how far the ranks are whose output it does not show."""

from __future__ import annotations

import os
import sys
import time
from contextlib import suppress
from itertools import islice
from threading import Thread
from typing import TYPE_CHECKING

from paddock.local.report.text import spans

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from paddock.api.run import Run

LOOK_SECONDS = 2.0
ROWS_MAX = 2000  # of progress, that are looked at for the latest step of each rank


def is_notebook() -> bool:
    """Return True in a notebook's kernel, where a line can be replaced."""
    return "ipykernel" in sys.modules and "IPython" in sys.modules


def tell_others(run: Run) -> None:
    """Show the line while the run goes on, in a thread of its own."""
    Thread(target=_tell, args=(run,), daemon=True).start()


def _tell(run: Run) -> None:
    from IPython.display import display

    shown, handle = "", None
    while not run.is_done():
        # sleep: no event tells of a new step
        time.sleep(LOOK_SECONDS)
        if (text := others_text(_steps(run))) and text != shown:
            shown = text
            if handle is None:
                handle = display(_Line(text), display_id=True)
            else:
                handle.update(_Line(text))


class _Line(str):
    """A text that a notebook shows without quotes."""

    __slots__ = ()

    def _repr_pretty_(self, printer: Any, _is_cycle: bool) -> None:
        printer.text(str(self))


def others_text(steps: Mapping[int, int]) -> str:
    """Return the line; "" if no other rank has told a step. steps: the latest of each rank.

    >>> others_text({0: 9, 1: 8, 2: 8, 3: 5}), others_text({0: 1})
    ('ranks 1-3: steps 5-8, rank 3 is last', '')
    """
    others = {rank: step for rank, step in steps.items() if rank}
    if not others:
        return ""
    low, high = min(others.values()), max(others.values())
    who = f"rank{'s' * (len(others) > 1)} {spans(sorted(others))}"
    if low == high:
        return f"{who}: step {low}"
    last = [rank for rank, step in sorted(others.items()) if step == low]
    behind = f", rank {last[0]} is last" if len(last) == 1 else ""
    return f"{who}: steps {low}-{high}{behind}"


def _steps(run: Run) -> dict[int, int]:
    from paddock.watch.history import FILE, last_rows

    found: dict[int, int] = {}
    with suppress(Exception):  # it is for people who watch: a record may be half made
        folder = str(dict.get(run.entry.details, "directory") or "") if run.entry else ""
        for row in islice(last_rows(os.path.join(folder, FILE), ("progress",)), ROWS_MAX):
            if row.get("role", "worker") == "worker" and row.get("step") is not None:
                found.setdefault(int(row["rank"]), int(row["step"]))
    return found
