"""Show the status of jobs to people or programs, once or until their end."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from typing import Any

from paddock.backends.backend import find_backend
from paddock.backends.files.stayed import stayed_text
from paddock.backends.merge import prefixed
from paddock.backends.registry import RegisteredJob
from paddock.backends.status import POLL_SECONDS, ask, ask_all, exit_code, shown_name
from paddock.backends.text import age, clean, coloured, list_lines, status_lines, word_of
from paddock.backends.types import FINAL, JobStatus, LogChunk, LogQuery
from paddock.core.attempt.exits import EXIT_EXCEPTION
from paddock.errors import PaddockError
from paddock.local.ending import TRACEBACK
from paddock.local.output.console import write_all
from paddock.local.report.width import say, terminal_width

KEEP_SECONDS = 10.0
LAST_LINES_SECONDS = 10.0
LAST_LINES = 40  # of a log, for its traceback


def as_json(run: RegisteredJob, status: JobStatus) -> dict[str, Any]:
    """The status as JSON; see docs/reference/json.md."""
    return {
        "id": run.run_id,
        "name": run.name,
        "handle": str(run.handle),
        "backend": run.handle.backend,
        "command": run.command,
        "created_at": run.created_at,
        **asdict(status),
        "ranks_up": status.ranks_up,
    }


def show(
    runs: Sequence[RegisteredJob], statuses: Sequence[JobStatus], *, is_json: bool, is_list: bool
) -> None:
    """Print the status host by host and rank by rank, or as JSON. is_list: JSON is a list."""
    pairs = list(zip(runs, statuses, strict=True))
    if is_json:
        found = [as_json(*pair) for pair in pairs]
        print(json.dumps(found if is_list else found[0]))
        return
    for run, status in pairs:
        print(_status_text(run, status))


def show_list(runs: Sequence[RegisteredJob], statuses: Sequence[JobStatus]) -> None:
    """Print one line for each job."""
    rows = [
        (
            run.run_id,
            word_of(status.state),
            str(status.ranks_up) if status.nodes else "-",
            age(time.time() - run.created_at),
            run.handle.backend,
            clean(run.command),
            clean(status.why),
        )
        for run, status in zip(runs, statuses, strict=True)
    ]
    head, *lines = list_lines(rows, terminal_width())
    print(head)
    for line, status in zip(lines, statuses, strict=True):
        word = coloured(status.state, is_coloured=_is_coloured())
        print(line.replace(f" {word_of(status.state)} ", f" {word} ", 1))  # an id has no blank


def _status_text(run: RegisteredJob, status: JobStatus) -> str:
    name, width = shown_name(run), terminal_width()
    lines = status_lines(name, status, time.time(), is_coloured=_is_coloured(), width=width)
    return "\n".join([*lines, *_last_words(run, status)])


def _last_words(run: RegisteredJob, status: JobStatus) -> list[str]:
    """The command that shows why the rank failed that failed first; none without such a rank."""
    culprit = status.culprit
    if culprit is None or culprit.rank < 0 or status.state not in ("failed", "lost"):
        return []
    # One in the lines of a rank that chose its code was handled.
    has_traceback = culprit.code == EXIT_EXCEPTION and TRACEBACK in culprit.tail
    what = "its traceback" if has_traceback else "its last lines"
    rank = f" --rank {culprit.rank}" if culprit.role == "worker" else ""
    lines = [f"{what}: paddock logs {run.run_id}{rank} -n {LAST_LINES}"]
    stayed = stayed_text(run, status, os.environ)
    return [f"  {clean(text)}" for text in (*lines, stayed) if text]


def _is_coloured() -> bool:
    """Return True if the output may have colour: a terminal, without NO_COLOR (no-color.org)."""
    return _takes_codes() and not os.environ.get("NO_COLOR")


def _takes_codes() -> bool:
    """Return True if the output may move the cursor and have colours."""
    return sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb"


def shown(pieces: Iterable[LogChunk]) -> Iterator[bytes]:
    """Lines with their prefixes, cleaned for this output."""
    return prefixed(pieces, is_terminal=sys.stdout.isatty())


def watch(run: RegisteredJob) -> int:
    """Redraw the status until the job has ended; returns its exit code."""
    last: list[str] = []
    while True:
        (status,) = ask_all([run], is_brief=True)
        lines = _status_text(run, status).split("\n")
        if _takes_codes() and last:
            sys.stdout.write(f"\x1b[{len(last)}F\x1b[J")
        if _takes_codes() or lines[1:] != last[1:] or not last:
            print("\n".join(lines), flush=True)
        last = lines
        if status.is_final:
            return exit_code(status)
        # sleep: most backends do not report state changes
        time.sleep(POLL_SECONDS)


def keep_histories(runs: Sequence[RegisteredJob], due: float) -> float:
    """Copy histories that end with their pods, from `due` on (monotonic); returns when again."""
    if time.monotonic() < due:
        return due
    for run in runs:
        if run.handle.backend == "kubernetes":
            with suppress(PaddockError):  # the status tells that the cluster is silent
                find_backend(run.handle.backend).history(run)
    return time.monotonic() + KEEP_SECONDS


def stay(run: RegisteredJob) -> int:
    """Follow a job's log to its end; returns its exit code. Ctrl-C stops it, a second at once.

    For backends whose jobs do not depend on this process.
    """
    backend = find_backend(run.handle.backend)
    is_stopping = False
    reader: threading.Thread | None = None
    last, due = "", 0.0

    def read() -> None:
        try:
            for data in shown(backend.logs(run, LogQuery(follow=True))):
                write_all(1, data)
        except PaddockError as error:
            say(f"warning: {error.message}")

    while True:
        try:
            status = ask(run)
            if status.state != last:
                last = status.state
                why = f": {clean(status.why)}" if status.why else ""
                say(f"{run.handle} is {word_of(last)}{why}")
            if reader is None and status.state in ("running", "stopping", *FINAL):
                reader = threading.Thread(target=read, daemon=True)
                reader.start()
            if status.is_final:
                break
            due = keep_histories([run], due)
            # sleep: a batch system does not report the end of a job
            time.sleep(POLL_SECONDS / 2)
        except KeyboardInterrupt:
            backend.stop(run, now=is_stopping)
            say("stopping at once" if is_stopping else "stopping; once more for at once")
            is_stopping = True
    if reader is not None:
        reader.join(LAST_LINES_SECONDS)
    return exit_code(status)


@contextmanager
def answers_alone(is_json: bool) -> Iterator[Callable[[dict[str, object]], None]]:
    """With --json, keep stdout for the answer alone: the job's output goes to stderr."""
    if not is_json:
        yield lambda _answer: None
        return
    stdout = os.dup(1)
    os.dup2(2, 1)
    try:
        yield lambda answer: write_all(stdout, f"{json.dumps(answer)}\n".encode())
    finally:
        sys.stdout.flush()
        os.dup2(stdout, 1)
        os.close(stdout)
