"""``paddock explain -b``: the dry run of a submission, then what every process will find."""

from __future__ import annotations

from typing import TYPE_CHECKING

from paddock.backends.backend import find_backend
from paddock.cli.explain import as_text, environments, imagined_hosts
from paddock.cli.submit import read_submission, read_words, show_dry_run
from paddock.core.hosts import Devices
from paddock.core.plan import make_plan
from paddock.jobfile.parse import Parsed

if TYPE_CHECKING:
    from collections.abc import Sequence


def run(argv: Sequence[str]) -> int:
    """``paddock explain -b``: the dry run, then what every process will find around it."""
    split = read_words(argv)
    submission = read_submission(split)
    plan = find_backend(submission.site.backend).plan(submission)
    show_dry_run(submission, plan, is_json="json" in split.own)
    if "json" in split.own:
        return 0
    job, devices = submission.job, Devices()
    found = make_plan(job, imagined_hosts(job, devices, "node0"), 0, "<run>")
    envs = environments(job, found, {}, devices)
    print("\n" + "\n".join(as_text(Parsed(job), found, envs)))
    return 0
