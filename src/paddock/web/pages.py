"""Fill the templates of this package: for the server, and for a file that holds a whole report."""

from __future__ import annotations

import time
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from paddock import __version__
from paddock.backends.node.store import size_text
from paddock.backends.text import age, clean, steps_text, word_of
from paddock.backends.types import process_name
from paddock.errors import PaddockError
from paddock.watch import svg
from paddock.watch.bill import KINDS, Bill
from paddock.watch.history import VERSION, standing
from paddock.watch.stacks import ranks_text
from paddock.web.guard import EARLIER
from paddock.web.loglines import LogWindow
from paddock.web.runs import (
    RunHistory,
    log_end,
    rank_texts,
    server_lines,
    timeline_rows,
    usage_lines,
)
from paddock.web.texts import LANGUAGES, translator

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from paddock.backends.registry import RegisteredJob
    from paddock.backends.types import JobStatus
    from paddock.watch.view import ServerView
    from paddock.web.runs import RunSource

STATIC = Path(__file__).parent / "static"
RANKS_SHOWN = 2000
CURVES_SHOWN = 12
COMPARED = svg.COLOURS
BLAMED = ("suspects", "differing")
NOTICES = {  # rows of a history in words
    "stall": "Nothing moved", "stall_over": "The ranks moved again",
    "held": "A rank was stopped by a signal or a debugger", "held_over": "The rank goes on",
    "restarted": "The ranks were started again", "stacks": "Stacks",
}  # fmt: skip


