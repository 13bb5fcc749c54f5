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
from functools import partial
from heapq import merge
from typing import TYPE_CHECKING, Any

from paddock.backends.backend import find_backend
from paddock.backends.node.store import size_text
from paddock.backends.registry import RegisteredJob, Registry
from paddock.backends.table import LAUNCH
from paddock.backends.text import clean
from paddock.backends.types import JobStatus, LogQuery
from paddock.errors import PaddockError
from paddock.watch.bill import Bill, bill_of
from paddock.watch.history import HistoryReader, HistoryRows, last_rows
from paddock.watch.servers import COUNTED
from paddock.watch.svg import ChartLine, TimelineRow, number_text
from paddock.watch.view import (
    RATE_SECONDS,
    RankView,
    RunView,
    StepRate,
    progress_of,
    run_view,
)
from paddock.web.loglines import LogPlace, LogWindow, read_window
from paddock.web.texts import translator

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from paddock.backends.types import LogChunk
    from paddock.watch.history import Row
    from paddock.watch.view import ServerView

HERE_SECONDS = 0.2  # an answer is as good as new for so long; of this machine
AWAY_SECONDS = 5.0
FIRST_SECONDS = 0.4  # a page waits so long for first answers from elsewhere
READ_SHARE = 10.0
HISTORIES_KEPT = 24
TAIL_BYTES = 1 << 16  # of a history, where its latest progress is looked for
NODES_SHOWN = 32  # rows of a timeline, for each attempt
USED = {  # a curve, and the field of samples that it adds up
    "Memory, bytes": "rss", "Devices in use": "gpu", "Memory of devices, bytes": "gpu_bytes",
}  # fmt: skip
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
    reader: HistoryReader = field(default_factory=lambda: HistoryReader(()))
    found: RunHistory = RunHistory(HistoryRows(()))
    next_at: float = 0.0  # monotonic seconds
    lock: threading.Lock = field(default_factory=threading.Lock)


class SlowAnswers:
    """The latest answers to questions that threads ask again, once an answer is stale.

    problems: why the latest answer to a question is an old one, or none.
    """

    def __init__(self) -> None:
        self.problems: dict[object, str] = {}
        self._pool = ThreadPoolExecutor(8, thread_name_prefix="paddock-web-ask")
        self._kept: dict[object, tuple[float, Any]] = {}  # by question: when, answer or None
        self._asking: dict[object, Future[None]] = {}
        self._lock = threading.Lock()

    def keep(self, question: object, answer: object) -> None:
        """Take an answer that somebody has had."""
        self._kept[question] = (time.monotonic(), answer)

    def latest(self, question: object) -> Any:
        """The latest answer; None before the first."""
        return self._kept.get(question, (0.0, None))[1]

    def ask(self, question: object, ask: Callable[[], object]) -> None:
        """Ask and wait; out of reach, what was known before stays."""
        try:
            self.keep(question, ask())
            self.problems.pop(question, None)
        except PaddockError as error:
            self.problems[question] = error.message
            self.keep(question, self.latest(question))

    def begin(self, question: object, ask: Callable[[], object]) -> Future[None]:
        """Ask, unless the answer is fresh, or asked for. A result that is done: no need to wait."""
        with self._lock:
            at, _ = self._kept.get(question, (-AWAY_SECONDS, None))
            if time.monotonic() - at >= AWAY_SECONDS and self._asking.get(question, _DONE).done():
                self._asking[question] = self._pool.submit(self.ask, question, ask)
            return _DONE if question in self._kept else self._asking[question]


_DONE: Future[None] = Future()
_DONE.set_result(None)
WatchedRun = tuple[RegisteredJob, JobStatus]


def _key(run: RegisteredJob) -> tuple[str, float]:
    """The key of a run: another one may get its id once it is deleted."""
    return run.run_id, run.created_at


