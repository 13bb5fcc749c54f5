"""``paddock rerun JOB``: start a launch or a submission again, by the same command line.

It runs in the same directory, with today's environment: the earlier variables are known by name,
and those missing now are told.
"""

from __future__ import annotations

import os
import shlex
import shutil
import sys

from paddock.backends.registry import RegisteredJob
from paddock.backends.status import one_of
from paddock.backends.table import LAUNCH
from paddock.cli.family import CliCommand, Operand, ParsedCommand, named
from paddock.cli.main import COMMANDS as NAMES
from paddock.errors import UsageError
from paddock.jobfile.masked import recorded_words
from paddock.local.report.width import say
from paddock.local.runs.entry import CALL, CALL_TEXT, GIVEN_ID, take_entry

SENT_CALL = "paddock-call-"  # a directory that was sent with a package, and removed (api/submit.py)


def _run(args: ParsedCommand) -> int:
    run = one_of([args.job] if args.job else [])
    verb = "launch" if run.handle.backend == LAUNCH else "submit"
    words, missing = recorded_args(run)
    if missing:
        names = ", ".join(missing)
        say(f"warning: not set now, but in {run.run_id}: {names}")
    recorded = run.details["line"]  # without secrets
    line, cwd = shlex.join(["paddock", verb, *recorded["argv"]]), recorded["cwd"]
    try:
        os.chdir(cwd)
    except OSError as error:
        raise UsageError(
            f"{run.run_id} was started in {cwd or 'a directory that was gone'}: {error.strerror}",
            hint=f"type it where the files are now: {line}",
        ) from error
    sys.stderr.write(f"paddock: {line}\n")
    sys.stderr.flush()
    if verb == "launch":
        from paddock.cli import launch, main

        main.let_ctrl_c_end_us()
        return launch.run(_with_own_call(run, words))
    if any(word.startswith(SENT_CALL) for word in words):
        hint = "call paddock.submit() again"
        raise UsageError(f"the function of {run.run_id} is not kept here", hint=hint)
    from paddock.cli import submit

    return submit.run(words)


def _with_own_call(run: RegisteredJob, words: list[str]) -> list[str]:
    """The arguments; of a function, with a copy of its call file, and results of its own."""
    if not (run.folder / CALL).exists():
        return words
    entry = take_entry(os.environ, run.name)
    if not entry.folder:
        raise UsageError(f"a run cannot be recorded: {entry.problem}")
    shutil.copyfile(run.folder / CALL, os.path.join(entry.folder, CALL))
    os.environ |= {GIVEN_ID: entry.run_id, CALL_TEXT: run.command}
    before, now = f"{run.folder}{os.sep}", f"{entry.folder}{os.sep}"
    return [now + w[len(before) :] if w.startswith(before) else w for w in words]


def recorded_args(run: RegisteredJob) -> tuple[list[str], list[str]]:
    """The arguments that started a run, and the variables that were set then and are not now.

    Raises UsageError for a run whose arguments are not known, or not all of them.
    """
    line = dict.get(run.details, "line")
    if not line:
        hint = "it was found with --discover, or an earlier version of Paddock started it"
        raise UsageError(f"the command line of {run.run_id} is not recorded", hint=hint)
    return recorded_words(line)


COMMANDS = named(
    CliCommand(
        "rerun", NAMES["rerun"], (), _run,
        (Operand("job", "JOB", "an id or its beginning, a name, a handle, pid N or last (the "
                 "default)", "job", least=0),),
    )
)  # fmt: skip