@cache
def _environment() -> Environment:
    found = Environment(
        loader=PackageLoader("paddock.web"), autoescape=True, undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    found.filters |= {
        "age": age, "size": size_text, "number": svg.number_text, "clean": clean,
        "clock": lambda at: time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at)),
        "tenth": lambda at_ns: time.strftime("%H:%M:%S", time.localtime(at_ns // 10**9))
        + f".{at_ns // 10**8 % 10}",
        "ranks": ranks_text, "word": word_of, "steps": steps_text,
        "notice": lambda kind: NOTICES.get(kind, kind),
    }  # fmt: skip
    found.globals |= {"version": __version__, "languages": LANGUAGES, "process": process_name,
                      "earlier": EARLIER, "rank_texts": rank_texts}  # fmt: skip
    return found


def render(name: str, language: str, **values: Any) -> str:
    """Fill a template. values: of the template; text from runs is escaped there.

    Half a surrogate pair, which is in no UTF-8, becomes "?".
    """
    filled: str = (
        _environment()
        .get_template(name)
        .render(lang=language, t=translator(language), now=time.time(), **values)
    )
    return filled.encode("utf-8", "replace").decode()


def run_values(
    run: RegisteredJob, state: JobStatus, found: RunHistory, language: str
) -> dict[str, Any]:
    """The values of run.html: what a page of a run shows."""
    t = translator(language)
    is_over = state.is_final and bool(found.history.rows)
    now = float(found.history.rows[-1]["at"]) if is_over else time.time()
    rows, seconds = timeline_rows(found, now, t)
    view = found.view
    curves = [*view.curves.items()][:CURVES_SHOWN] if view else []
    servers, ranks = (view.servers, view.ranks) if view else ((), ())
    lines = [svg.ChartLine(clean(name), tuple((x, y) for x, _, y in of)) for name, of in curves]
    lines += [svg.ChartLine(t(line.name), line.points) for line in usage_lines(found)]
    charts = [_chart(line.name, [line], t("No values yet")) for line in lines]
    for name, each in server_lines(servers):
        charts.append(_chart(t(f"{name.capitalize()}/s"), each, ""))
    bad = [r for r in ranks if r.state != "running"] if len(ranks) > RANKS_SHOWN else []
    notices = view.notices if view else ()
    return {
        "notices": notices, "blamed": _blamed(found) if state.is_stalled else {},
        "run": run, "state": state, "found": found, "view": view, "bill": found.bill,
        "servers": servers, "tables": _tables(servers), "charts": charts, "kinds": KINDS,
        "phases": dict.fromkeys(kind for row in rows for kind, *_ in row.spans),
        "ranks": [*bad, *(r for r in ranks if r not in bad)][:RANKS_SHOWN] if bad else ranks,
        "more_ranks": max(0, len(ranks) - RANKS_SHOWN),
        "host": next((str(row.get("host", "")) for row in found.history.of("begin")), ""),
        "is_newer": found.history.newest > VERSION,
        "timeline": Markup(svg.timeline(t("Timeline"), rows, seconds)) if rows else "",
        "bill_bar": _bill_bar(found.bill, t) if found.bill else "",
    }  # fmt: skip


def _blamed(found: RunHistory) -> dict[str, set[int]]:
    """The ranks that the stalls of the nodes name, by how."""
    rows = standing(found.history.rows)
    return {of: {rank for row in rows for rank in row.get(of, ())} for of in BLAMED}


def _tables(servers: Sequence[ServerView]) -> list[tuple[str, int, int, str]]:
    """The tables of parameter servers: name, rows, bytes, and the rows of each server."""
    found: dict[str, list[tuple[int, int]]] = {}
    for each in servers:
        if each.row["is_primary"]:
            for name, rows, size in each.row["tables"]:
                found.setdefault(name, []).append((rows, size))
    return [
        (name, sum(r for r, _ in of), sum(b for _, b in of), " + ".join(str(r) for r, _ in of))
        for name, of in sorted(found.items())
    ]


def failure_values(
    run: RegisteredJob, state: JobStatus, found: RunHistory, last_words: Sequence[str]
) -> dict[str, Any]:
    """The values of failure.html. groups: rows of the history with stacks, the latest first."""
    rows = [row for row in found.history.of("stall", "stacks") if row.get("groups")]
    return {"run": run, "state": state, "last_words": last_words, "groups": rows[::-1][:20]}


def _chart(
    name: str, lines: Sequence[svg.ChartLine], empty: str, *, is_time: bool = True
) -> tuple[str, str, Markup]:
    """A chart, and the last value of its line; web.js writes those below the pointer instead."""
    last = svg.number_text(lines[0].points[-1][1]) if len(lines) == 1 and lines[0].points else ""
    return name, last, Markup(svg.chart(name, lines, is_time=is_time, empty=empty))


def _bill_bar(bill: Bill, t: Callable[[str], str]) -> Markup:
    parts = [
        (kind, f"{t(bill.name_of(kind))} {bill.share(kind):.1%}", bill.share(kind))
        for kind in KINDS
    ]
    return Markup(svg.bar(t("Bill"), parts))


def compared_charts(
    found: Sequence[tuple[str, RunHistory]], language: str, *, is_time: bool
) -> list[tuple[str, str, Markup]]:
    """A chart for each value that runs have, a line of it for each run."""
    t = translator(language)
    names = [name for name, _ in found]
    lines: dict[str, list[svg.ChartLine]] = {}
    for at, (run, history) in enumerate(found):
        for curve, values in history.view.curves.items() if history.view else ():
            points = tuple((x if is_time else float(step or 0), y) for x, step, y in values
                           if is_time or step is not None)  # fmt: skip
            # A run without the value has an empty line: colours stand for runs.
            of = lines.setdefault(clean(curve), [svg.ChartLine(name, ()) for name in names])
            of[at] = svg.ChartLine(run, points)
    shown = list(lines.items())[:CURVES_SHOWN]
    return [_chart(name, each, t("No values yet"), is_time=is_time) for name, each in shown]


def report_page(source: RunSource, run: RegisteredJob, language: str) -> str:
    """The report of a run as it is now: one HTML file that holds all it needs, and no script."""
    state, found = source.state(run), source.history(run)
    problem = ""
    try:
        lines = source.window(run, until=log_end(state))
        words = source.last_words(run, state)
    except PaddockError as error:  # the logs were removed, or are out of reach
        lines, words, problem = LogWindow([], None, None), [], error.message
    values = run_values(run, state, found, language)
    values |= failure_values(run, state, found, words)
    css = Markup((STATIC / "web.css").read_text("utf-8"))
    return render("report.html", language, css=css, window=lines, problem=problem, **values)
