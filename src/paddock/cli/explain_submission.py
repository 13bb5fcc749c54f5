"""``paddock explain -b``: the dry run of a submission and its plan, or a process's environment."""

from __future__ import annotations

from typing import TYPE_CHECKING

from paddock.backends.backend import find_planner
from paddock.backends.flags import TABLE
from paddock.cli.explain import FLAGS, as_text, environment_lines, environments, imagined_hosts
from paddock.cli.submit import read_submission, read_words, show_dry_run
from paddock.command_line import Table, read_line
from paddock.core.hosts import Devices
from paddock.core.plan import make_plan
from paddock.jobfile.parse import Parsed

if TYPE_CHECKING:
    from collections.abc import Sequence


def run(argv: Sequence[str]) -> int:
    """``paddock explain -b``: the dry run and the plan, or what a process will find around it."""
    line = read_line(argv, Table("explain", (*FLAGS, *TABLE.flags)), has_script=True)
    asked = [said for said in line.said if said.flag.key == "env_of"]
    words = [word for said in line.said if said not in asked for word in said.words]
    split = read_words(argv if line.problems else [*words, "--", *line.rest])
    submission = read_submission(split)
    plan = find_planner(submission.site.backend).plan(submission)
    if "json" in split.own:
        show_dry_run(submission, plan, is_json=True)
        return 0
    job, devices = submission.job, Devices()
    found = make_plan(job, imagined_hosts(job, devices, "node0"), 0, "<run>")
    if asked:
        envs = environments(job, found, {}, devices)
        print("\n".join(environment_lines(found, envs, asked[-1].text)))
    else:
        show_dry_run(submission, plan, is_json=False)
        print("\n" + "\n".join(as_text(Parsed(job), found)))
    return 0
