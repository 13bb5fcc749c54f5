"""Runs as the pages show them: states, histories and servers, asked again once they are stale.

Runs of this machine are asked while a page waits; those elsewhere in threads, and a page shows the
latest answer: a host that is silent holds up no page.
"""

from __future__ import annotations

import re
import threading
import time
from collections import OrderedDict
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from paddock.backends.backend import find_backend
from paddock.backends.registry import RegisteredJob, Registry
from paddock.backends.table import LAUNCH
from paddock.backends.types import JobStatus, LogQuery
from paddock.errors import PaddockError
from paddock.watch.bill import Bill, bill_of
from paddock.watch.history import HistoryReader, HistoryRows
from paddock.watch.view import RunView, run_view
from paddock.web.loglines import LogPlace, read_window
from paddock.web.svg import ChartLine, TimelineRow

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from paddock.backends.types import LogChunk

T = TypeVar("T")
HERE_SECONDS = 0.2  # an answer is as good as new for so long; of this machine
AWAY_SECONDS = 5.0
FIRST_SECONDS = 0.4  # a page waits so long for first answers from elsewhere
READ_SHARE = 10  # a history is read at most one tenth of the time
HISTORIES_KEPT = 16
SERVER_SECONDS = 2.0
USAGE_POINTS = 300
USAGE_SECONDS = 10.0  # at least, of a point
ENDING_SECONDS = 2.0  # lines may come so long after a rank's end
TRACEBACK_LINES = 80
LAST_LINES = 30
_CULPRIT = re.compile(r"^(?:rank|worker) (\d+)\b")
_TRACEBACK = "Traceback (most recent call last)"


class UnknownRunError(PaddockError):
    """No run of this user has the id."""


@dataclass(frozen=True)
class RunHistory:
    """The history of a run, and what follows from it; view is None before its first row."""

    history: HistoryRows
    view: RunView | None = None
    bill: Bill | None = None


@dataclass
class _KeptHistory:
    paths: list[Path] = field(default_factory=list)
    reader: HistoryReader = field(default_factory=lambda: HistoryReader(()))
    found: RunHistory | None = None
    rows: int = 0  # of the file, when it was found
    next_at: float = 0.0  # monotonic seconds
    finding: Future[None] | None = None  # the paths
    find_at: float = 0.0
    lock: threading.Lock = field(default_factory=threading.Lock)


