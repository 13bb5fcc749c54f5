"""The interface of a backend: one class each, named in table.py, imported when it is asked for."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from paddock.backends.table import ENTRIES
from paddock.command_line import nearest
from paddock.errors import PaddockError, UsageError

if TYPE_CHECKING:
    from paddock.backends.registry import RegisteredJob
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
Received = Callable[[int], None]  # told so many more bytes


class EndUnknownError(PaddockError):
    """The submitter stayed with the job, and cannot tell how it ended."""


class NotAllReachedError(UsageError):
    """The stop request reached some hosts of a job, and not the others."""


class RunBackend(Protocol):
    """The interface to jobs that were started.

    Every method may raise PaddockError, with all problems at once.
    """

    def status(self, run: RegisteredJob) -> JobStatus:
        """Return the job's status, asked now. Raises PaddockError when it cannot be asked."""

    def logs(self, run: RegisteredJob, query: LogQuery) -> Iterator[LogChunk]:
        """Yield the log lines in order of time."""

    def history(self, run: RegisteredJob) -> list[Path]:
        """Return the histories of the job's nodes (watch/history.py), as files of this machine.

        Those of other hosts are copied here; a later call copies what is new.
        """

    def stacks(self, run: RegisteredJob, *, native: bool) -> list[dict[str, Any]]:
        """Return the stacks of the ranks that run now: answers of launchers (agent/control.py).

        native: with the frames of C and C++, which takes seconds.
        """

    def stop(self, run: RegisteredJob, *, now: bool) -> None:
        """Ask the job to end; return before it has ended. now: without grace.

        Raises NotAllReachedError when some hosts were asked, and others could not be.
        """

    def fetch(
        self, run: RegisteredJob, to: Path, say: Say, received: Received,
        parts: Sequence[str] = ...,
    ) -> None:  # fmt: skip
        """Copy logs and `output/` to the folder `to`. received: told the bytes of each part.

        parts: directories below the job's, in the place of these two.
        """

    def delete(self, run: RegisteredJob) -> None:
        """Remove the files that an ended job has left on its hosts."""


class Backend(RunBackend, Protocol):
    """The interface to a place where jobs are started."""

    def plan(self, submission: Submission) -> SubmissionPlan:
        """Return the plan of a submission; no host is asked and nothing is changed."""

    def submit(
        self, submission: Submission, plan: SubmissionPlan, run: RegisteredJob, say: Say
    ) -> int | None:
        """Carry out the plan. `run` keeps what later verbs need, from before anything is started.

        Returns None once the job is on its way, or its exit code where it was attached to.
        Whatever fails before that leaves nothing behind.
        """

    def discover(self, site: Site) -> list[tuple[Handle, dict[str, object]]]:
        """Return Paddock's jobs at the site, each with the details that a registry entry keeps."""


@runtime_checkable
class HostBackend(Protocol):
    """A backend that connects to hosts, and so asks for many jobs at once, and clears caches."""

    def statuses(
        self, runs: Sequence[RegisteredJob], *, is_brief: bool = False
    ) -> list[JobStatus | PaddockError]:
        """Return the status of each job, or the error that says why it cannot be asked.

        is_brief: short time limits.
        """

    def clear(self, site: Site, say: Say) -> None:
        """Remove the contents that were sent to the hosts of a site, and are kept there."""


def find_backend(name: str) -> Backend:
    """Return the backend of that name; of LAUNCH a RunBackend only. Raises UsageError."""
    if name not in ENTRIES:
        raise UsageError(f"unknown backend '{name}'", hint=nearest(name, ENTRIES))
    module, _, kind = ENTRIES[name].driver.partition(":")
    found: Backend = getattr(importlib.import_module(f"paddock.backends.{module}"), kind)()
    return found
