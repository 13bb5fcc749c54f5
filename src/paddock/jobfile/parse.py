"""Command line and environment -> ParsedLaunch. The one entry: ``parse(argv, env, python=...)``.

No I/O here, and no module that the launch path has to pay for.
"""

from __future__ import annotations

import os

from paddock.command_line import TRUE_WORDS
from paddock.core.job import Entrypoint, Job, ValueSource, make_command
from paddock.core.plan import find_tail_problems
from paddock.core.value import value
from paddock.errors import Problem, UsageError
from paddock.jobfile.args import read_words
from paddock.jobfile.build import build_job
from paddock.jobfile.environment import apply_environment
from paddock.jobfile.reader import FieldReader

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from paddock.jobfile.args import ArgValue, LaunchArgs

NO_SCRIPT = "no script is given"
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


def parse(argv: Sequence[str], env: Mapping[str, str], *, python: str) -> ParsedLaunch:
    """Read the arguments after ``paddock launch``.

    python: the interpreter that runs scripts. Raises UsageError with every problem found.

    >>> job = parse(["--gpus", "2,3", "train.py", "--batch_size=64"], {}, python="py").job
    >>> job.devices, job.command.argv()
    (('2', '3'), ('py', '-u', 'train.py', '--batch_size=64'))
    """
    words = read_words(argv)
    if words.is_help:
        return ParsedLaunch(Job(Entrypoint("program", "")), is_help=True)
    problems, notes = words.problems, words.notes
    notes.extend(f"{name} is accepted and ignored: {why}" for name, why in words.ignored.items())
    values = words.values
    ignore_env = values.get("ignore_env")
    if ignore_env is None or ignore_env.text.lower() not in TRUE_WORDS:
        reading = apply_environment(values, env)
        notes.extend(reading.notes)
        problems.extend(reading.problems)
    reader = FieldReader(values)
    file = reader.text("file")
    command = _command(words, python, problems, is_needed=not file)
    if command.program:
        reader.sources["command"] = ValueSource("flag", "command line", command.program)
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


def _command(
    words: LaunchArgs, python: str, problems: list[Problem], *, is_needed: bool
) -> Entrypoint:
    script = words.script
    if not script:
        if is_needed and words.is_whole:
            problems.append(Problem(NO_SCRIPT, "write paddock launch [flags] train.py [arguments]"))
        return Entrypoint("program", "", (), python)
    is_module = _is_set(words, "module")
    if _is_set(words, "run_path"):
        return Entrypoint("script", script, words.script_args, python)
    is_program = _is_set(words, "no_python")
    if is_module and is_program:
        problems.append(Problem("-m and --no-python exclude each other", "leave one of them out"))
    if script == "run_check" and not is_module:
        problems.append(
            Problem("the built-in script run_check is gone", "run paddock check --framework paddle")
        )
    return make_command(script, words.script_args, python, is_module, is_program)


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
    '500 processes on 2 cores, 250 on each: was it meant? --nproc_per_node N says how many'
    >>> crowd_note(job, 64)
    ()
    """
    number = sum(role.count or 0 for role in job.roles)
    if number <= CROWD * cores:
        return ()
    source = job.sources.get("roles.worker.count")
    flag = source.name if source is not None and source.name else "--nproc_per_node"
    on = f"{number} processes on {cores} core{'s' * (cores != 1)}, {number // cores} on each"
    return (f"{on}: was it meant? {flag} N says how many",)


def _is_set(words: LaunchArgs, name: str) -> bool:
    given = words.values.get(name)
    return given is not None and given.text.lower() in TRUE_WORDS
