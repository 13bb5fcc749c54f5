"""The jobs that words mean: handles, ids, names, last, all."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from paddock.backends.backend import find_backend
from paddock.backends.registry import Registry
from paddock.backends.sites.find import find_site
from paddock.backends.words import LAUNCH, Site, parse_handle
from paddock.errors import PaddockError, Problem, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from paddock.backends.registry import Run


def runs_of(jobs: Sequence[str]) -> list[Run]:
    """The jobs that are meant; `last` when none is named. Raises UsageError."""
    registry = Registry(os.environ)
    found: dict[str, Run] = {}
    problems: list[Problem] = []
    for word in _joined(jobs) or ["last"]:
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
    """With "pid" and the number behind it as one word.

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


def one_of(jobs: Sequence[str]) -> Run:
    """The one job that is meant. Raises UsageError when there are several."""
    runs = runs_of(jobs)
    if len(runs) != 1:
        raise UsageError(f"{len(runs)} jobs are meant", hint="name one")
    return runs[0]


def by_handle(registry: Registry, word: str) -> Run | None:
    """An entry for a job of which only the handle is known; None when none is found.

    Its place is asked: a site's name, a host, a cluster or a namespace.
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
        if handle.backend in ("mpi", "script", LAUNCH):
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