class RunSource:
    """All that pages show of runs. Threads of several pages use it at once.

    ask: states of runs, as backends.status.ask_all.
    ask_cluster: PaddleJobs that were not submitted from here; None without a cluster.
    first_seconds: of waiting for first answers from elsewhere.
    read_share: a history is read at most 1/read_share of the time.
    """

    def __init__(
        self,
        env: Mapping[str, str],
        ask: Callable[[Sequence[RegisteredJob]], list[JobStatus]],
        ask_cluster: Callable[[], list[WatchedRun]] | None = None,
        first_seconds: float = FIRST_SECONDS,
    ) -> None:
        self.read_share = READ_SHARE
        self._registry = Registry(env)
        self._ask = ask
        self._ask_cluster = ask_cluster
        self._first_seconds = first_seconds
        self._answers = SlowAnswers()
        self._histories: OrderedDict[tuple[str, float], _KeptHistory] = OrderedDict()
        self._lock = threading.Lock()

    @property
    def damaged(self) -> int:
        """The number of records that cannot be read."""
        return len(self._registry.damaged)

    @property
    def cluster_problem(self) -> str:
        """Why the cluster cannot be asked; "" if it can."""
        return self._answers.problems.get("cluster", "")

    def runs(self) -> list[RegisteredJob]:
        """All runs, the latest first."""
        found = self._registry.runs()[::-1]
        if self._ask_cluster is None:
            return found
        wait([self._answers.begin("cluster", self._ask_cluster)], self._first_seconds)
        ours = {run.handle for run in found}
        others = []
        for run, state in self._answers.latest("cluster") or ():
            if run.handle not in ours:
                self._answers.keep(_key(run), state)
                others.append(run)
        return list(merge(found, others, key=lambda run: -run.created_at))

    def run(self, run_id: str) -> RegisteredJob:
        """The run with this id. Raises UnknownRunError."""
        for run in self.runs():
            if run.run_id == run_id:
                return run
        raise UnknownRunError(f"no run '{run_id}' is recorded here")

    # ------------------------------------------------------------ states

    def states(self, runs: Sequence[RegisteredJob]) -> list[JobStatus]:
        """The states of runs; "unknown" while a host was never heard of."""
        here: list[RegisteredJob] = []
        first: list[Future[None]] = []
        for run in runs:
            state = self._answers.latest(_key(run))
            if state is not None and state.is_final and state.state != "lost":
                continue
            if run.handle.backend == LAUNCH or run.sending:
                here.append(run)
            else:
                first.append(self._answers.begin(_key(run), partial(self._state_of, run)))
        for run, state in zip(here, self._ask(here) if here else (), strict=True):
            self._answers.keep(_key(run), state)
        wait(first, self._first_seconds)
        return [
            self._answers.latest(_key(run)) or run.end or JobStatus("unknown", time.time())
            for run in runs
        ]

    def _state_of(self, run: RegisteredJob) -> JobStatus:
        return self._ask([run])[0]

    def state(self, run: RegisteredJob) -> JobStatus:
        """The state of one run."""
        return self.states([run])[0]

    # ------------------------------------------------------------ histories

    def history(self, run: RegisteredJob) -> RunHistory:
        """The history of a run, as new as read_share allows."""
        with self._lock:
            kept = self._histories.setdefault(_key(run), _KeptHistory())
            self._histories.move_to_end(_key(run))
            while len(self._histories) > HISTORIES_KEPT:
                self._histories.popitem(last=False)
        paths = self._paths(run)
        with kept.lock:
            began = time.monotonic()
            if not kept.reader.is_of(paths):
                kept.reader, kept.next_at = HistoryReader(paths), 0.0
            if began >= kept.next_at:
                history = kept.reader.read()
                if history != kept.found.history:
                    kept.found = _understood(history)
                took = time.monotonic() - began
                kept.next_at = began + took + max(HERE_SECONDS, self.read_share * took)
            return kept.found

    def history_problem(self, run: RegisteredJob) -> str:
        """Why the history of a run cannot be had; "" if it can."""
        return self._answers.problems.get(("history", _key(run)), "")

    def _paths(self, run: RegisteredJob, *, is_brief: bool = False) -> Sequence[Path]:
        """The files of a history. Those of other hosts are copied here, in a thread.

        is_brief: the page waits for no host.
        """
        question = ("history", _key(run))
        ask = partial(find_backend(run.handle.backend).history, run)
        if run.handle.backend == LAUNCH:
            self._answers.ask(question, ask)
        else:
            asked = self._answers.begin(question, ask)
            wait([asked], 0.0 if is_brief else self._first_seconds)
        found: Sequence[Path] = self._answers.latest(question) or ()
        return found

    def progress(self, run: RegisteredJob, state: JobStatus) -> str:
        """The latest progress of a run in a few words."""
        known: str | None = self._answers.latest(("progress", _key(run)))
        if known is not None:
            return known
        if state.is_final and run.handle.backend != LAUNCH:
            return ""
        found = map(_last_progress, self._paths(run, is_brief=True))
        text = next(filter(None, found), "")
        if state.is_final:
            self._answers.keep(("progress", _key(run)), text)
        return text

    # ------------------------------------------------------------ logs

    def log_chunks(self, run: RegisteredJob, query: LogQuery) -> Iterator[LogChunk]:
        """Lines of a run's log. Raises PaddockError."""
        return find_backend(run.handle.backend).logs(run, query)

    def window(self, run: RegisteredJob, **asked: Any) -> LogWindow:
        """A window of a run's log (loglines.read_window). Raises PaddockError."""
        is_near = run.handle.backend == LAUNCH
        return read_window(lambda query: self.log_chunks(run, query), is_near=is_near, **asked)

    def last_words(self, run: RegisteredJob, state: JobStatus) -> list[str]:
        """The traceback of the rank that failed first, else its last lines; [] without it."""
        match = _CULPRIT.match(state.why)
        if match is None or state.state not in ("failed", "lost"):
            return []
        at = (state.failed_at or state.since) + ENDING_SECONDS
        before = LogPlace(int(at * 1e9))
        found = self.window(run, ranks=(int(match[1]),), before=before, is_folded=False)
        lines = [line.text for line in found.lines]
        begins = [n for n, line in enumerate(lines) if _TRACEBACK in line]
        if begins:
            return lines[begins[-1] :][:TRACEBACK_LINES]
        return lines[-LAST_LINES:]


