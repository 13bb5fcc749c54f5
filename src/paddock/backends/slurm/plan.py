"""Submission -> plan: the files, the steps and the table that people see. Pure."""

from __future__ import annotations

import re
from pathlib import Path

from paddock.backends.common.planned import job_text, making, ranks_of_node
from paddock.backends.flags import foreign
from paddock.backends.slurm.script import (
    ENV,
    INNER,
    build_script,
    nodes_wanted,
    option,
    script_text,
)
from paddock.backends.types import PlanStep, Submission, SubmissionPlan
from paddock.errors import Problem, refuse


def plan_of(submission: Submission, root: Path) -> SubmissionPlan:
    """Return the plan of a submission. Raises UsageError."""
    problems = [Problem(f"--env {name}: {why}") for name, why in _bad_names(submission)]
    refuse(problems)
    folder = root / submission.run_id
    lines = build_script(submission, str(folder))
    script = folder / INNER / "job.sbatch"
    files = {
        str(script): script_text(lines),
        str(folder / INNER / "job.json"): job_text(submission, cwd=submission.workspace),
    }
    if submission.file:
        files[str(folder / INNER / "launch.json")] = submission.file
    what = making(submission, str(folder), "the launcher and a key for this job")
    steps = [PlanStep("here", what)]
    if submission.env:
        names = " ".join(name for name, _ in submission.env)
        steps.append(PlanStep("here", f"write {INNER}/{ENV}, for you alone, with {names}"))
    steps.append(PlanStep("here", "hand it to Slurm", ("sbatch", "--parsable", str(script))))
    each = ranks_of_node(submission)
    devices = option(submission, "gres") or "found there"
    high = submission.job.nnodes_max
    rows = tuple((str(index), "chosen by Slurm", each, devices) for index in range(high))
    return SubmissionPlan(
        rows,
        tuple(steps),
        files,
        cannot=_cannot(submission),
        why={line.text.strip(): line.why for line in lines if line.why},
    )


def _bad_names(submission: Submission) -> list[tuple[str, str]]:
    """Yield the variables that cannot go with a job, and why."""
    found = []
    for name, _ in submission.env:
        if not re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII):
            found.append((name, "not a name of a variable"))
        elif name.startswith(("SLURM_", "SBATCH_")):
            found.append((name, "it would tell Slurm something; see sbatch_lines in the site"))
    return found


def _cannot(submission: Submission) -> tuple[str, ...]:
    """Return a sentence for each option that Slurm does not support."""
    found = [*foreign("slurm", submission.extra)]
    if "-" in nodes_wanted(submission):
        found.append("growing: Slurm decides once, between both numbers, how many nodes there are")
    return tuple(found)
