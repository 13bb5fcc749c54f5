"""``paddock submit``: show the plan, start it, and follow the job."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict

from paddock.backends.after import wait_for
from paddock.backends.backend import find_backend
from paddock.backends.files.stayed import stayed_text
from paddock.backends.flags import SubmitArgs
from paddock.backends.registry import RegisteredJob
from paddock.backends.status import ask
from paddock.backends.submit import read_args, read_submission, retries_of, start, with_new_id
from paddock.backends.sweeps.machine import with_loss
from paddock.backends.text import clean, plan_lines
from paddock.backends.types import Submission, SubmissionPlan
from paddock.cli.job_status import answers_alone, stay, watch
from paddock.errors import HelpAsked
from paddock.local.report.width import fitted, say, terminal_width

STAYS_MAX = 50  # names that a dry run shows of what is not sent


def run(argv: Sequence[str]) -> int:
    """Submit a job; returns the job's exit code if it is followed to its end, else 0."""
    split = read_args(argv)
    if split.is_help:
        raise HelpAsked("submit", argv)
    if split.sweep:
        from paddock.cli.sweep import submit_sweep

        return submit_sweep(split)
    submission = read_submission(split)
    plan = find_backend(submission.site.backend).plan(submission)
    if "dry_run" in split.own:
        show_dry_run(submission, plan, is_json="json" in split.own)
        return 0
    with answers_alone("json" in split.own) as answer:
        rows = [("node", "host", "processes", "devices"), *plan.rows]
        for line in fitted(rows, terminal_width(sys.stderr)):
            sys.stderr.write(f"{line}\n")
        for sentence in plan.cannot:
            say(f"warning: {sentence}")
        wait_for(split.waits)
        retries, retry = retries_of(split), 0
        while True:
            entry, code = start(split, submission, plan)
            code = _follow(split, submission, entry, code)
            if retry == retries or code is None:
                break
            if with_loss(ask(entry), entry.handle.backend).state != "lost":
                break
            retry += 1
            say(f"{entry.handle} was lost and starts again (retry {retry} of {retries})")
            submission, plan = with_new_id(submission)
        answer({"handle": str(entry.handle), "id": entry.run_id, "code": code})
    if code is None:
        _show_next(entry)
    return code or 0


def _follow(
    split: SubmitArgs, submission: Submission, entry: RegisteredJob, code: int | None
) -> int | None:
    """Follow a job that was started to its end, unless it is detached; its exit code, or None."""
    if code is None and not submission.is_detached:
        code = stay(entry)
    if code is not None:
        if stayed := stayed_text(entry, ask(entry), os.environ):
            say(f"warning: {stayed}")
        say(f"{entry.handle} ended with {code}; paddock fetch {entry.run_id} brings its files")
    elif "json" not in split.own:
        print(entry.handle, flush=True)
    if code is None and "watch" in split.own:
        code = watch(entry)
    return code


def show_dry_run(submission: Submission, plan: SubmissionPlan, *, is_json: bool) -> None:
    """Print the whole plan: the steps on each host, and every file that is written."""
    if is_json:
        print(json.dumps({"id": submission.run_id, **asdict(plan)}, ensure_ascii=False, indent=1))
        return
    print("\n".join(plan_lines(plan)))
    if submission.package and "from" not in submission.extra:
        for line in _stays_here(submission):
            print(line)


def _stays_here(submission: Submission) -> list[str]:
    """Return the lines that name what is not sent; none if all is."""
    from paddock.backends.files.package import left_behind

    names = left_behind(
        submission.package, os.environ, program=submission.job.command.program,
        data=submission.data, jobs=submission.site.text("root"),
    )  # fmt: skip
    more = [f"  and {len(names) - STAYS_MAX} more"] if len(names) > STAYS_MAX else []
    lines = ["", "stays here (.gitignore, .paddockignore, what is Paddock's own):"]
    return [*lines, *(f"  {clean(each)}" for each in names[:STAYS_MAX]), *more] if names else []


def _show_next(run: RegisteredJob) -> None:
    lines = (
        ("follow its output", f"paddock logs {run.run_id} -f"),
        ("see how it is", f"paddock status {run.run_id}"),
        ("end it", f"paddock stop {run.run_id}"),
    )
    for what, command in lines:
        sys.stderr.write(f"  {what:<20}{command}\n")
