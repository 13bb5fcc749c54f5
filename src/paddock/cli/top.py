"""The board of `paddock top`: what it shows, and its plain form, a table that is drawn anew.

run  state  ranks  step  loss  age  waits for
one line for each run that goes on, and for the latest that have ended

rank  node  state  step  loss  rate  cpu  memory  progress
one line for each rank of the run that is chosen
"""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from paddock.backends.node.store import size_text
from paddock.backends.registry import RegisteredJob
from paddock.backends.status import ask_all, runs_of
from paddock.backends.text import age, clean, news_lines, word_of
from paddock.backends.types import JobStatus, process_name
from paddock.errors import extra_hint
from paddock.local.report.text import count
from paddock.local.report.width import cut, fitted, say
from paddock.watch.servers import COUNTED
from paddock.watch.view import RankView, RunView, ServerView
from paddock.web.runs import RunSource, rank_texts
from paddock.web.texts import translator

ENDED_SHOWN = 3  # runs that have ended, where no run is named
RUNS_MAX = 20
NO_RUNS = "no run goes on; start one with paddock launch or paddock submit"
RUN_HEAD = ("run", "state", "ranks", "step", "loss", "age", "waits for")
RANK_HEAD = ("rank", "node", "state", "step", "loss", "rate", "cpu", "memory", "progress")
LEAST = ("node", "memory", "cpu", "ranks", "age", "loss")  # first left out where it is narrow
ONCE_SECONDS = 30.0  # a board that is shown once waits so long for hosts
LOOK_SHARE = 0.05  # of a core, for the histories of all runs: one of 16 MB takes two seconds


@dataclass
class BoardRun:
    """A run on the board. problem: why its history cannot be had, "" where it can."""

    run: RegisteredJob
    status: JobStatus
    view: RunView | None
    problem: str


class BoardSource:
    """Asks for runs and their histories. jobs: as the user names them; () for what goes on."""

    def __init__(self, jobs: Sequence[str] = (), **how: Any) -> None:
        """how: as RunSource takes it."""
        self._jobs = jobs
        self._source = RunSource(os.environ, partial(ask_all, is_brief=True), **how)

    def look(self) -> list[BoardRun]:
        """The runs of the board, those that go on first. Raises UsageError for unknown jobs."""
        if self._jobs:
            runs = runs_of(self._jobs)
        else:
            every = self._source.runs()
            ended = [run for run in every if run.has_ended][:ENDED_SHOWN]
            runs = [*[run for run in every if not run.has_ended][:RUNS_MAX], *ended]
        self._source.read_share = len(runs) / LOOK_SHARE
        pairs = list(zip(runs, self._source.states(runs), strict=True))
        going = [pair for pair in pairs if not pair[1].is_final]
        over = [pair for pair in pairs if pair[1].is_final]
        return [
            BoardRun(run, status, self._source.history(run).view, self._source.history_problem(run))
            for run, status in [*going, *(over if self._jobs else over[:ENDED_SHOWN])]
        ]


def run_cells(each: BoardRun, now: float) -> tuple[str, ...]:
    """A run as a row of RUN_HEAD. now: seconds since 1970."""
    status, view = each.status, each.view
    first = next((r for r in view.ranks if r.step is not None), None) if view else None
    step, loss = rank_texts(first, translator("en"))[:2] if first else ("", "")
    return (
        each.run.run_id,
        word_of(status.state),
        str(status.ranks_up) if status.nodes else "-",
        step or "-",
        loss or "-",
        age(now - each.run.created_at),
        clean(status.why),
    )


def rank_cells(rank: RankView, now: float) -> tuple[str, ...]:
    """A rank as a row of RANK_HEAD. now: seconds since 1970."""
    cells = (
        process_name(rank.role, rank.rank).removeprefix("rank "),
        rank.node,
        rank.state,
        *(text or "-" for text in rank_texts(rank, translator("en"))),
        "-" if rank.line_at is None else f"{age(now - rank.line_at)} ago",
    )
    return tuple(map(clean, cells))


def seen_text(status: JobStatus) -> str:
    """The kind of progress lines, and the pages of trackers."""
    return "".join(f" · {text}" for text in news_lines(status))


