"""``paddock launch``: read the command line, check it on this machine, run the job.

The launch path. It imports nothing it does not need before the ranks run; tests/cli compares the
loaded modules with a list.
"""

from __future__ import annotations

import os
import sys

from paddock.command_line import nearest
from paddock.errors import (
    EXIT_NOT_EXECUTABLE,
    EXIT_NOT_FOUND,
    EXIT_OWN_FAULT,
    HelpAsked,
    PaddockError,
    Problem,
    UsageError,
    problem_text,
)
from paddock.jobfile.flags import LAUNCH
from paddock.jobfile.parse import parse, resolved, usable_cores
from paddock.local.runs.entry import profiles_path

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from paddock.command_line import FlagTable
    from paddock.core.job import Job
    from paddock.jobfile.parse import ParsedLaunch
    from paddock.local.warm.process import DaemonLoop


def run(argv: Sequence[str]) -> int:
    """Launch a job; returns the exit code."""
    open_standard_files()
    try:
        return _run(argv)
    except PaddockError as error:  # before there is a launcher
        from paddock.jobfile.args import record_of
        from paddock.local.runs.record import drop_error, keep_error, keep_problems

        if record := record_of(argv):
            drop_error(record)
        keep_error(record, error.message)
        if isinstance(error, UsageError):
            keep_problems(error.problems)
        raise


def _run(argv: Sequence[str]) -> int:
    parsed = read(argv)
    if parsed.is_help:
        raise HelpAsked("launch", argv)
    job = parsed.job
    if "dry_run" in parsed.values:
        from paddock.cli.explain import show_plan

        show_plan(parsed)
        return 0
    if not has_pidfd():
        from paddock.local.portable import run_portable

        sys.stderr.writelines(f"paddock: warning: {note}\n" for note in parsed.notes)
        return run_portable(job, os.environ, usable_cores())
    if job.record:
        from paddock.local.runs.record import drop_error

        # Launchers of several nodes may share it, and all start within this time.
        drop_error(job.record, job.rendezvous.join_timeout_seconds if job.nnodes_max > 1 else 0.0)
    if job.warm == "keep":
        from paddock.local.warm.keep import launch_there

        code = launch_there(argv, job, os.environ)
        if code is not None:
            return code
    return start(parsed, argv)


def start(parsed: ParsedLaunch, argv: Sequence[str]) -> int:
    """Start the job's guardian and launcher; this process exits with the job's code."""
    job = parsed.job
    import paddock.agent.launcher  # noqa: F401  # here, since what is loaded after a fork costs more
    from paddock.local.guardian import split
    from paddock.local.spawn import allow_files

    allow_files(1, 0)  # below that not even what is wrong could be said
    guardian_pid = split(job.lease_seconds, job.record)
    # From here on this is the launcher, the guardian's child: it must not return to the caller,
    # and whatever it fails to end, the guardian ends.
    code = EXIT_OWN_FAULT
    try:
        code = run_here(parsed, argv, guardian_pid)
    finally:
        os._exit(code & 255)


def read(argv: Sequence[str], table: FlagTable = LAUNCH) -> ParsedLaunch:
    """The job that this command line and the files it names describe, if it can be started here.

    table: the flags of launch, under the name of another command.

    Raises PaddockError with every problem found.
    """
    try:
        parsed = parse(argv, os.environ, python=sys.executable, table=table)
    except UsageError as error:
        from paddock.jobfile.args import LaunchArgs

        script = LaunchArgs(argv).script
        problem = _script_problem(script) if script.endswith(".py") else None
        problems = [_of_submit(each) for each in error.problems]
        raise UsageError.of([*problems, *([problem] if problem else [])]) from error
    if not parsed.is_help:
        parsed = resolved(parsed)
        check_machine(parsed.job, is_dry_run="dry_run" in parsed.values)
        if os.path.exists(path := profiles_path(os.environ)):
            from paddock.watch.progress import load_profiles

            load_profiles(path)  # what is wrong there is told now
    return parsed


def _of_submit(problem: Problem) -> Problem:
    """The problem, with another hint where the unknown flag is one of `paddock submit`."""
    from paddock.backends.flags import FLAGS

    name = problem.message.removeprefix("unknown flag ")
    if name == problem.message or all(name not in one.names for one in FLAGS):
        return problem
    return Problem(problem.message, f"paddock submit -b local {name} ... does it on this machine")


def run_here(
    parsed: ParsedLaunch, argv: Sequence[str], guardian_pid: int, kept: DaemonLoop | None = None
) -> int:
    """Run the job in this process, the launcher; returns an exit code after any error, too."""
    from paddock.local.output.console import last_words

    try:
        from paddock.agent.launcher import run_job

        return run_job(
            parsed.job,
            os.environ,
            cores=usable_cores(),
            guardian_pid=guardian_pid,
            notes=parsed.notes,
            words=argv,
            kept=kept,
        )
    except PaddockError as error:
        from paddock.local.report.reporter import fit_terminal

        last_words(fit_terminal(problem_text(error)), parsed.job.record, error.message)
        return error.exit_code
    except BaseException:  # noqa: BLE001  # a bug of ours: it is shown, and the exit code is 125
        import traceback

        why = "a fault of Paddock; please report it"
        text = f"paddock: error: {why}\n{traceback.format_exc()}"
        last_words(text, parsed.job.record, why)
        return EXIT_OWN_FAULT