class RunSource:
    """All that pages show of runs. Threads of several pages use it at once.

    ask: states of runs, as cli.job_status.ask_all. ask_servers: rows of a run's parameter servers.
    """

    def __init__(
        self,
        env: Mapping[str, str],
        ask: Callable[[Sequence[RegisteredJob]], list[JobStatus]],
        ask_servers: Callable[[RegisteredJob], list[dict[str, Any]]] = lambda _: [],
    ) -> None:
        self._registry = Registry(env)
        self._ask = ask
        self._ask_servers = ask_servers
        self._lock = threading.Lock()
        self._pool = ThreadPoolExecutor(8, thread_name_prefix="paddock-web-ask")
        self._listed: tuple[float, list[RegisteredJob]] = (0.0, [])
        self._states: dict[str, tuple[float, JobStatus]] = {}
        self._asking: dict[str, Future[None]] = {}
        self._histories: OrderedDict[str, _KeptHistory] = OrderedDict()
        self._servers: dict[str, tuple[float, list[dict[str, Any]]]] = {}

    @property
    def damaged(self) -> int:
        """The number of records that cannot be read."""
        return len(self._registry.damaged)

    def runs(self) -> list[RegisteredJob]:
        """All runs, the latest first."""
        with self._lock:
            at, found = self._listed
            if time.monotonic() - at > HERE_SECONDS:
                found = self._registry.runs()[::-1]
                self._listed = (time.monotonic(), found)
            return found

    def run(self, run_id: str) -> RegisteredJob:
        """The run with this id. Raises UnknownRunError."""
        for run in self.runs():
            if run.run_id == run_id:
                return run
        raise UnknownRunError(f"no run '{run_id}' is recorded here")

    # ------------------------------------------------------------ states

    def states(self, runs: Sequence[RegisteredJob]) -> list[JobStatus]:
        """The states of runs; "unknown" while a host was never heard of."""
        now = time.monotonic()
        here: list[RegisteredJob] = []
        away: list[RegisteredJob] = []
        with self._lock:
            for run in runs:
                asked_at, state = self._states.get(run.run_id, (-1e9, None))
                is_here = run.handle.backend == LAUNCH
                good_for = HERE_SECONDS if is_here else AWAY_SECONDS
                is_final = state is not None and state.is_final and state.state != "lost"
                if is_final or now - asked_at < good_for or run.run_id in self._asking:
                    continue
                (here if is_here else away).append(run)
            futures = [self._begin(run) for run in away]
        if here:
            self._keep(here, self._ask(here))
        news = [f for f, run in zip(futures, away, strict=True) if run.run_id not in self._states]
        wait(news, FIRST_SECONDS)
        return [self._latest(run) for run in runs]

    def _latest(self, run: RegisteredJob) -> JobStatus:
        kept = self._states.get(run.run_id)
        return kept[1] if kept else run.end or JobStatus("unknown", time.time())

    def _begin(self, run: RegisteredJob) -> Future[None]:
        def ask() -> None:
            try:
                self._keep([run], self._ask([run]))
            finally:
                with self._lock:
                    self._asking.pop(run.run_id, None)

        future = self._asking[run.run_id] = self._pool.submit(ask)
        return future

    def _keep(self, runs: Sequence[RegisteredJob], states: Sequence[JobStatus]) -> None:
        with self._lock:
            for run, state in zip(runs, states, strict=True):
                self._states[run.run_id] = (time.monotonic(), state)

    def state(self, run: RegisteredJob) -> JobStatus:
        """The state of one run."""
        return self.states([run])[0]

    # ------------------------------------------------------------ histories

    def history(self, run: RegisteredJob, *, is_brief: bool = False) -> RunHistory:
        """The history of a run, as new as READ_SHARE allows. is_brief: wait for no host."""
        with self._lock:
            kept = self._histories.get(run.run_id)
            if kept is None:
                kept = self._histories[run.run_id] = _KeptHistory()
            self._histories.move_to_end(run.run_id)
            while len(self._histories) > HISTORIES_KEPT:
                self._histories.popitem(last=False)
        self._find(run, kept, 0.0 if is_brief else FIRST_SECONDS)
        with kept.lock:
            began = time.monotonic()
            if kept.found is None or began >= kept.next_at:
                history = kept.reader.read()
                if kept.found is None or len(history.rows) != kept.rows:
                    kept.found, kept.rows = _understood(history), len(history.rows)
                took = time.monotonic() - began
                kept.next_at = time.monotonic() + max(HERE_SECONDS, READ_SHARE * took)
            return kept.found

    def _find(self, run: RegisteredJob, kept: _KeptHistory, seconds: float) -> None:
        """Find the files of a history. Those of other hosts are copied here, in a thread."""

        def find() -> None:
            with suppress(PaddockError):  # out of reach: what was copied before stays
                paths = find_backend(run.handle.backend).history(run)
                if paths != kept.paths:
                    with kept.lock:
                        kept.paths, kept.reader, kept.found = paths, HistoryReader(paths), None

        now = time.monotonic()
        if run.handle.backend == LAUNCH:
            if not kept.paths:
                find()
        elif now >= kept.find_at and (kept.finding is None or kept.finding.done()):
            is_first, kept.find_at = kept.finding is None, now + AWAY_SECONDS
            kept.finding = self._pool.submit(find)
            wait([kept.finding], seconds if is_first else 0.0)

    # ------------------------------------------------------------ servers, logs

    def servers(self, run: RegisteredJob) -> list[dict[str, Any]]:
        """Rows of the run's parameter servers, with pushes a second since the look before."""
        at, rows = self._servers.get(run.run_id, (0.0, []))
        now = time.monotonic()
        if now - at < SERVER_SECONDS:
            return rows
        found = self._ask_servers(run)
        before = {row["endpoint"]: row for row in rows}
        for row in found:
            was = before.get(row["endpoint"], {}).get("lsn")
            if was is not None and row.get("lsn") is not None:
                row["rate"] = max(0.0, (row["lsn"] - was) / (now - at))
        self._servers[run.run_id] = (now, found)
        return found

    def log_chunks(self, run: RegisteredJob, query: LogQuery) -> Iterator[LogChunk]:
        """Lines of a run's log. Raises PaddockError."""
        return find_backend(run.handle.backend).logs(run, query)

    def stop(self, run: RegisteredJob, *, now: bool) -> None:
        """Stop a run. Raises PaddockError."""
        find_backend(run.handle.backend).stop(run, now=now)

    def last_words(self, run: RegisteredJob, state: JobStatus) -> list[str]:
        """The traceback of the rank that failed first, else its last lines; [] without it."""
        match = _CULPRIT.match(state.why)
        if match is None or state.state not in ("failed", "lost"):
            return []
        at = (state.failed_at or state.since) + ENDING_SECONDS
        found = read_window(
            lambda query: self.log_chunks(run, query),
            ranks=(int(match[1]),), before=LogPlace(int(at * 1e9)), is_folded=False,
            is_near=run.handle.backend == LAUNCH,
        )  # fmt: skip
        lines = [line.text for line in found.lines]
        begins = [n for n, line in enumerate(lines) if _TRACEBACK in line]
        if begins:
            return lines[begins[-1] :][:TRACEBACK_LINES]
        return lines[-LAST_LINES:]


