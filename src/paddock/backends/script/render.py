"""Submission -> the files of its directory, and the site's commands. Pure.

job.sh           what the site's command submits
before_hook.sh   runs before the launcher, its failure ends the job
end_hook.sh      runs after it; $1 is the exit code
config.ini       variables, one NAME=value a line, read by job.sh
submit.sh        the command that submits it
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping

from paddock.backends.common.planned import NAME, bad_names, job_text, making, rows_of
from paddock.backends.flags import foreign
from paddock.backends.node.jobdir import INNER
from paddock.backends.script.parse import PLACE, pattern_problems
from paddock.backends.types import PlanStep, Site, Submission, SubmissionPlan
from paddock.command_line import nearest
from paddock.errors import Problem, refuse

COMMANDS = ("submit", "status", "logs", "stop", "stop_now")
# TARGET: the words that start node.sh on every node. What it leaves is read by status.
JOB = """\
#!/bin/sh
cd FOLDER || exit 2
set -a
. ./config.ini
set +a
sh ./before_hook.sh || exit
TARGET
code=$?
printf '{"state": "ended", "code": %s, "at": %s}\\n' "$code" "$(date +%s)" >INNER/state.new
mv INNER/state.new INNER/state.json
sh ./end_hook.sh "$code"
exit "$code"
"""
NODE = """\
#!/bin/sh
cd FOLDER || exit 2
set -a
. ./config.ini
[ ! -e INNER/env ] || . INNER/env
set +a
cd PLACE || exit 2
exec LAUNCHER
"""
REASONS = {
    "sh ./before_hook.sh || exit": "before_hook of the site, or yours",
    'sh ./end_hook.sh "$code"': "end_hook of the site, or yours",
    ". ./config.ini": "config of the site, or what you write there",
}


def plan_of(submission: Submission, folder: str, texts: Mapping[str, str]) -> SubmissionPlan:
    """Return the plan of a submission. Raises UsageError with every problem.

    texts: of the files that the site names: before_hook, end_hook, job_script.
    """
    site = submission.site
    problems = bad_names(submission)
    values = values_of(submission, folder)
    commands = {name: site.text(name) for name in COMMANDS if site.text(name)}
    for name, text in commands.items():
        fill(text, {**values, "id": "0"} if name != "submit" else values, name, problems)
    problems += pattern_problems(site.text("job_id"), site.table("states"))
    config = config_text(site, problems)
    runs = fill(site.text("run"), values, "run", problems)
    if submission.job.nnodes_max > 1 and not runs:
        hint = 'write how it is started on each: run = "mpirun -n {nnodes} --map-by ppr:1:node"'
        told = f"-n {submission.job.nnodes_max}: the site does not say what runs on each node"
        problems.append(Problem(told, hint))
    refuse(problems)
    submit = fill(commands["submit"], values, "submit", [])
    target = {
        "FOLDER": shlex.quote(folder),
        "INNER": INNER,
        "TARGET": f"{runs} sh {shlex.quote(f'{folder}/node.sh')}".strip(),
        "PLACE": shlex.quote(submission.workspace or folder),
        "LAUNCHER": _launcher(submission, folder),
    }

    def put(text: str) -> str:
        return re.sub("|".join(target), lambda found: target[found[0]], text)

    files = {
        f"{folder}/job.sh": put(texts.get("job_script") or JOB),
        f"{folder}/node.sh": put(NODE),
        f"{folder}/before_hook.sh": texts.get("before_hook") or "#!/bin/sh\n",
        f"{folder}/end_hook.sh": texts.get("end_hook") or "#!/bin/sh\n",
        f"{folder}/config.ini": config,
        f"{folder}/submit.sh": f"#!/bin/sh\ncd {shlex.quote(folder)} || exit\n{submit}\n",
        f"{folder}/{INNER}/job.json": _job_text(submission, commands, values),
    }
    if submission.file:
        files[f"{folder}/{INNER}/launch.json"] = submission.file
    what = making(submission, folder, "the launcher, a key for this job")
    what += "".join(f", {name}" for name in site.texts("files"))
    steps = [PlanStep("here", what)]
    if submission.env:
        told = " ".join(name for name, _ in submission.env)
        steps.append(PlanStep("here", f"write {INNER}/env, for you alone, with {told}"))
    steps.append(PlanStep("here", "submit", ("sh", f"{folder}/submit.sh")))
    why = REASONS | {
        submit: site.sources.get("submit", "submit of the site"),
        target["TARGET"]: site.sources.get("run", "on the node that runs job.sh"),
        f"exec {target['LAUNCHER']}".splitlines()[-1]: "the launcher with your words",
    }
    rows = rows_of(submission, ["chosen by the site"] * submission.job.nnodes_max, "found there")
    source = site.sources.get("config", "config of the site")
    why |= dict.fromkeys(config.splitlines(), source)
    return SubmissionPlan(rows, tuple(steps), files, foreign("script", submission.extra), why)


def again(folder: str, row: Mapping[str, object]) -> SubmissionPlan:
    """Return the plan of `--from DIR`: the directory is submitted once more, as it is.

    row: its job.json.
    """
    nnodes = int(str(row.get("nnodes") or 1))
    rows = tuple((str(index), "chosen by the site", "as rendered", "") for index in range(nnodes))
    return SubmissionPlan(
        rows, (PlanStep("here", "submit once more", ("sh", f"{folder}/submit.sh")),)
    )


def values_of(submission: Submission, folder: str) -> dict[str, str]:
    """Return the values that commands may name in braces; the command line wins over the site."""
    site = submission.site
    found = {name: str(value) for name, value in site.table("params").items()}
    for name in ("queue", "account", "time"):
        found[name] = submission.option(name)
    return found | {
        "name": submission.name,
        "run_id": submission.run_id,
        "dir": folder,
        "nnodes": str(submission.job.nnodes_max),
    }


def fill(text: str, values: Mapping[str, str], where: str, problems: list[Problem]) -> str:
    """Fill a command with its values, each quoted as a shell word. {{x}} is {x}, ${x} the shell's.

    >>> fill("qdel {id} ${HOME} {{print}}", {"id": "1; rm"}, "stop", [])
    "qdel '1; rm' ${HOME} {print}"
    """

    def put(found: re.Match[str]) -> str:
        if found[1]:
            return f"{{{found[1]}}}"
        if found[2] not in values:
            hint = f"{nearest(found[2], values)}; braces for the shell are written twice"
            problems.append(Problem(f"{where}: there is no value '{{{found[2]}}}'", hint))
            return ""
        return shlex.quote(values[found[2]])

    return PLACE.sub(put, text)


def config_text(site: Site, problems: list[Problem]) -> str:
    """Return the lines of config.ini: variables that the site sets for every job."""
    lines = []
    for name, value in site.table("config").items():
        if not NAME.fullmatch(name):
            problems.append(Problem(f"config: '{name}' is not a name of a variable"))
        lines.append(f"{name}={shlex.quote(str(value))}")
    return "".join(f"{line}\n" for line in lines)


def _launcher(submission: Submission, folder: str) -> str:
    words = [submission.site.text("interpreter") or "python3"]
    words += [f"{folder}/{INNER}/program/__main__.py", "launch"]
    words += ["--nnodes", str(submission.job.nnodes_max), "--job_id", submission.run_id]
    words += ["--log_dir", f"{folder}/log/{{node}}", "--record", f"{folder}/{INNER}"]
    words += ["--token_file", f"{folder}/{INNER}/token", *submission.flags]
    if submission.file:
        words += ["-f", f"{folder}/{INNER}/launch.json"]
    else:
        words += submission.script
    return shlex.join(words)


def _job_text(
    submission: Submission, commands: Mapping[str, str], values: Mapping[str, str]
) -> str:
    site = submission.site
    row = {
        "name": site.name,
        "commands": dict(commands),
        "values": dict(values),
        "job_id": site.text("job_id"),
        "states": site.table("states"),
        "credentials": list(site.texts("credentials")),
    }
    return job_text(submission, site=row)
