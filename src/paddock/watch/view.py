"""A run as people look at it: its ranks now, its curves, its attempts. Pure; from its history.

`paddock top`, `paddock web` and `paddock report` show these values and read nothing else of a run's
history.
"""

from __future__ import annotations

from paddock.core.hosts import ROLE_NOUNS
from paddock.core.value import value
from paddock.watch.bill import phases_of, read_attempts
from paddock.watch.servers import COUNTED
from paddock.watch.slow import slow_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from paddock.watch.bill import Attempt, Phase
    from paddock.watch.history import HistoryRows, Row

    Points = Sequence[tuple[float, int | None, float]]  # seconds since the run began, step, value

POINTS_MAX = 600  # of a curve: more cannot be seen
RATE_ROWS_SECONDS = 12.0  # rows so old are looked at for a rate: not every one tells a step
RATE_SECONDS = 3.0  # a rate is over so long at least: rows are only as exact as the looks at a log
FIRST_VALUES = ("loss", "auc", "accuracy", "acc")  # shown before others


@value
class RankView:
    """A rank as last seen.

    state: "running", or how it ended. is_culprit: it failed, and not because Paddock stopped it.
    step, epoch, loss, rate: of its latest line of progress; rate is steps per second where the line
    tells none. cpu: of one core; gpu: of 1, of its devices. line_at: seconds since 1970.
    """

    role: str
    rank: int
    node: str
    state: str
    is_culprit: bool = False
    step: int | None = None
    steps: int | None = None
    epoch: float | None = None
    loss: float | None = None
    rate: float | None = None
    rate_unit: str = ""
    cpu: float | None = None
    rss_bytes: int | None = None
    gpu: float | None = None
    gpu_bytes: int | None = None
    line_at: float | None = None


@value
class ServerView:
    """A parameter server as last seen. row: its latest row (docs/reference/history.md).

    rates: by the name of a counter, per second; without steps.
    """

    rank: int
    node: str
    row: Row
    rates: Mapping[str, Points]

    def rate(self, name: str) -> float | None:
        """The latest rate of a counter; None before its second row."""
        points = self.rates[name]
        return points[-1][2] if points else None


@value
class RunView:
    """All that a history tells. began, ended: seconds since 1970. phases: of each place of a
    rank (Attempt.places), in ms. notices: as notices_in.

    slow: a line about a rank that may hold the others up, "" for none.
    """

    began: float
    ended: float | None
    ranks: tuple[RankView, ...]
    attempts: tuple[Attempt, ...]
    phases: Mapping[int, Sequence[Phase]]
    curves: Mapping[str, Points]
    notices: tuple[Row, ...]
    servers: tuple[ServerView, ...] = ()
    slow: str = ""


class StepRate:
    """Steps per second over RATE_SECONDS or more, from the rows of a rank that tell its step."""

    def __init__(self) -> None:
        self._seen: list[tuple[float, int]] = []

    def add(self, at: float, step: int) -> float | None:
        """The rate with this row; None while it is not known, as after a restart."""
        if self._seen and step < self._seen[-1][1]:
            self._seen.clear()
        self._seen.append((at, step))
        while len(self._seen) > 2 and self._seen[1][0] <= at - RATE_SECONDS:
            del self._seen[0]
        seconds, done = at - self._seen[0][0], step - self._seen[0][1]
        return done / seconds if seconds > 0 and done > 0 else None


def run_view(history: HistoryRows) -> RunView | None:
    """The view of a run; None before its first row."""
    if next(history.of("begin"), None) is None:
        return None
    end = next(history.of("end"), None)
    attempts, began = read_attempts(history), float(history.rows[0]["at"])
    return RunView(
        began=began,
        ended=None if end is None else float(end["at"]),
        ranks=_ranks(history),
        attempts=tuple(attempts),
        phases=phases_of(history, attempts),
        curves=_curves(history, began),
        notices=notices_in(history),
        servers=_servers(history, began),
        slow=slow_text(history),
    )


def notices_in(history: HistoryRows) -> tuple[Row, ...]:
    """Rows of stalls, held ranks and, as "restarted", of later attempts; the latest first.

    why: of one that was restarted, the first rank that failed before, and how.
    """
    found: list[Row] = []
    attempt, why = None, ""
    for row in history.of("stall", "stall_over", "held", "held_over", "exit", "attempt"):
        if row["kind"] == "exit":
            is_bad = not (row.get("ok") or row.get("by_us"))
            noun = ROLE_NOUNS.get(row.get("role", "worker"), "process")
            why = why or is_bad * f"{noun} {row.get('rank')} {row.get('how')}"
        elif row["kind"] != "attempt":
            found.append(row)
        elif row["attempt"] != attempt:
            if attempt is not None:
                found.append({**row, "kind": "restarted", "why": why})
            attempt, why = row["attempt"], ""
    return tuple(reversed(found))


