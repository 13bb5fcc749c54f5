"""The words of the verbs: their flags, and the jobs that are meant."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from paddock.backends.backend import find_backend
from paddock.backends.registry import Registry
from paddock.backends.sites.find import find_site
from paddock.backends.words import Site, parse_handle
from paddock.errors import PaddockError, Problem, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from paddock.backends.registry import Run

# Verb -> its flags, and whether they take a value.
FLAGS = {
    "list": {"discover": True, "all": False},
    "status": {"watch": False},
    "logs": {"follow": False, "rank": True, "since": True, "tail": True, "around_failure": True},
    "stop": {"now": False},
    "wait": {"timeout": True},
    "fetch": {"to": True},
    "delete": {"entry_only": False},
}


class Words:
    """The words of one verb: flags by name, and the jobs that are meant."""

    def __init__(self, verb: str, argv: Sequence[str]) -> None:
        """Raises UsageError with all that is wrong."""
        self.values: dict[str, str] = {}
        self.jobs: list[str] = []
        flags = {**FLAGS[verb], "json": False, "help": False}
        short = {"f": "follow", "h": "help", "n": "tail"}
        problems = []
        at = 0
        while at < len(argv):
            word, equals, text = argv[at].partition("=")
            at += 1
            if not word.startswith("-"):
                self.jobs.append(argv[at - 1])
                continue
            name = short.get(word[1:]) or word[2:].replace("-", "_")
            if name not in flags or (not word.startswith("--") and word[1:] not in short):
                from paddock.jobfile.suggest import nearest

                known = [f"--{n.replace('_', '-')}" for n in flags]
                problems.append(Problem(f"unknown flag {word}", nearest(word, known)))
            elif flags[name] and not equals:
                if at == len(argv):
                    problems.append(Problem(f"{word} needs a value"))
                    break
                text = argv[at]
                at += 1
            self.values[name] = text if flags.get(name) else "1"
        if problems:
            raise UsageError.of(problems)
        self.is_json = "json" in self.values
        self.is_help = "help" in self.values
        if self.is_help:
            from paddock.cli.help import command_help

            sys.stdout.write(command_help(verb))

    def runs(self) -> list[Run]:
        """The jobs that are meant; `last` when none is named. Raises UsageError."""
        registry = Registry(os.environ)
        found: dict[str, Run] = {}
        problems: list[Problem] = []
        for word in self.jobs or ["last"]:
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

    def one(self) -> Run:
        """The one job that is meant. Raises UsageError when there are several."""
        runs = self.runs()
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
        if handle.backend in ("mpi", "script"):
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
