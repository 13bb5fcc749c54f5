"""Read a submission from the arguments of `paddock submit`, and start it as planned."""

from __future__ import annotations

import json
import math
import os
import re
import secrets
import shutil
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from paddock.backends.after import read_after
from paddock.backends.backend import EndUnknownError, NotAllReachedError, find_backend
from paddock.backends.common.planned import taken
from paddock.backends.flags import SubmitArgs, essential_problems, read_directives, split_args
from paddock.backends.registry import (
    DRAWS,
    IdTakenError,
    RegisteredJob,
    Registry,
    keep_plan,
    new_id,
)
from paddock.backends.sites.find import find_site
from paddock.backends.sites.keys import BY_NAME as SITE_KEYS
from paddock.backends.status import ask
from paddock.backends.sweeps.machine import read_retry
from paddock.backends.table import BACKENDS
from paddock.backends.types import Handle, Site, Submission, SubmissionPlan
from paddock.contracts.environment import inherited
from paddock.core.job import Job
from paddock.errors import PaddockError, Problem, UsageError
from paddock.jobfile.masked import command_text, masked_args
from paddock.jobfile.parse import parse, resolved
from paddock.jobfile.servers import uses_ps
from paddock.local.report.width import say
from paddock.local.runs.entry import as_name

NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,50}[a-z0-9])?")
STOP_MARGIN_SECONDS = 30.0  # for the launchers' own goodbyes, after the ranks' grace


def start(
    split: SubmitArgs, submission: Submission, plan: SubmissionPlan
) -> tuple[RegisteredJob, int | None]:
    """Carry out a plan; returns the job's entry, and its exit code where it was attached to."""
    for _ in range(DRAWS):
        try:
            return start_run(split, submission, plan, say)
        except IdTakenError:
            submission, plan = with_new_id(submission)
    return start_run(split, submission, plan, say)


def with_new_id(submission: Submission) -> tuple[Submission, SubmissionPlan]:
    """The same submission with another id, and its plan."""
    submission = replace(submission, run_id=new_id(submission.name))
    return submission, find_backend(submission.site.backend).plan(submission)


def retries_of(split: SubmitArgs) -> int:
    """How often a lost run is started again. Raises UsageError."""
    if "retry" not in split.own:
        return 0
    if "detach" in split.own:
        hint = "leave --detach out"
        raise UsageError("--retry needs this command to stay with the run", hint=hint)
    return read_retry(split.own["retry"])


def start_run(
    split: SubmitArgs, submission: Submission, plan: SubmissionPlan, say: Callable[[str], None]
) -> tuple[RegisteredJob, int | None]:
    """As start, under this id alone. Raises IdTakenError when all was undone and another may do."""
    backend = find_backend(submission.site.backend)
    registry = Registry(os.environ)
    with registry.only_one(submission.name):
        replaced = _refuse_name_in_use(registry, submission, "replace" in split.own)
        handle = Handle(submission.site.backend, submission.site.name, submission.run_id)
        words = [submission.job.command.program, *submission.job.command.args]
        command = command_text(masked_args(words, len(words)))
        entry = registry.add(submission.name, handle, command, len(plan.rows))
        argv = masked_args(split.words, len(split.script))
        line = {"cwd": os.getcwd(), "argv": argv, "env": sorted(os.environ)}
        entry.keep(
            line=line, grace_seconds=submission.job.grace_seconds, package=submission.package
        )
    try:
        keep_plan(entry, plan)
        for old in replaced:
            _stop_and_wait(old)
        return entry, backend.submit(submission, plan, entry, say)
    except EndUnknownError as error:
        raise PaddockError(error.message, hint=f"paddock status {entry.run_id}") from error
    except PaddockError as error:
        if left := entry.details.get("may_run"):
            raise PaddockError(
                f"{error.message}; what was started on {', '.join(left)} may still run",
                hint=f"paddock stop {entry.run_id}",
            ) from error
        entry.forget()
        raise
    except BaseException:
        if entry.details.get("may_run") == []:  # a Ctrl-C: all was undone
            entry.forget()
        raise


