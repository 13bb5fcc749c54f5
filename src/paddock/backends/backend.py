"""What every backend offers: one class each, named in table.py, imported when it is asked for."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from paddock.backends.table import ENTRIES
from paddock.errors import PaddockError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from paddock.backends.registry import RegisteredJob
    from paddock.backends.table import Entry
    from paddock.backends.types import (
        Handle,
        JobStatus,
        LogChunk,
        LogQuery,
        Site,
        Submission,
        SubmissionPlan,
    )

    Say = Callable[[str], None]


class EndUnknownError(PaddockError):
    """The submitter stayed with the job, and cannot tell how it ended."""


class NotAllReachedError(UsageError):
    """Some hosts of a job could not be told to end; the others were."""


class SubmissionPlanner(Protocol):
    """What decides, for a place where jobs run. May raise PaddockError, with all problems."""

    def plan(self, submission: Submission) -> SubmissionPlan:
        """What will be done; asks nobody and changes nothing."""


class Backend(SubmissionPlanner, Protocol):
    """A place where jobs run. Every method may raise PaddockError, with all problems at once."""

    def submit(
        self, submission: Submission, plan: SubmissionPlan, run: RegisteredJob, say: Say
    ) -> int | None:
        """Do it. Keeps in `run` what later verbs need, from before anything is started.

        Returns None once the job is on its way, or its exit code where it was attached to.
        Whatever fails before that leaves nothing behind.
        """

    def status(self, run: RegisteredJob) -> JobStatus:
        """The truth, asked now. Raises PaddockError when it cannot be asked."""

    def logs(self, run: RegisteredJob, query: LogQuery) -> Iterator[LogChunk]:
        """Lines in order of time."""

    def stop(self, run: RegisteredJob, *, now: bool) -> None:
        """Ask it to end; comes back before it has. now: without grace.

        Raises NotAllTold when some hosts were told, and others could not be.
        """

    def fetch(self, run: RegisteredJob, to: Path, say: Say) -> None:
        """Bring logs and `output/`."""

    def delete(self, run: RegisteredJob) -> None:
        """Remove what an ended job has left there."""

    def discover(self, site: Site) -> list[tuple[Handle, dict[str, object]]]:
        """Jobs of ours that are there, and what a registry entry keeps of each."""


@runtime_checkable
class AsksMany(Protocol):
    """A backend that asks for many jobs in less time than for one after another."""

    def statuses(
        self, runs: Sequence[RegisteredJob], *, is_brief: bool = False
    ) -> list[JobStatus | PaddockError]:
        """The status of each; in its place, why it cannot be asked. is_brief: without patience."""


@runtime_checkable
class KeepsContents(Protocol):
    """A backend whose hosts keep what was sent to them, so that it is not sent again."""

    def clear(self, site: Site, say: Say) -> None:
        """Remove that from every host of a site."""


def find_backend(name: str) -> Backend:
    """The backend of that name. Raises UsageError."""
    found: Backend = _made(_entry(name).driver)
    return found


def find_planner(name: str) -> SubmissionPlanner:
    """What plans for that backend. Raises UsageError."""
    entry = _entry(name)
    found: SubmissionPlanner = _made(entry.planner or entry.driver)
    return found


def _entry(name: str) -> Entry:
    if name not in ENTRIES:
        from paddock.command_line import nearest

        raise UsageError(f"unknown backend '{name}'", hint=nearest(name, ENTRIES))
    return ENTRIES[name]


def _made(what: str) -> Any:
    module, _, kind = what.partition(":")
    return getattr(importlib.import_module(f"paddock.backends.{module}"), kind)()
