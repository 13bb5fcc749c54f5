"""Find the jobs that words name (handles, ids, names, last, all), and ask backends how they are."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from paddock.backends.backend import HostBackend, find_backend
from paddock.backends.registry import RegisteredJob, Registry
from paddock.backends.sites.find import find_site
from paddock.backends.sweeps.follow import find_sweep_of
from paddock.backends.table import ENTRIES, LAUNCH
from paddock.backends.text import word_of
from paddock.backends.types import JobStatus, Site, parse_handle
from paddock.errors import EXIT_OWN_FAULT, PaddockError, Problem, UsageError

AT_ONCE = 16
POLL_SECONDS = 1.0
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
    if not (status.is_final and any(node.state == "unknown" for node in status.nodes)):
        # A host that could not be asked may know more of the end once it is back.
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


def shown_name(run: RegisteredJob) -> str:
    """The name of a run for people: the id of a launch, the handle of a submitted job."""
    return run.run_id if run.handle.backend == LAUNCH else str(run.handle)