def log_end(state: JobStatus) -> float:
    """When the last line of a log may have come: seconds since 1970."""
    return state.since + ENDING_SECONDS if state.is_final and state.since else time.time()


def _understood(history: HistoryRows) -> RunHistory:
    """The view and the bill of a history; none where its rows have other fields than ours."""
    try:
        return RunHistory(history, run_view(history), bill_of(history))
    except (LookupError, TypeError, ValueError, AttributeError):
        return RunHistory(HistoryRows((), history.skipped + len(history.rows), history.newest))


# ------------------------------------------------------------------------------- for the charts


def usage_lines(found: RunHistory) -> tuple[ChartLine, ChartLine]:
    """Cores and bytes that all ranks use together, over the seconds of the run."""
    cores: dict[int, dict[int, float]] = {}  # point -> rank -> cores
    memory: dict[int, dict[int, float]] = {}
    rows = [row for row in found.history.of("sample") if "rank" in row]
    if found.view is None or not rows:
        return ChartLine("cores", ()), ChartLine("bytes", ())
    began, last = found.view.began, float(rows[-1]["at"])
    size = max(USAGE_SECONDS, (last - began) / USAGE_POINTS)
    before: dict[int, Any] = {}
    for row in rows:
        rank, point = int(row["rank"]), int((row["at"] - began) / size)
        memory.setdefault(point, {})[rank] = float(row.get("rss") or 0)
        was, before[rank] = before.get(rank), row
        if was is not None and row["at"] > was["at"] and row["cpu"] >= was["cpu"]:
            share = (row["cpu"] - was["cpu"]) / (row["at"] - was["at"])
            cores.setdefault(point, {})[rank] = share
    return (
        ChartLine("cores", tuple((n * size, sum(of.values())) for n, of in sorted(cores.items()))),
        ChartLine("bytes", tuple((n * size, sum(of.values())) for n, of in sorted(memory.items()))),
    )


def timeline_rows(
    found: RunHistory, now: float, text: Callable[[str], str]
) -> tuple[list[TimelineRow], float]:
    """Rows of the timeline of a run, an attempt each, and its length. text: of a phase."""
    view = found.view
    if view is None:
        return [], 0.0
    end = (view.ended or max(now, view.began)) - view.began

    def span(kind: str, begin: float, until: float) -> tuple[str, str, float, float]:
        begin, until = max(0.0, begin - view.began), max(0.0, until - view.began)
        return kind, f"{text(kind)}: {until - begin:.1f} s", begin, until

    rows = []
    waits = [(row["at"], row["at"] + row["seconds"]) for row in found.history.of("waited")]
    for number, one in enumerate(view.attempts):
        until = one.ended or view.began + end
        first = one.first_step_at or until
        spans = [span("start", view.began, one.began)] if not number else []
        spans += [span("rendezvous", a, b) for a, b in waits if not number or a >= one.began]
        spans += [span("warm-up", one.began, first), span("useful", first, until)]
        spans += [span("stalled", a, until if b is None else b) for a, b in one.stalls]
        rows.append(TimelineRow(f"{text('attempt')} {one.number}", tuple(spans)))
    return rows, end
