"""What the plans of several backends have in common. Pure."""

from __future__ import annotations

import json
import shlex
from typing import TYPE_CHECKING

from paddock.jobfile.masked import masked_words

if TYPE_CHECKING:
    from paddock.backends.words import Submission


def job_text(submission: Submission, **more: object) -> str:
    """The job.json of a job's directory: what was submitted, without secrets, for --discover."""
    command = submission.job.command
    words = (command.program, *command.args)
    row = {
        "id": submission.run_id,
        "backend": submission.site.backend,
        "name": submission.name,
        "command": shlex.join(masked_words(words, len(words))),
        "nnodes": submission.job.nnodes_max,
        **more,
    }
    return json.dumps(row, ensure_ascii=False, indent=1) + "\n"


def ranks_of_node(submission: Submission) -> str:
    """The number of workers of each node, as the table of a plan shows it."""
    worker = submission.job.role("worker")
    return str(worker.count) if worker is not None and worker.count else "one per device"


def making(submission: Submission, folder: str, what: str) -> str:
    """The sentence of the step that makes a job's directory. what: its content but the package."""
    package = f", and what is in {submission.package}" if submission.package else ""
    return f"make {folder} with {what}{package}"
