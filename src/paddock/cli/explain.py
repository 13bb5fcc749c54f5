"""``paddock explain``: the plan, where each value came from, and the environment of a process.

Starts nothing and reserves nothing: ports that are not fixed show as "free", other nodes are taken
to look like this one.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from paddock.backends.flags import TABLE as SUBMIT
from paddock.backends.flags import split_words
from paddock.cli.launch import resolved
from paddock.cli.plan_text import show_plan
from paddock.command_line import FlagTable, flag, read_line
from paddock.errors import HelpAsked
from paddock.jobfile.args import is_set
from paddock.jobfile.flags import FLAGS as LAUNCH
from paddock.jobfile.parse import ParsedLaunch, crowd_note, parse, usable_cores

KUBERNETES = flag("kubernetes", "", "the objects that the operator makes of a PaddleJob, as YAML")
FLAGS = (
    flag("env-of", "RANK|all", "what a process finds around it: 3, server:0, heter:1 or all"),
    flag("json", "", "one JSON value, with all of it"),
    KUBERNETES,
)
TABLE = FlagTable("explain", (*FLAGS, *LAUNCH))
OF_SUBMIT = frozenset(("site", "hosts", "hostfile", "conf"))  # -b, --hosts and the like


def run(argv: Sequence[str]) -> int:
    """Print the plan of ``paddock launch`` with the same arguments."""
    words = list(argv)
    if (for_kubernetes := words_for_kubernetes(words)) is not None:
        from paddock.cli.explain_kubernetes import COMMAND, COMMANDS
        from paddock.cli.family import carry_out

        return carry_out(COMMAND, COMMANDS, for_kubernetes)
    if not OF_SUBMIT.isdisjoint(split_words(words).own):
        return _run_submission(words)
    parsed = parse(words, os.environ, python=sys.executable, table=TABLE)
    if parsed.is_help:
        raise HelpAsked("explain", words)
    parsed = resolved(parsed)
    env_of = parsed.given.get("env-of")
    is_json = is_set(parsed.given, "json")
    show_plan(parsed, is_json=is_json, env_of=env_of.text if env_of is not None else "")
    return 0


def _run_submission(argv: Sequence[str]) -> int:
    """``paddock explain -b``: the dry run of a submission and its plan, or a rank's environment."""
    from paddock.backends.backend import find_planner
    from paddock.cli.submit import read_submission, read_words, show_dry_run

    line = read_line(argv, FlagTable("explain", (*FLAGS, *SUBMIT.flags)), has_script=True)
    asked = [said for said in line.said if said.flag.key == "env_of"]
    words = [word for said in line.said if said not in asked for word in said.words]
    submission = read_submission(read_words(argv if line.problems else [*words, "--", *line.rest]))
    is_json = "json" in submission.extra
    if is_json or not asked:
        plan = find_planner(submission.site.backend).plan(submission)
        show_dry_run(submission, plan, is_json=is_json)
    if not is_json:
        print("" if asked else "\n", end="")
        parsed = ParsedLaunch(submission.job, crowd_note(submission.job, usable_cores()))
        show_plan(parsed, env_of=asked[-1].text if asked else "", is_here=False)
    return 0


def words_for_kubernetes(words: Sequence[str]) -> list[str] | None:
    """The arguments of ``explain --kubernetes`` without it; None for a plan on machines.

    Earlier spellings: -b kubernetes, --backend kubernetes; --backend is Paddle's for gloo or nccl.

    >>> words_for_kubernetes(["--json", "--kubernetes", "job.yaml"])
    ['--json', 'job.yaml']
    """
    ahead = words[:1] if words[:1] == ["--json"] else []
    first, *left = words[len(ahead) :] or [""]
    name, equals, value = first.partition("=")
    if name in ("-b", "--backend") and (equals or left):
        value = value if equals else left.pop(0)
        is_file = any(word.endswith((".yaml", ".yml", ".json")) for word in left)
        first = "--kubernetes" if value in ("kubernetes", "k8s") and is_file else first
    return [*ahead, *left] if first == "--kubernetes" else None