def servers_text(servers: Sequence[ServerView]) -> str:
    """The parameter servers in a line: tables, rows, memory and rates of all together."""
    rows = [each.row for each in servers]
    tables = {name for row in rows for name, *_ in row["tables"]}
    parts = [count(len(rows), "server"), count(len(tables), "table")]
    parts.append(count(sum(row["rows"] for row in rows), "row"))
    parts.append(size_text(sum(row["bytes"] for row in rows)))
    for name in COUNTED:
        rates = [rate for each in servers if (rate := each.rate(name)) is not None]
        parts += [f"{sum(rates):.3g} {name}/s"] if rates else []
    for name, unit in (("lag", "steps"), ("behind", "records")):
        most = max((row.get(name, 0) for row in rows), default=0)
        parts += [f"{name} {most} {unit}"] if most else []
    return " · ".join(parts)


def table(rows: Sequence[Sequence[str]], columns: int) -> list[str]:
    """A table under its head, a line a row: no columns that say nothing, and of LEAST what fits."""
    head, *others = rows
    names = [name for at, name in enumerate(head) if any(row[at].strip("-") for row in others)]
    for left_out in ("", *LEAST):
        names = [name for name in names if name != left_out]
        lines = fitted([[row[head.index(name)] for name in names] for row in rows], columns)
        if not any("\n" in line for line in lines):
            break
    return lines


def board_lines(runs: Sequence[BoardRun], now: float, rows: int, columns: int) -> list[str]:
    """The whole board as text, the ranks of the first run below; at most so many rows."""
    if not runs:
        return [NO_RUNS]
    lines = table([RUN_HEAD, *(run_cells(each, now) for each in runs)], columns)
    first = runs[0]
    if first.view is not None and first.view.ranks:
        ranks = first.view.ranks
        left = max(1, rows - len(lines) - 5)
        slow = f" · {clean(first.view.slow)}" if first.view.slow else ""
        about = f"{count(len(ranks), 'rank')}{slow}{seen_text(first.status)}"
        lines += ["", f"{first.run.run_id}: {about}"]
        lines += [servers_text(first.view.servers)] if first.view.servers else []
        lines += table([RANK_HEAD, *(rank_cells(rank, now) for rank in ranks[:left])], columns)
        if len(ranks) > left:
            lines.append(f"and {len(ranks) - left} more")
    elif first.problem:
        lines += ["", clean(first.problem)]
    return [cut(part, columns) for line in lines for part in line.split("\n")][:rows]


def run_top(jobs: Sequence[str], *, is_plain: bool, seconds: float) -> int:
    """Show the board until it is left; once, where the output is no terminal."""
    if not (sys.stdout.isatty() and sys.stdin.isatty() and os.environ.get("TERM") != "dumb"):
        source = BoardSource(jobs, first_seconds=ONCE_SECONDS)
        print("\n".join(board_lines(source.look(), time.time(), 100_000, 160)))
        return 0
    source = BoardSource(jobs)
    if not is_plain:
        try:
            from paddock.cli.top_app import TopApp
        except ImportError as error:
            if (error.name or "").partition(".")[0] not in ("textual", "rich"):
                raise
            say(f"a plain table; keys for logs, stacks and stop come with {extra_hint('watch')}")
            # sleep: the hint is seen before the table takes the screen
            time.sleep(1.5)
        else:
            TopApp(source, seconds).run()
            return 0
    sys.stdout.write("\x1b[?1049h\x1b[?25l\x1b[2J")  # the second screen, without a cursor
    try:
        while True:
            size = shutil.get_terminal_size()  # 80 x 24 for a terminal that says 0
            lines = board_lines(source.look(), time.time(), size.lines - 3, size.columns)
            text = "".join(f"{line}\x1b[K\r\n" for line in [*lines, "", "Ctrl-C leaves"])
            sys.stdout.write(f"\x1b[H{text.rstrip()}\x1b[J")
            sys.stdout.flush()
            # sleep: runs report no changes of their histories
            time.sleep(seconds)
    except KeyboardInterrupt:
        return 0
    finally:  # what was there before comes back
        sys.stdout.write("\x1b[?25h\x1b[?1049l")
        sys.stdout.flush()
