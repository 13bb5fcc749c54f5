"""The server of `paddock web`: a page for each address. guard.py has let a request in before.

Pages are made anew for each request; web.js asks for a page again and shows what has changed.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from starlette.applications import Starlette
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

from paddock.backends.backend import find_backend
from paddock.backends.merge import read_query
from paddock.backends.text import clean
from paddock.errors import PaddockError, UsageError
from paddock.web.follow import LogFollowers
from paddock.web.guard import Guard
from paddock.web.loglines import LogPlace, fold
from paddock.web.pages import (
    COMPARED,
    STATIC,
    compared_charts,
    failure_values,
    render,
    report_page,
    run_values,
)
from paddock.web.runs import RunSource, UnknownRunError, log_end
from paddock.web.texts import LANGUAGE_COOKIE, LANGUAGES, language_of

if TYPE_CHECKING:
    from starlette.requests import Request

    from paddock.backends.registry import RegisteredJob
    from paddock.backends.types import JobStatus

RUNS_SHOWN, RUNS_SEARCHED = 200, 2000
NEXT = "X-Next"  # of an answer with new lines: the place that the next request begins with
LIVE_LAG_SECONDS = 0.5  # a page has lines up to then, and new ones after


class WebPages:
    """The pages by address. can_stop: pages have a button that stops a run."""

    def __init__(self, source: RunSource, *, can_stop: bool) -> None:
        self._source = source
        self._can_stop = can_stop
        self._followers = LogFollowers()

    def routes(self) -> list[BaseRoute]:
        """The addresses, and the functions that answer; Starlette calls each in a thread."""
        stop = Route("/runs/{id}/stop", self._stop, methods=["POST"])
        return [
            Route("/", self._runs),
            Route("/compare", self._compare),
            Route("/runs/{id}", self._run),
            Route("/runs/{id}/logs", self._logs),
            Route("/runs/{id}/logs/new", self._new_lines),
            Route("/runs/{id}/failure", self._failure),
            Route("/runs/{id}/report", self._report),
            Mount("/static", StaticFiles(directory=STATIC)),
            *([stop] if self._can_stop else []),
        ]

    def problem(self, request: Request, error: Exception) -> Response:
        """The page of a PaddockError."""
        assert isinstance(error, PaddockError)
        is_unknown = isinstance(error, UnknownRunError)
        code = 404 if is_unknown else 400 if isinstance(error, UsageError) else 502
        values = {"message": error.message, "hint": error.hint}
        return self._render(request, "error.html", values, code)

    def _render(
        self, request: Request, name: str, values: dict[str, Any], status_code: int = 200
    ) -> Response:
        language = language_of(request)
        here = request.url.replace(scheme="", netloc="")
        others = [
            (code, str(here.include_query_params(lang=code)))
            for code in LANGUAGES
            if code != language
        ]
        text = render(name, language, can_stop=self._can_stop, others=others, **values)
        response = HTMLResponse(text, status_code)
        if request.query_params.get("lang") == language:
            response.set_cookie(LANGUAGE_COOKIE, language, samesite="strict", max_age=31_536_000)
        return response

    def _found(self, request: Request) -> tuple[RegisteredJob, JobStatus]:
        run = self._source.run(request.path_params["id"])
        return run, self._source.state(run)

    # ------------------------------------------------------------ pages

    def _runs(self, request: Request) -> Response:
        runs = self._source.runs()
        search = request.query_params.get("q", "").strip().lower()[:200]
        shown = runs[: RUNS_SEARCHED if search else RUNS_SHOWN]
        found = [
            (run, state)
            for run, state in zip(shown, self._source.states(shown), strict=True)
            if search in f"{run.run_id} {run.command} {run.handle} {state.state}".lower()
        ][:RUNS_SHOWN]
        rows = [(run, state, self._source.progress(run, state)) for run, state in found]
        values = {
            "rows": rows, "hidden": 0 if search else len(runs) - len(shown), "search": search,
            "damaged": self._source.damaged, "problem": self._source.cluster_problem,
        }  # fmt: skip
        return self._render(request, "runs.html", values)

    def _run(self, request: Request) -> Response:
        run, state = self._found(request)
        values = run_values(run, state, self._source.history(run), language_of(request))
        is_asked = request.query_params.get("stopping") == "1" and not state.is_final
        return self._render(request, "run.html", {**values, "is_asked": is_asked})

    def _failure(self, request: Request) -> Response:
        run, state = self._found(request)
        try:
            words = self._source.last_words(run, state)
        except PaddockError as error:
            words = [clean(error.message)]
        values = failure_values(run, state, self._source.history(run), words)
        return self._render(request, "failure.html", values)

    def _compare(self, request: Request) -> Response:
        chosen = list(dict.fromkeys(request.query_params.getlist("run")))
        ids = chosen[:COMPARED]
        found = [(id_, self._source.history(self._source.run(id_))) for id_ in ids]
        is_time = request.query_params.get("by") != "step"
        charts = compared_charts(found, language_of(request), is_time=is_time)
        more = len(chosen) - len(ids)
        values = {"ids": ids, "charts": charts, "is_time": is_time, "more": more}
        return self._render(request, "compare.html", values)

    def _report(self, request: Request) -> Response:
        run = self._source.run(request.path_params["id"])
        name = f"{run.run_id}.html"
        headers = {"Content-Disposition": f'attachment; filename="{name}"'}
        return HTMLResponse(report_page(self._source, run, language_of(request)), headers=headers)

    # ------------------------------------------------------------ logs

    def _logs(self, request: Request) -> Response:
        run, state = self._found(request)
        asked, given = _asked(request), request.query_params
        before, after = (LogPlace.read(given.get(name, "")) for name in ("before", "after"))
        if given.get("at") == "failure" and state.failed_at:
            before = LogPlace(int((state.failed_at + 1.0) * 1e9))
        is_live = not (state.is_final or before or after)
        if is_live:  # its lines begin where those of the page end
            self._followers.of(run.run_id, partial(self._source.log_chunks, run))
        until = log_end(state) - LIVE_LAG_SECONDS * is_live
        window = self._source.window(run, before=before, after=after, until=until, **asked)
        values = {
            "run": run, "state": state, "window": window, **asked, "rank": given.get("rank", ""),
            "begin": LogPlace(int(until * 1e9)) if is_live else None,
        }  # fmt: skip
        return self._render(request, "logs.html", values)

    def _new_lines(self, request: Request) -> Response:
        """Lines that came since the page, or since the latest answer."""
        run, state = self._found(request)
        asked = _asked(request)
        follower = self._followers.of(run.run_id, partial(self._source.log_chunks, run))
        place = LogPlace.read(request.query_params.get("after", "")) or LogPlace(0)
        lines, left_out, number = follower.after(
            place.number, place.at_ns, asked["ranks"], asked["search"]
        )
        lines = fold(lines) if asked["is_folded"] else lines
        response = self._render(request, "lines.html", {"lines": lines, "left_out": left_out})
        is_over = state.is_final and follower.is_over
        response.headers[NEXT] = "over" if is_over else str(LogPlace(place.at_ns, number))
        return response

    # ------------------------------------------------------------ stop

    def _stop(self, request: Request) -> Response:
        run, state = self._found(request)
        if not state.is_final:
            find_backend(run.handle.backend).stop(run, now=request.query_params.get("now") == "1")
        return RedirectResponse(f"/runs/{run.run_id}?stopping=1", 303)


def _asked(request: Request) -> dict[str, Any]:
    """The filter of a page of logs, as its address has it. Raises UsageError for bad ranks."""
    given = request.query_params
    ranks = read_query(rank=given.get("rank", "").strip()[:200] or "all").ranks
    return {"search": given.get("q", "")[:200], "ranks": ranks,
            "is_folded": given.get("fold", "1") != "0"}  # fmt: skip


def make_app(source: RunSource, token: str, port: int, *, can_stop: bool) -> Guard:
    """The application, guarded. port: where it listens."""
    pages = WebPages(source, can_stop=can_stop)
    app = Starlette(routes=pages.routes(), exception_handlers={PaddockError: pages.problem})
    return Guard(app, token, port)
