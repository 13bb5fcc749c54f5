"""Submission -> plan: the files, the steps and the table that people see. Pure."""

from __future__ import annotations

from pathlib import Path

from paddock.backends.common.planned import bad_names, job_text, making, rows_of
from paddock.backends.flags import foreign
from paddock.backends.slurm.script import (
    ENV,
    INNER,
    build_script,
    script_text,
)
from paddock.backends.types import PlanStep, Submission, SubmissionPlan
from paddock.errors import Problem, refuse


def plan_of(submission: Submission, root: Path) -> SubmissionPlan:
    """Return the plan of a submission. Raises UsageError."""
    why = "it would tell Slurm something; see sbatch_lines in the site"
    bad = [name for name, _ in submission.env if name.startswith(("SLURM_", "SBATCH_"))]
    refuse([*bad_names(submission), *(Problem(f"--env {name}: {why}") for name in bad)])
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
        told = " ".join(name for name, _ in submission.env)
        steps.append(PlanStep("here", f"write {INNER}/{ENV}, for you alone, with {told}"))
    steps.append(PlanStep("here", "hand it to Slurm", ("sbatch", "--parsable", str(script))))
    devices = submission.option("gres") or "found there"
    names = ["chosen by Slurm"] * submission.job.nnodes_max
    cannot = [*foreign("slurm", submission.extra)]
    if ":" in submission.nnodes:
        cannot.append("growing: Slurm decides once, between both numbers, how many nodes there are")
    return SubmissionPlan(
        rows_of(submission, names, devices),
        tuple(steps),
        files,
        cannot=tuple(cannot),
        why={line.text.strip(): line.why for line in lines if line.why},
    )
