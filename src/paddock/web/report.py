"""The report of a run: one HTML file with its state, curves, bill, failure and last log lines.

The file holds all it needs, runs no script and asks nobody for anything.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from markupsafe import Markup

from paddock.errors import PaddockError
from paddock.web.loglines import LogWindow
from paddock.web.pages import STATIC, failure_values, render, run_values
from paddock.web.runs import log_end

if TYPE_CHECKING:
    from paddock.backends.registry import RegisteredJob
    from paddock.web.runs import RunSource


def report_page(source: RunSource, run: RegisteredJob, language: str) -> str:
    """The HTML of the report of a run as it is now."""
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
