"""Command line and environment -> ParsedLaunch. The one entry: ``parse(argv, env, python=...)``.

No I/O here, and no module that the launch path has to pay for.
"""

from __future__ import annotations

import os

from paddock.core.job import Entrypoint, Job, ValueSource
from paddock.core.plan import find_tail_problems
from paddock.core.value import value
from paddock.errors import Problem, UsageError
from paddock.jobfile.args import LaunchArgs, is_set
from paddock.jobfile.build import build_job
from paddock.jobfile.environment import apply_environment
from paddock.jobfile.flags import LAUNCH
from paddock.jobfile.reader import FieldReader

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from paddock.command_line import FlagTable
    from paddock.jobfile.args import ArgValue

CROWD = 32  # processes on a core that are warned of: they take turns, and memory runs out


@value
class ParsedLaunch:
    """The job of a command line.

    notes: warnings to print once, without prefix. file: the value of -f, "" if absent; with it
    job.command.program may be "" (see paddlejob.resolve_file). is_help: only help is wanted;
    nothing else was read. given, env_words: the named texts behind the job, and every --env.
    """

    job: Job
    notes: tuple[str, ...] = ()
    file: str = ""
    is_help: bool = False
    given: Mapping[str, ArgValue] = {}
    env_words: tuple[str, ...] = ()


def parse(
    argv: Sequence[str], env: Mapping[str, str], *, python: str, table: FlagTable = LAUNCH
) -> ParsedLaunch:
    """Read the arguments after ``paddock launch``.

    python: the interpreter that runs scripts. table: the flags of launch, perhaps with others.
    Raises UsageError with every problem found.

    >>> job = parse(["--gpus", "2,3", "train.py", "--batch_size=64"], {}, python="py").job
    >>> job.devices, job.command.argv()
    (('2', '3'), ('py', '-u', 'train.py', '--batch_size=64'))
    """
    words = LaunchArgs(argv, table)
    if words.is_help:
        return ParsedLaunch(Job(Entrypoint("program", "")), is_help=True)
    problems, notes = words.problems, words.notes
    notes.extend(f"{name} is accepted and ignored: {why}" for name, why in words.ignored.items())
    values = words.values
    if not is_set(values, "ignore_env"):
        reading = apply_environment(values, env)
        notes.extend(reading.notes)
        problems.extend(reading.problems)
    reader = FieldReader(values)
    file = reader.text("file")
    command = Entrypoint("program", "", (), python)
    if words.script:
        command = words.command(python)
        reader.sources["command"] = ValueSource("flag", "command line", command.program)
        problems += _command_problems(words)
    elif words.is_whole and not file:
        what = f"write paddock {table.command} [flags] train.py [arguments]"
        problems.append(Problem("no script is given", what))
    job = build_job(reader, command, words.env, cpu_count=usable_cores())
    problems.extend(reader.problems)
    worker = job.role("worker")
    count = len(worker.endpoints) or (worker.count or 0) * job.nnodes_max if worker else 0
    if job.nnodes_min == job.nnodes_max and count:
        problems.extend(find_tail_problems(job, count))
    notes.extend(reader.notes)
    if problems:
        raise UsageError.of(problems)
    return ParsedLaunch(job, tuple(notes), file, given=values, env_words=tuple(words.env))


def _command_problems(words: LaunchArgs) -> list[Problem]:
    if is_set(words.values, "run_path"):
        return []
    found = []
    is_module = is_set(words.values, "module")
    if is_module and is_set(words.values, "no_python"):
        found.append(Problem("-m and --no-python exclude each other", "leave one of them out"))
    if words.script == "run_check" and not is_module:
        hint = "run paddock check --framework paddle"
        found.append(Problem("the built-in script run_check is gone", hint))
    return found


def usable_cores() -> int:
    """Cores this process may use; torchrun counts them the same way (torch._utils.cpu_count)."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def crowd_note(job: Job, cores: int) -> tuple[str, ...]:
    """A warning about so many processes to a core that the number looks like a mistake.

    >>> from paddock.core.job import Role
    >>> job = Job(Entrypoint("program", "a"), roles=(Role("worker", 500),))
    >>> crowd_note(job, 2)[0]
    '500 processes on 2 cores, 250 on each: was it meant? --nproc-per-node N says how many'
    >>> crowd_note(job, 64)
    ()
    """
    number = sum(role.count or 0 for role in job.roles)
    if number <= CROWD * cores:
        return ()
    source = job.sources.get("roles.worker.count")
    flag = source.name if source is not None and source.name else "--nproc-per-node"
    on = f"{number} processes on {cores} core{'s' * (cores != 1)}, {number // cores} on each"
    return (f"{on}: was it meant? {flag} N says how many",)
