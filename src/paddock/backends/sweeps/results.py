"""The table of a sweep: a row for each point, sorted, as text, CSV or JSON. Pure."""

from __future__ import annotations

import csv
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from paddock.backends.sweeps.machine import Sweep
from paddock.backends.text import age, clean, word_of
from paddock.command_line import nearest
from paddock.errors import UsageError
from paddock.local.report.width import fitted

if TYPE_CHECKING:
    from typing import TextIO

Row = dict[str, Any]
OWN = ("state", "seconds", "tries", "run", "why")


def rows_of(sweep: Sweep, now: float, sort: str = "") -> list[Row]:
    """The points as rows: name, values, state, seconds, tries, run, why, results.

    now: seconds since 1970. sort: a value, a result, state or time; with a dash before it the
    largest comes first. Numbers come before texts, and rows without either last.

    Raises UsageError for an unknown one.
    """
    rows = [
        {
            "name": point.name, "values": dict(point.values), "state": point.state,
            "seconds": round(max(0.0, (point.ended_at or now) - point.began_at), 1)
            if point.began_at else None,
            "tries": point.tries, "run": point.run_id, "why": point.why,
            "results": dict(point.results),
        }
        for point in sweep.points
    ]  # fmt: skip
    return sorted_rows(rows, sort) if sort else rows


def sorted_rows(rows: Sequence[Row], sort: str) -> list[Row]:
    """The rows sorted as rows_of does. Raises UsageError for an unknown column."""
    column, is_down = sort.removeprefix("-"), sort.startswith("-")
    keys, results = list(rows[0]["values"]), _results(rows)
    if column not in (known := [*keys, *results, "state", "time"]):
        raise UsageError(f"cannot sort by '{column}': no point has it", hint=nearest(column, known))
    place = "results" if column in results else "values" if column in keys else ""

    def key(row: Row) -> tuple[int, float, str]:
        own = {"state": row["state"], "time": row["seconds"]}
        found = (row[place] if place else own).get(column)
        try:
            number = float("nan" if found is None else found)
        except (TypeError, ValueError):
            return (1, 0.0, str(found))
        return (2, 0.0, "") if math.isnan(number) else (0, number, "")

    found = sorted(rows, key=key, reverse=is_down)
    return sorted(found, key=lambda row: key(row)[0])


def json_rows(rows: Sequence[Row]) -> list[Row]:
    """The rows for JSON, which has no number for nan and inf (RFC 8259): they are null."""
    return [
        {**row, "results": {
            name: value if math.isfinite(value) else None for name, value in row["results"].items()
        }}
        for row in rows
    ]  # fmt: skip


def _results(rows: Sequence[Row]) -> list[str]:
    """The names of all results, in the order in which they come up."""
    return list(dict.fromkeys(name for row in rows for name in row["results"]))


def table_lines(rows: Sequence[Row], width: int | None = None) -> list[str]:
    """The table as people read it; the reason of a state stands last.

    >>> row = {"name": "t-lr1", "values": {"lr": "1"}, "state": "succeeded", "seconds": 65.2,
    ...        "tries": 1, "run": "t-lr1-3f2a", "why": "", "results": {"loss": 0.25}}
    >>> print(*table_lines([row]), sep="\\n")
    lr  state      time  loss  run
    1   succeeded  1m5s  0.25  t-lr1-3f2a
    """
    results, keys = _results(rows), list(rows[0]["values"])
    is_tried = any(row["tries"] > 1 for row in rows)
    head = [*keys, "state", "time", *(["tries"] if is_tried else []), *results, "run"]
    lines = [head]
    for row in rows:
        seconds = row["seconds"]
        spent = "-" if seconds is None else age(seconds) if seconds >= 10 else f"{seconds:.1f}s"
        found = row["results"]
        lines.append([
            *row["values"].values(), word_of(row["state"]), spent,
            *([str(row["tries"])] if is_tried else []),
            *(f"{found[name]:.6g}" if name in found else "-" for name in results),
            (row["run"] or "-") + (f"  {row['why']}" if row["why"] else ""),
        ])  # fmt: skip
    return fitted([[clean(cell) for cell in line] for line in lines], width)


def write_csv(rows: Sequence[Row], file: TextIO) -> None:
    """Write the table as CSV (RFC 4180): name, the values, the results, then state, seconds, tries,
    run and why. A value named as a column of ours has "sweep." before it.
    """
    keys, results = list(rows[0]["values"]), _results(rows)
    writer = csv.writer(file)
    shown = [f"sweep.{key}" if key in ("name", *OWN, *results) else key for key in keys]
    writer.writerow(["name", *shown, *results, *OWN])
    for row in rows:
        found = [row["results"].get(name, "") for name in results]
        own = ["" if row[name] is None else row[name] for name in OWN]
        writer.writerow([row["name"], *row["values"].values(), *found, *own])