def _last_progress(path: Path) -> str:
    """The progress in the last rows of a history: "120/2000 · loss 1.2 · 5 steps/s".

    Of the first rank that is at work, as `paddock top` shows it.
    """
    with suppress(TypeError, ValueError, LookupError, AttributeError):
        rows = list(last_rows(path, ("progress",), TAIL_BYTES))
        since = rows[0]["at"] - RATE_SECONDS
        first = min(_of_rank(row) for row in rows if row["at"] >= since)
        rates, told = StepRate(), dict[str, Any]()
        for row in reversed([row for row in rows if _of_rank(row) == first]):
            told = progress_of(row, rates)
        done, loss, rate, *_ = rank_texts(RankView("", 0, "", "", **told), translator("en"))
        return " · ".join(filter(None, (done, loss and f"loss {loss}", rate)))
    return ""


def _of_rank(row: Row) -> tuple[str, int]:
    return row.get("role", ""), row["rank"]


def log_end(state: JobStatus) -> float:
    """When the last line of a log may have come: seconds since 1970."""
    return state.since + ENDING_SECONDS if state.is_final and state.since else time.time()


def _understood(history: HistoryRows) -> RunHistory:
    """The view and the bill of a history; none where its rows have other fields than ours."""
    try:
        view = run_view(history)
        return RunHistory(history, view, bill_of(history, view.attempts if view else ()))
    except (LookupError, TypeError, ValueError, AttributeError):
        return RunHistory(HistoryRows((), history.skipped + len(history.rows), history.newest))