def has_pidfd() -> bool:
    """Return True where this kernel wakes us when a process ends (Linux 5.3)."""
    try:
        os.close(os.pidfd_open(os.getpid()))
    except (OSError, AttributeError):
        return False
    return hasattr(os, "posix_spawn")


def open_standard_files() -> None:
    """Descriptors 0 to 2 must be taken, or a pipe of ours would become a rank's stdin."""
    while True:
        fd = os.open(os.devnull, os.O_RDWR)
        if fd > 2:
            os.close(fd)
            break
        os.set_inheritable(fd, True)
    sys.stdout = sys.stdout or os.fdopen(1, "w", encoding="utf-8")  # None when it was closed
    sys.stderr = sys.stderr or os.fdopen(2, "w", encoding="utf-8")


def check_machine(job: Job, *, is_dry_run: bool = False) -> None:
    """Check the job on this machine before the start; a dry run makes no directory.

    Raises with every problem found.
    """
    commands = dict.fromkeys((job.command, job.command_of("ps")))
    scripts = [_script_problem(c.program) for c in commands if c.kind == "script"]
    from paddock.local.output.logs import check_log_dir, has_own_folder

    found = (*scripts, _host_problem(job))
    problems = [problem for problem in found if problem is not None]
    # Only where nothing else is wrong: it makes --log-dir. The default directory has a spare.
    if not (problems or is_dry_run or has_own_folder(job)):
        log_problem = check_log_dir(job.logs.directory)
        problems += [log_problem] if log_problem is not None else []
    if problems:
        raise UsageError.of(problems)
    for command in commands:
        if command.kind == "program":
            _check_program(command.program)


def _host_problem(job: Job) -> Problem | None:
    """The problem of a --host without address. None in a pod: its name may be published later."""
    host = job.rendezvous.own_host
    if not host or "KUBERNETES_SERVICE_HOST" in os.environ:
        return None
    # The C module: `import socket` builds enums for 4 ms on a path where ranks wait.
    from _socket import AF_INET, AF_INET6, getaddrinfo, inet_pton

    try:
        inet_pton(AF_INET6 if ":" in host else AF_INET, host)
        return None
    except OSError:
        pass  # a name, or a number with a scope such as fe80::1%eth0
    try:
        getaddrinfo(host, None)
    except (OSError, UnicodeError) as error:
        source = job.sources.get("rendezvous.own_host")
        name = source.name if source is not None and source.name else "--host"
        why = getattr(error, "strerror", None) or error
        hint = "give the address by which the other nodes reach this one"
        return Problem(f"{name} {host}: {why}", hint)
    return None


def _script_problem(script: str) -> Problem | None:
    if not os.path.exists(script):
        hint = "check the path; flags of paddock go before the script"
        return Problem(f"script '{script}' does not exist (in {_here()})", _near(script, hint))
    if os.path.isdir(script):
        return Problem(f"script '{script}' is a directory", "name a file in it")
    if not os.access(script, os.R_OK):
        return Problem(f"script '{script}' is not readable", f"chmod +r {script}")
    return None


def _near(script: str, otherwise: str) -> str:
    """A hint: a script of nearly that name in the same directory."""
    folder, name = os.path.split(script)
    try:
        beside = [each[:-3] for each in os.listdir(folder or ".") if each.endswith(".py")]
    except OSError:
        return otherwise
    found = nearest(name.removesuffix(".py"), beside, otherwise)
    return found if found == otherwise else f"{found[:-2]}.py'?"


def _here() -> str:
    try:
        return os.getcwd()
    except FileNotFoundError:
        return "a directory that is gone"


def _check_program(program: str) -> None:
    if os.sep in program:
        places = [program]
    else:
        path = os.environ.get("PATH", os.defpath)
        places = [os.path.join(d or ".", program) for d in path.split(os.pathsep)]
    files = [p for p in places if os.path.isfile(p)]
    code = EXIT_NOT_EXECUTABLE
    if os.path.isdir(program):
        what, hint = f"'{program}' is a directory", "name a file in it"
    elif files and any(os.access(p, os.X_OK) for p in files):
        return
    elif files:
        what, hint = f"'{files[0]}' is not executable", f"chmod +x {files[0]}"
    elif os.sep in program:
        what, hint = f"'{program}' does not exist (in {_here()})", "check the path"
        code = EXIT_NOT_FOUND
    elif os.path.exists(program):
        what = f"'{program}' is not on PATH"
        hint = f"a file of that name is here: write ./{program}"
    else:
        what = f"'{program}' is not on PATH"
        hint = "Python scripts end in .py; other programs need a path or a place on PATH"
        code = EXIT_NOT_FOUND
    raise PaddockError(f"program {what}", hint=hint, exit_code=code)
