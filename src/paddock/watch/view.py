"""A run as people look at it: its ranks now, its curves, its attempts. Pure; from its history.

`paddock top`, `paddock web` and `paddock report` show these values and read nothing else of a run's
history.
"""

from __future__ import annotations

from paddock.core.value import value
from paddock.watch.servers import COUNTED
from paddock.watch.slow import slow_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from paddock.watch.history import HistoryRows, Row

POINTS_MAX = 600  # of a curve: more cannot be seen
FIRST_VALUES = ("loss", "auc", "accuracy", "acc")  # shown before others


@value
class RankView:
    """A rank as last seen.

    state: "running", or how it ended. step, epoch, loss, rate: of its latest line of progress; rate
    is steps per second where the line tells none. cpu: of one core;
    gpu: of 1, of its devices. line_at: seconds since 1970.
    """

    role: str
    rank: int
    node: str
    pid: int
    state: str
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

    rates: by the name of a counter, points (seconds since the run began, None, count per second).
    """

    rank: int
    node: str
    row: Row
    rates: Mapping[str, tuple[tuple[float, int | None, float], ...]]

    def rate(self, name: str) -> float | None:
        """The latest rate of a counter; None before its second row."""
        points = self.rates[name]
        return points[-1][2] if points else None


@value
class Curve:
    """A named value over time. points: (seconds since the run began, step or None, value)."""

    name: str
    rank: int
    points: tuple[tuple[float, int | None, float], ...]


@value
class AttemptView:
    """An attempt. began, ended: seconds since 1970; ended is None while it runs."""

    number: int
    began: float
    ended: float | None
    ranks: int
    first_step_at: float | None
    stalls: tuple[tuple[float, float | None], ...] = ()


@value
class RunView:
    """All that a history tells. notices: rows of stalls and held ranks, the latest first.

    slow: a line about a rank that may hold the others up, "" for none.
    seen: the kinds of progress lines, as "progress", and the pages of trackers: names and texts.
    """

    began: float
    ended: float | None
    profile: str
    ranks: tuple[RankView, ...]
    attempts: tuple[AttemptView, ...]
    curves: tuple[Curve, ...]
    notices: tuple[Row, ...]
    servers: tuple[ServerView, ...] = ()
    slow: str = ""
    seen: tuple[tuple[str, str], ...] = ()


def run_view(history: HistoryRows) -> RunView | None:
    """The view of a run; None before its first row."""
    begin = next(history.of("begin"), None)
    if begin is None:
        return None
    end = next(history.of("end"), None)
    profile = next((str(row["profile"]) for row in history.of("progress")), "")
    return RunView(
        began=float(begin["at"]),
        ended=None if end is None else float(end["at"]),
        profile=profile,
        ranks=_ranks(history),
        attempts=_attempts(history),
        curves=_curves(history, float(begin["at"])),
        notices=tuple(reversed(tuple(history.of("stall", "stall_over", "held")))),
        servers=_servers(history, float(begin["at"])),
        slow=slow_text(history),
        seen=seen_in(history),
    )


def seen_in(history: HistoryRows) -> tuple[tuple[str, str], ...]:
    """Return the things that were seen in the logs, each once: names and texts."""
    pairs = [(str(row.get("name")), str(row.get("text"))) for row in history.of("seen")]
    return tuple(dict.fromkeys(pairs))


def _ranks(history: HistoryRows) -> tuple[RankView, ...]:
    """The ranks of the latest attempt of each node."""
    found: dict[tuple[str, int], dict[str, object]] = {}
    samples: dict[tuple[str, int], Row] = {}
    steps: dict[tuple[str, int], tuple[float, int]] = {}
    for row in history.rows:
        kind, rank = row["kind"], (str(row.get("role", "worker")), row.get("rank", -1))
        if kind == "attempt":
            node = str(row.get("node", ""))
            for key in [k for k, v in found.items() if v["node"] == node]:
                del found[key]
            for role, number, pid, *_ in row["ranks"]:
                found[(role, number)] = {
                    "role": role, "rank": number, "node": node, "pid": pid, "state": "running",
                }  # fmt: skip
            samples.clear()
            steps.clear()
        elif rank not in found:
            continue
        elif kind == "sample":
            now = found[rank]
            now |= {"rss_bytes": row.get("rss"), "gpu": row.get("gpu")}
            now["gpu_bytes"] = row.get("gpu_bytes")
            before, samples[rank] = samples.get(rank), row
            if before is not None and row["at"] > before["at"]:
                cpu = (row["cpu"] - before["cpu"]) / (row["at"] - before["at"])
                now["cpu"] = round(max(0.0, cpu), 2)
        elif kind == "progress":
            now = found[rank]
            now.update(progress_of(row))
            now["line_at"] = row["at"]
            step = row.get("step")
            if step is not None and now.get("rate") is None:
                was = steps.get(rank)
                if was is not None and row["at"] > was[0] and step > was[1]:
                    now["rate"] = (step - was[1]) / (row["at"] - was[0])
                    now["rate_unit"] = "steps/s"
                steps[rank] = (row["at"], step)
        elif kind == "exit":
            found[rank]["state"] = str(row.get("how", "ended"))
    ordered = sorted(found.items())
    return tuple(RankView(**fields) for _, fields in ordered)  # type: ignore[arg-type]  # as above


def progress_of(row: Row) -> dict[str, Any]:
    """The fields of RankView that a row of progress tells."""
    values = row.get("values") or {}
    loss = next((v for n, v in values.items() if "loss" in n), None)
    return {
        "step": row.get("step"), "steps": row.get("steps"), "epoch": row.get("epoch"),
        "loss": loss, "rate": row.get("rate"), "rate_unit": row.get("unit", ""),
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


def _attempts(history: HistoryRows) -> tuple[AttemptView, ...]:
    found: dict[int, dict[str, object]] = {}
    stalls: dict[int, list[tuple[float, float | None]]] = {}
    latest = -1
    for row in history.of("attempt", "attempt_end", "end", "progress", "stall", "stall_over"):
        kind, at = row["kind"], float(row["at"])
        if kind == "attempt":
            if latest in found and found[latest]["ended"] is None and row["attempt"] != latest:
                found[latest]["ended"] = at
            latest = int(row["attempt"])
            one = found.setdefault(
                latest, {"number": latest, "began": at, "ended": None, "ranks": 0,
                         "first_step_at": None},
            )  # fmt: skip
            one["ranks"] = int(str(one["ranks"])) + len(row["ranks"])
        elif latest not in found:
            continue
        elif kind in ("attempt_end", "end"):
            found[latest]["ended"] = found[latest]["ended"] or at
        elif kind == "progress":
            found[latest]["first_step_at"] = found[latest]["first_step_at"] or at
        elif kind == "stall":
            stalls.setdefault(latest, []).append((at - float(row["seconds"]), None))
        elif stalls.get(latest):
            stalls[latest][-1] = (stalls[latest][-1][0], at)
    return tuple(
        AttemptView(**one, stalls=tuple(stalls.get(number, ())))  # type: ignore[arg-type]
        for number, one in found.items()
    )


def _curves(history: HistoryRows, began: float) -> tuple[Curve, ...]:
    """The values of the first rank that tells any, and the rate of its steps."""
    points: dict[str, list[tuple[float, int | None, float]]] = {}
    rank = next((row["rank"] for row in history.of("progress") if row.get("values")), None)
    before: Row | None = None
    for row in history.of("progress"):
        if row.get("rank") != rank:
            continue
        at, step = round(float(row["at"]) - began, 3), row.get("step")
        for name, number in (row.get("values") or {}).items():
            points.setdefault(name, []).append((at, step, float(number)))
        rate = row.get("rate")
        if rate is None and before is not None and step is not None:
            seconds = row["at"] - before["at"]
            done = step - (before.get("step") or 0)
            rate = done / seconds if seconds > 0 and done > 0 else None
        if rate is not None:
            points.setdefault(str(row.get("unit") or "steps/s"), []).append((at, step, rate))
        before = row
    names = sorted(points, key=lambda n: (not _is_first(n), list(points).index(n)))
    return tuple(Curve(name, rank or 0, thinned(points[name])) for name in names)


def _is_first(name: str) -> bool:
    return any(name == first or name.endswith(f"_{first}") for first in FIRST_VALUES)


def thinned(
    points: Sequence[tuple[float, int | None, float]], most: int = POINTS_MAX
) -> tuple[tuple[float, int | None, float], ...]:
    """At most so many points, the first and the last among them.

    >>> [p[0] for p in thinned([(float(n), n, 0.0) for n in range(10)], 4)]
    [0.0, 3.0, 6.0, 9.0]
    """
    if len(points) <= most:
        return tuple(points)
    return tuple(points[round(n * (len(points) - 1) / (most - 1))] for n in range(most))
