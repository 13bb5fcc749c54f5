"""Find the jobs that arguments name (handles, ids, names, last, all), and show their status.

The status comes from their backends; it is shown to people or programs, once or until the end.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, replace
from typing import Any

from paddock.backends.backend import HostBackend, find_backend
from paddock.backends.merge import prefixed
from paddock.backends.registry import RegisteredJob, Registry
from paddock.backends.sites.find import find_site
from paddock.backends.sweeps.follow import find_sweep_of
from paddock.backends.table import ENTRIES, LAUNCH
from paddock.backends.text import age, clean, coloured, list_lines, status_lines, word_of
from paddock.backends.types import FINAL, JobStatus, LogChunk, LogQuery, Site, parse_handle
from paddock.cli.family import say
from paddock.errors import EXIT_OWN_FAULT, PaddockError, Problem, UsageError
from paddock.local.output.console import write_all
from paddock.local.report.width import terminal_width

AT_ONCE = 16
POLL_SECONDS = 1.0
KEEP_SECONDS = 10.0
LAST_LINES_SECONDS = 10.0
EXITS = {"succeeded": 0, "cancelled": 143, "lost": EXIT_OWN_FAULT, "failed": 1}


def runs_of(jobs: Sequence[str]) -> list[RegisteredJob]:
    """The jobs that are named; `last` when none is. Raises UsageError."""
    registry = Registry(os.environ)
    found: dict[str, RegisteredJob] = {}
    problems: list[Problem] = []
    for word in _joined(jobs) or ["last"]:
        if sweep := find_sweep_of(word):
            ids = [point.run_id for point in sweep.sweep.points]
            found |= {i: run for i in ids if i and (run := registry.get(i))}
            continue
        try:
            found |= {run.run_id: run for run in registry.find(word)}
        except UsageError as error:
            run = by_handle(registry, word)
            if run is not None:
                found[run.run_id] = run
            else:
                problems += error.problems
    if problems:
        raise UsageError.of(problems)
    return list(found.values())


def _joined(jobs: Sequence[str]) -> list[str]:
    """The arguments, with "pid" and the number behind it as one.

    >>> _joined(["pid", "22986", "last"])
    ['pid 22986', 'last']
    """
    found: list[str] = []
    for word in jobs:
        if found and found[-1] == "pid" and word.isdecimal():
            found[-1] = f"pid {word}"
        else:
            found.append(word)
    return found


def one_of(jobs: Sequence[str]) -> RegisteredJob:
    """The one job that is named. Raises UsageError when there are several."""
    runs = runs_of(jobs)
    if len(runs) != 1:
        raise UsageError(f"{len(runs)} jobs are meant", hint="name one")
    return runs[0]


def by_handle(registry: Registry, word: str) -> RegisteredJob | None:
    """The entry of a job of which only the handle is known; None when none is found.

    Asks the handle's place: a site's name, a host, a cluster or a namespace.
    """
    handle = parse_handle(word)
    if handle is None:
        return None
    if handle.backend == "kubernetes":  # its handle says all that is needed
        return registry.adopt(handle, {"details": {"handle": word}})
    try:
        site = find_site(handle.place, env=os.environ, cwd=os.getcwd())
    except UsageError:
        said = {"hosts": handle.place} if handle.backend == "ssh" else {}
        if ENTRIES[handle.backend].is_here:
            return None  # of the machine where they were submitted
        site = find_site(handle.backend, env=os.environ, cwd=os.getcwd(), said=said)
    if site.backend != handle.backend:
        return None
    site = Site(handle.place, site.backend, site.options, site.sources)
    try:
        there = find_backend(handle.backend).discover(site)
    except PaddockError:  # why it cannot be asked is told by list --discover, as the hint says
        return None
    for found, details in there:
        if found == handle:
            return registry.adopt(handle, details)
    return None


def ask(run: RegisteredJob) -> JobStatus:
    """The present status of a job. An end is final; no answer: "unknown" since last seen."""
    return _sending(run) or _seen(run, _status(run))


def _sending(run: RegisteredJob) -> JobStatus | None:
    """The status of a job that is being submitted, for no event; None for others."""
    text = run.sending
    return JobStatus("starting", time.time(), text, since=run.created_at) if text else None


def _status(run: RegisteredJob) -> JobStatus | PaddockError:
    try:
        return find_backend(run.handle.backend).status(run)
    except PaddockError as error:
        return error


def _seen(run: RegisteredJob, status: JobStatus | PaddockError) -> JobStatus:
    """The status of a job from the answer of its backend, written to the registry."""
    end = run.end
    if isinstance(status, PaddockError):
        if end is not None:
            return end
        last = run.last_event
        seen = f"last seen {word_of(last['state'])}" if last is not None else "never seen"
        since = float(last["at"]) if last is not None else run.created_at
        return JobStatus("unknown", time.time(), f"{seen}; {status.message}", since=since)
    if status.state == "lost" and end is not None:
        status = replace(status, state=end.state, code=end.code, why=end.why)
    run.note(replace(status, why="") if status.is_stalled else status)  # for how long changes
    return status


def seen_end(run: RegisteredJob) -> JobStatus | None:
    """The recorded end of a job, which is final; None for a job that must be asked."""
    end = run.end
    return None if end is None or end.state == "lost" else end


def ask_all(runs: Sequence[RegisteredJob], *, is_brief: bool = False) -> list[JobStatus]:
    """The status of several jobs, asked in parallel. is_brief: short timeout of each host."""
    sending = {run.run_id: status for run in runs if (status := _sending(run))}
    found: dict[str, JobStatus | PaddockError] = {}
    by_backend: dict[str, list[RegisteredJob]] = {}
    for run in runs:
        if run.run_id not in sending:
            by_backend.setdefault(run.handle.backend, []).append(run)

    def statuses_of(name: str) -> list[JobStatus | PaddockError]:
        some, backend = by_backend[name], find_backend(name)
        if isinstance(backend, HostBackend):
            return backend.statuses(some, is_brief=is_brief)
        with ThreadPoolExecutor(min(AT_ONCE, len(some))) as pool:
            return list(pool.map(_status, some))

    with ThreadPoolExecutor(max(1, len(by_backend))) as pool:
        for some, statuses in zip(
            by_backend.values(), pool.map(statuses_of, by_backend), strict=True
        ):
            found |= {run.run_id: each for run, each in zip(some, statuses, strict=True)}
    return [sending.get(run.run_id) or _seen(run, found[run.run_id]) for run in runs]


def exit_code(status: JobStatus) -> int:
    """The job's own exit code; where it has none, one of EXITS by its state."""
    if status.code is not None and (status.code or status.state == "succeeded"):
        return status.code
    return EXITS.get(status.state, EXIT_OWN_FAULT)


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


def shown_name(run: RegisteredJob) -> str:
    """The name of a run for people: the id of a launch, the handle of a submitted job."""
    return run.run_id if run.handle.backend == LAUNCH else str(run.handle)


def _status_text(run: RegisteredJob, status: JobStatus) -> str:
    name, width = shown_name(run), terminal_width()
    return "\n".join(
        status_lines(name, status, time.time(), is_coloured=_is_coloured(), width=width)
    )


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
