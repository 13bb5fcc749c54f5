"""``paddock submit --after RUN[:ok|:any]``: find the runs that come first, and wait for them."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from typing import NamedTuple

from paddock.backends.registry import RegisteredJob, Registry
from paddock.backends.status import POLL_SECONDS, ask, runs_of, shown_name
from paddock.backends.sweeps.follow import find_sweep_of
from paddock.backends.types import JobStatus, parse_handle, split_list
from paddock.errors import PaddockError, Problem, UsageError, refuse
from paddock.local.report.width import say

ENDS = ("ok", "any")
EXIT_NOT_SUBMITTED = 1


class Dependency(NamedTuple):
    """A run that has to end first. is_any: however it ends; else it has to succeed."""

    run: RegisteredJob
    is_any: bool


def read_after(text: str, backend: str) -> tuple[str, list[Dependency]]:
    """The jobs of --after that Slurm itself waits for, as text, and the runs to wait for here.

    backend: of the submission. A run that has ended well is in neither. Raises UsageError with
    every run that is unknown, or has failed already.
    """
    for_slurm: list[str] = []
    waits: list[Dependency] = []
    problems: list[Problem] = []
    if not split_list(text):
        problems.append(Problem("--after names no run", "write RUN, RUN:ok or RUN:any"))
    for word in split_list(text):
        name, _, end = word.rpartition(":")
        if end not in ENDS:
            name, end = word, "ok"
        handle = parse_handle(name)
        if name.count(":") > (handle is not None):
            hint = "write RUN, RUN:ok or RUN:any"
            problems.append(Problem(f"--after {word}: its end is neither ok nor any", hint))
            continue
        if sweep := find_sweep_of(name):
            points = sweep.sweep.points
            if not sweep.sweep.has_ended:
                what = f"--after {word}: {sweep.sweep_id} is a sweep that has not ended"
                hint = f"name one of its runs: paddock sweep {sweep.sweep_id}"
                problems.append(Problem(what, hint))
            elif end == "ok" and (bad := sum(each.state != "succeeded" for each in points)):
                what = f"--after {word}: {bad} of its {len(points)} points have not succeeded"
                problems.append(Problem(what, f"after it all the same: --after {name}:any"))
            continue
        is_number = name.isdecimal() or (handle is not None and handle.backend == "slurm")
        is_of_slurm = backend == "slurm" and is_number
        try:
            runs = Registry(os.environ).find(name) if is_of_slurm else runs_of([name])
        except UsageError as error:
            if is_of_slurm:  # of another machine, or no job of ours
                for_slurm.append(word)
            else:
                problems += [Problem(f"--after: {p.message}", p.hint) for p in error.problems]
            continue
        for run in runs:
            status = ask(run)
            if (problem := _problem(run, status, is_any=end == "any")) is not None:
                problems.append(problem)
            elif not status.is_final and backend == run.handle.backend == "slurm":
                for_slurm.append(f"{run.handle}:{end}")
            elif not status.is_final:
                waits.append(Dependency(run, end == "any"))
    refuse(problems)
    return ",".join(for_slurm), waits


def _problem(run: RegisteredJob, status: JobStatus, *, is_any: bool) -> Problem | None:
    """The problem of a run that has ended otherwise than it should."""
    if not status.is_final or status.state == "succeeded" or is_any:
        return None
    state = {"lost": "is lost", "cancelled": "was stopped"}.get(status.state, "has failed")
    hint = f"to start after it all the same: --after {run.run_id}:any"
    return Problem(f"--after {run.run_id}: it {state}", hint)


def wait_for(waits: Sequence[Dependency]) -> None:
    """Wait here until these runs have ended. Raises PaddockError once one has not ended well."""
    for run, is_any in waits:
        status = ask(run)
        if not status.is_final:
            say(f"waiting here until {shown_name(run)} has {'ended' if is_any else 'succeeded'}; "
                "it is submitted then, so keep this command running")  # fmt: skip
        while not status.is_final:
            # sleep: no backend reports the end of a run
            time.sleep(POLL_SECONDS)
            status = ask(run)
        if (problem := _problem(run, status, is_any=is_any)) is not None:
            what = f"nothing is submitted: {problem.message}"
            raise PaddockError(what, hint=problem.hint, exit_code=EXIT_NOT_SUBMITTED)