def read_args(argv: Sequence[str]) -> SubmitArgs:
    """Split the arguments; with a conf.py, those of the old cluster tool are translated."""
    split = split_args(argv)
    argv = [*_directives(split), *argv]  # the command line wins
    split = split_args(argv)
    place, conf = split.own.get("site", ""), split.own.get("conf", "")
    if not (conf or place.partition(",")[0]).endswith(".py") or split.is_help:
        return split
    from paddock.backends.sites.legacy.fabric import translate

    site = find_site(place, env=os.environ, cwd=os.getcwd(), conf=conf)
    found = translate(argv, site)
    for note in found.notes:
        say(note)
    return split_args(found.words)


def site_of(split: SubmitArgs) -> Site:
    """The site that these arguments name, with the options they give it. Raises UsageError."""
    said = {name: text for name, text in split.own.items() if name in SITE_KEYS}
    place, conf = split.own.get("site", ""), split.own.get("conf", "")
    return find_site(place, env=os.environ, cwd=os.getcwd(), said=said, conf=conf)


def _directives(split: SubmitArgs) -> list[str]:
    """The arguments in #PADDOCK lines of the script, if it can be read."""
    if not split.script:
        return []
    try:
        text = Path(split.own.get("package", ""), split.script[0]).read_text("utf-8")
    except (OSError, ValueError):  # a program, or it is on the hosts only
        return []
    return [word for directive in read_directives(text) for word in directive.words]


def read_submission(split: SubmitArgs) -> Submission:
    """The submission of these arguments. Raises UsageError with all problems."""
    own, problems = split.own, list(split.problems)
    try:
        site = site_of(split)
        problems += essential_problems(site.backend, own)
    except UsageError as error:
        problems += error.problems
        site = Site("", "ssh")
    split.env, lacks = taken(split.env, os.environ)
    for each in lacks:
        hint = f"set it, or write --env {each}=VALUE"
        problems.append(Problem(f"--env {each}: it is not set here", hint))
    nnodes = own.get("np_nodes") or split.nnodes or str(max(1, len(site.texts("hosts"))))
    job, file = None, ""
    if not split.script and not split.file:
        hint = "write paddock submit [flags] train.py [arguments]"
        raise UsageError.of([*problems, Problem("no script is given", hint)])
    try:
        job, file = _read_job(split, nnodes, site.text("interpreter") or "python3")
    except UsageError as error:
        problems += error.problems
    script = os.path.basename(job.command.program) if job is not None else ""
    name = own.get("name") or site.text("job_name") or as_name(script.removesuffix(".py"))
    if not NAME.fullmatch(name):
        hint = "lower-case letters, digits and '-', at most 52, as Kubernetes takes them"
        problems.append(Problem(f"--name '{name}' is not a name", hint))
    if "package" in own and "workspace" in own:
        problems.append(Problem("--package and --workspace exclude each other", "leave one out"))
    if "package" in own and not os.path.isdir(own["package"]):
        problems.append(Problem(f"--package {own['package']}: there is no such directory"))
    elif job and BACKENDS[site.backend].sees_package and not site.text("workspace"):
        problems += _script_problems(job, os.path.abspath(own.get("package", ".")))
    problems += _host_problems(split, own.get("package", "."))
    if "at_once" in own:
        problems.append(Problem("--at-once is for a sweep", "write --sweep lr=1e-3,1e-4, too"))
    try:
        retries_of(split)
        if "after" in own:
            for_slurm, split.waits = read_after(own["after"], site.backend)
            own = {**own, "after": for_slurm}
    except UsageError as error:
        problems += error.problems
    if problems or job is None:
        raise UsageError.of(problems)
    # What the launchers hand on as it is goes to them as a variable: no file and no `ps` has it.
    table = site.options.get("env", {})
    assert isinstance(table, dict)
    pairs = [*table.items(), *(text.partition("=")[::2] for text in split.env)]
    kept = inherited(dict(pairs))
    flags = [w for name, text in pairs if name not in kept for w in ("--env", f"{name}={text}")]
    is_detached = "detach" in own or "watch" in own
    return Submission(
        run_id=new_id(name),
        name=name,
        site=site,
        job=job,
        flags=(*split.flags, *flags),
        file=file,
        package="" if site.text("workspace") else os.path.abspath(own.get("package", ".")),
        workspace=site.text("workspace"),
        data=own.get("data", ""),
        is_detached=is_detached,
        takes_name="name" in own,
        has_ps=uses_ps(job, own.get("package", "")),
        env=tuple(kept.items()),
        token=secrets.token_hex(16),
        extra={**own, "n": own.get("np_nodes") or split.nnodes},
    )