def _ranks(history: HistoryRows) -> tuple[RankView, ...]:
    """The ranks of the latest attempt of each node."""
    found: dict[tuple[str, int], dict[str, Any]] = {}
    rows: dict[tuple[str, int], dict[str, list[Row]]] = {}  # of each rank, by kind
    for row in history.of("attempt", "sample", "progress", "exit"):
        if row["kind"] != "attempt":
            kinds = rows.get((row.get("role", "worker"), row.get("rank", -1)))
            if kinds is not None:
                kinds[row["kind"]].append(row)
            continue
        node = str(row.get("node", ""))
        found = {key: fields for key, fields in found.items() if fields["node"] != node}
        for role, number, *_ in row["ranks"]:
            found[role, number] = {
                "role": role, "rank": number, "node": node, "state": "running",
            }  # fmt: skip
            rows[role, number] = {"sample": [], "progress": [], "exit": []}
    for key, now in found.items():
        for row in rows[key]["exit"]:
            now["state"] = str(row.get("how", "ended"))
            now["is_culprit"] = not (row.get("ok") or row.get("by_us"))
        if samples := rows[key]["sample"][-2:]:
            first, last = samples[0], samples[-1]
            now |= {name: last.get(name) for name in ("gpu", "gpu_bytes")}
            now["rss_bytes"] = last.get("rss")
            if last["at"] > first["at"]:
                cpu = (last["cpu"] - first["cpu"]) / (last["at"] - first["at"])
                now["cpu"] = round(max(0.0, cpu), 2)
        if told := rows[key]["progress"]:
            rates, first_at = StepRate(), len(told) - 1
            while first_at and told[first_at]["at"] > told[-1]["at"] - RATE_ROWS_SECONDS:
                first_at -= 1
            for row in told[first_at:]:
                now |= progress_of(row, rates)
            now["line_at"] = told[-1]["at"]
    return tuple(RankView(**fields) for _, fields in sorted(found.items()))


def progress_of(row: Row, rates: StepRate | None = None) -> dict[str, Any]:
    """The fields of RankView that a row of progress tells. rates: of its rank."""
    losses = (v for n, v in (row.get("values") or {}).items() if "loss" in n)
    step, rate, unit = row.get("step"), row.get("rate"), str(row.get("unit") or "")
    if rate is None and rates is not None and step is not None:
        rate, unit = rates.add(row["at"], step), "steps/s"
    return {
        "step": step, "steps": row.get("steps"), "epoch": row.get("epoch"),
        "loss": next(losses, None), "rate": rate, "rate_unit": unit,
    }  # fmt: skip


def _servers(history: HistoryRows, began: float) -> tuple[ServerView, ...]:
    """The parameter servers, by their rows of kind "ps"."""
    latest: dict[int, Row] = {}
    points: dict[int, dict[str, list[tuple[float, int | None, float]]]] = {}
    for row in history.of("ps"):
        rank = int(row["rank"])
        rates = points.setdefault(rank, {name: [] for name in COUNTED})
        before, latest[rank] = latest.get(rank), row
        if before is None or row["at"] <= before["at"]:
            continue
        for name in COUNTED:
            # A server that was started again counts from 0.
            done = row[name] - (before[name] if before[name] <= row[name] else 0)
            rate = done / (row["at"] - before["at"])
            rates[name].append((round(float(row["at"]) - began, 3), None, rate))
    return tuple(
        ServerView(rank, str(row.get("node", "")), row,
                   {name: thinned(found) for name, found in points[rank].items()})
        for rank, row in sorted(latest.items())
    )  # fmt: skip


def _curves(history: HistoryRows, began: float) -> Mapping[str, Points]:
    """The values of the first rank that tells any, and the rate of its steps."""
    points: dict[str, list[tuple[float, int | None, float]]] = {}
    rank = next((row["rank"] for row in history.of("progress") if row.get("values")), None)
    rates = StepRate()
    for row in history.of("progress"):
        if row.get("rank") != rank:
            continue
        at, step = round(float(row["at"]) - began, 3), row.get("step")
        for name, number in (row.get("values") or {}).items():
            points.setdefault(name, []).append((at, step, float(number)))
        told = progress_of(row, rates)
        if told["rate"] is not None:
            points.setdefault(told["rate_unit"] or "steps/s", []).append((at, step, told["rate"]))
    names = sorted(points, key=lambda n: (not _is_first(n), list(points).index(n)))
    return {name: thinned(points[name]) for name in names}


def _is_first(name: str) -> bool:
    return any(name == first or name.endswith(f"_{first}") for first in FIRST_VALUES)


def thinned(points: Points, most: int = POINTS_MAX) -> Points:
    """At most so many points, the first and the last among them.

    >>> [p[0] for p in thinned([(float(n), n, 0.0) for n in range(10)], 4)]
    [0.0, 3.0, 6.0, 9.0]
    """
    if len(points) <= most:
        return tuple(points)
    return tuple(points[round(n * (len(points) - 1) / (most - 1))] for n in range(most))