def rank_texts(rank: RankView, t: Callable[[str], str]) -> tuple[str, ...]:
    """The step, loss, rate, CPU and memory of a rank; "" for what is not known. t: translates."""
    of = f"/{rank.steps}" if rank.steps else ""
    step = "" if rank.epoch is None else f"{t('Epoch')} {number_text(rank.epoch)}"
    device = f" · {t('device')} "
    return (
        step if rank.step is None else f"{rank.step}{of}",
        "" if rank.loss is None else f"{rank.loss:.4g}",
        "" if rank.rate is None else f"{number_text(rank.rate)} {rank.rate_unit or 'steps/s'}",
        ("" if rank.cpu is None else f"{rank.cpu:.0%}")
        + ("" if rank.gpu is None else f"{device}{rank.gpu:.0%}"),
        ("" if rank.rss_bytes is None else size_text(rank.rss_bytes))
        + ("" if rank.gpu_bytes is None else f"{device}{size_text(rank.gpu_bytes)}"),
    )


# ------------------------------------------------------------------------------- for the charts


def usage_lines(found: RunHistory) -> list[ChartLine]:
    """Cores, devices and bytes that all ranks use together, over the seconds of the run."""
    rows = [row for row in found.history.of("sample") if "rank" in row]
    if found.view is None or not rows:
        return []
    began = found.view.began
    size = max(USAGE_SECONDS, (rows[-1]["at"] - began) / USAGE_POINTS)
    used: dict[str, dict[int, dict[object, float]]] = {"Cores in use": {}}  # point -> rank
    before: dict[object, Any] = {}
    for row in rows:
        rank, point = (row.get("role"), row["rank"]), int((row["at"] - began) / size)
        for name, of in USED.items():
            if row.get(of) is not None:
                used.setdefault(name, {}).setdefault(point, {})[rank] = float(row[of])
        was, before[rank] = before.get(rank), row
        if was is not None and row["at"] > was["at"] and row["cpu"] >= was["cpu"]:
            share = (row["cpu"] - was["cpu"]) / (row["at"] - was["at"])
            used["Cores in use"].setdefault(point, {})[rank] = share
    return [
        ChartLine(name, tuple((n * size, sum(of.values())) for n, of in sorted(points.items())))
        for name, points in used.items()
        if points
    ]


def server_lines(servers: Sequence[ServerView]) -> Iterator[tuple[str, list[ChartLine]]]:
    """For each counter of the parameter servers a line of each: its rate over time."""
    for name in COUNTED:
        lines = [ChartLine(str(each.rank), tuple((x, y) for x, _, y in each.rates[name]))
                 for each in servers]  # fmt: skip
        if any(line.points for line in lines):
            yield name, lines


def timeline_rows(
    found: RunHistory, now: float, text: Callable[[str], str]
) -> tuple[list[TimelineRow], float]:
    """Rows of the timeline of a run, a node of an attempt each, and its length in seconds.

    Of more than NODES_SHOWN nodes the one whose first step came last. text: of a phase.
    """
    view = found.view
    if view is None:
        return [], 0.0
    began, latest = round(view.began * 1000), round(found.history.rows[-1]["at"] * 1000)
    end = max(latest, round((view.ended or now) * 1000))
    rows, since = [], began
    for number, one in enumerate(view.attempts, 1):
        until = end if number == len(view.attempts) else one.ended
        nodes = dict[str, int]()  # and the place of the rank there whose first step came first
        for place, rank in sorted(one.places.items(), key=lambda pair: one.first_of(pair[1])):
            nodes.setdefault(one.ranks[rank], place)
        slowest = list(nodes)[-1:]
        for node in sorted(nodes) if len(nodes) <= NODES_SHOWN else slowest:
            label = f"{text('Attempt')} {one.number}" + f" · {node}" * (len(nodes) > 1)
            label += f" ({text('slowest of')} {len(nodes)})" * (len(nodes) > NODES_SHOWN)
            spans = []
            for kind, a, b in view.phases[nodes[node]]:
                a, b = max(a, since), min(end if b == latest else b, until)
                if b > a:
                    about = f"{text(kind.replace('_', ' '))}: {(b - a) / 1000:.1f} s"
                    spans.append((kind, about, (a - began) / 1000, (b - began) / 1000))
            rows.append(TimelineRow(clean(label), tuple(spans)))
        since = one.ended
    return rows, (end - began) / 1000