def _host_problems(split: SubmitArgs, package: str) -> list[Problem]:
    """The problem of `--hosts h1 h2 train.py`: it names one host, and a program that is a host."""
    hosts, (word, *rest) = split.own.get("hosts", ""), split.script or ("",)
    is_known = not word or "/" in word or os.path.exists(os.path.join(package, word))
    if not hosts or is_known or word.endswith(".py") or shutil.which(word):
        return []
    shapes = [re.sub(r"\d+", "0", each.strip()) for each in hosts.split(",")]
    is_host = "@" in word or re.sub(r"\d+", "0", word) in shapes
    if not is_host and rest:
        try:
            is_host = bool(socket.getaddrinfo(word, None))
        except (OSError, UnicodeError):
            is_host = False
    if not is_host:
        return []
    hint = f"hosts are separated by commas: --hosts {hosts.rstrip(',')},{word}; or write ./{word}"
    return [Problem(f"'{word}' looks like a host, and stands where the script should", hint)]


def _script_problems(job: Job, package: str) -> list[Problem]:
    """The problem of a script that the package lacks, found here and not on the hosts."""
    program = job.command.program
    is_path = job.command.kind == "script" or "/" in program
    if job.command.kind == "module" or not program or not is_path or os.path.isabs(program):
        return []
    if os.path.exists(os.path.join(package, program)):
        return []
    if os.path.exists(program):
        hint = f"write it as seen from there: {os.path.relpath(program, package)}"
    else:
        hint = "the package is the current directory, or --package DIR"
    return [Problem(f"script '{program}' is not in the package {package}", hint)]


def _read_job(split: SubmitArgs, nnodes: str, python: str) -> tuple[Job, str]:
    """The job that the launchers will get, and its file as JSON; "" without one."""
    words = ["--ignore-env", "--nnodes", nnodes, *split.flags]
    words += [word for text in split.env for word in ("--env", text)]
    if split.file:
        words += ["-f", split.file]
    if split.script or "from" in split.own:  # which runs what is in that directory
        words += ["--", *(split.script or ("job.sh",))]
    parsed = resolved(parse(words, {}, python=python))
    if not split.file:
        return parsed.job, ""
    from paddock.jobfile.document import load_document

    return parsed.job, json.dumps(load_document(split.file))


def _refuse_name_in_use(
    registry: Registry, submission: Submission, replaces: bool
) -> list[RegisteredJob]:
    """The runs of this name that may still run. Raises UsageError without --replace."""
    if not submission.takes_name:
        return []
    found = []
    for run in registry.runs():
        is_other = run.name != submission.name or run.handle.backend != submission.site.backend
        if is_other or run.has_ended or (status := ask(run)).is_final:
            continue
        found.append(run)
        if not replaces:
            why = f" ({status.why})" if status.state == "unknown" else ""
            raise UsageError(
                f"the name '{run.name}' is in use: {run.handle} is {status.state}{why}",
                hint=f"paddock stop {run.run_id}, or --replace, or another --name",
            )
    return found


def _stop_and_wait(run: RegisteredJob) -> None:
    """Stop the job whose name is taken over; asks twice, as a request may be lost."""
    backend = find_backend(run.handle.backend)
    say(f"stopping {run.handle}, which had the name")
    grace = float(run.details.get("grace_seconds", math.inf))
    for until in (time.monotonic() + grace + STOP_MARGIN_SECONDS, math.inf):
        try:
            backend.stop(run, now=False)
        except NotAllReachedError as error:
            say(f"warning: {error.message}")
        while time.monotonic() <= until:
            status = backend.status(run)
            run.note(status)
            if status.is_final:
                return
            if status.state == "unknown":
                hint = f"another --name, or paddock delete --entry-only {run.run_id}"
                raise UsageError(f"{run.handle} may still run: {status.why}", hint=hint)
            # sleep: a batch system does not report the end of a job
            time.sleep(0.5)
        say(f"{run.handle} has not ended within its grace of {grace:g} s: asking again")
