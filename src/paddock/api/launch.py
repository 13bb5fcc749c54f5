"""paddock.launch: start a job on this machine, from a script, a module, a command or a function."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from contextlib import suppress
from errno import EDQUOT, ENOSPC

from paddock.api.check import wrong_keywords, wrong_target
from paddock.api.results import RESULTS
from paddock.api.run import Run, running_in
from paddock.errors import Problem, UsageError, refuse
from paddock.local.output.lock import process_text
from paddock.local.runs.entry import (
    CALL,
    CALL_TEXT,
    CALLER,
    CALLER_FD,
    GIVEN_ID,
    as_name,
    registry_folder,
    take_entry,
)
from paddock.local.runs.record import TERMINATION_LOG

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import IO, TypeVar

    T = TypeVar("T")
    Target = str | os.PathLike[str] | Sequence[str] | Callable[..., object]

MODULE = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")  # package.module:function
STATE_HINT = "make room there, or set XDG_STATE_HOME to a directory of yours"
NOT_ELASTIC = Problem(
    "elastic: paddock.launch runs a function on this machine only, and other nodes have not got it",
    "paddock.submit(function, elastic=(1, 2)) sends it to all nodes of a site",
)
NO_JOB = ("--", "-h", "--help", "--help-all", "--dry-run")  # flags that start none
SHOWN = "__paddock_call__"  # of a target: what `paddock list` shows in place of its call
REASON = "reason"  # the file in which the launcher says why it could not start
# The launcher is this Paddock, whatever a file in the working directory is called.
CODE = "import sys; sys.path[0] = {!r}; from paddock.cli.main import main; main()"


class Label(str):
    """The name that a tool gives its jobs: any number of jobs may have it at one time.

    A name that a person gives to paddock.submit is a claim: no other job has it meanwhile.
    """

    __slots__ = ()


def launch(
    target: Target,
    *args: object,
    nproc: int | str | None = None,
    devices: str | Sequence[int | str] | None = None,
    elastic: tuple[int, int] | None = None,
    max_restarts: int | None = None,
    env: Mapping[str, str] | None = None,
    timeout: float | None = None,
    warm: bool | str | None = None,
    name: str | None = None,
    run_id: str = "",
    flags: Sequence[str] = (),
    quiet: bool = False,
    result_bytes_max: int | None = None,
    **kwargs: object,
) -> Run:
    """Start a job on this machine; returns at once. `paddock list` shows it as any other run.

    target: a function, "package.module:function", the path of a script, or the words of a command.
    A function runs in every rank with `args` and `kwargs`, after the environment of its framework
    is set: MASTER_ADDR, RANK and so on. Other targets take `args` as their arguments.

    nproc: processes; one for each device by default. devices: such as "0,1" or [0, 1]. elastic:
    minimum and maximum of nodes. max_restarts: after failures, 0 by default. env: variables for
    the ranks. timeout: of the job, in seconds; then its exit code is 124. warm: True imports the
    framework once and forks the ranks; "keep" also for the next launch. name: of the run. run_id:
    its id, for tools that choose it; by default its name and four digits. flags: more flags of
    `paddock launch`. quiet: show no output; the logs have it. result_bytes_max: of the result of
    each rank, in bytes; 256 MiB by default.

    The output of rank 0 is shown in this notebook's cell or on this terminal. The job ends with
    this process, and with `with paddock.launch(...) as run:`. No live process is forked.

    Raises UsageError with all problems: of the arguments, and a function that cannot be pickled.
    What fails later is raised by wait(), results() and result: RankFailedError, RunFailedError.

    >>> import paddock
    >>> paddock.launch(pow, 2, 10, nproc=2, quiet=True).results()
    [1024, 1024]
    """
    refuse_in_rank("launch")
    cell = _cell()
    if run := running_in(cell):
        hint = f"wait for it, or end it: paddock.Run.find('{run.id}').stop()"
        raise UsageError(f"{run.id}, which this cell has launched before, still runs", hint=hint)
    if isinstance(target, os.PathLike):
        target = os.fspath(target)
    flags = flags or ()  # None, as other keywords
    problems = check_all(
        launch, target, args, kwargs, env=env, name=name, run_id=run_id, flags=flags,
        result_bytes_max=result_bytes_max,
    )  # fmt: skip
    words = [*launch_flags(nproc, devices, elastic, max_restarts, timeout, warm, problems)]
    if elastic and is_function(target):
        problems.append(NOT_ELASTIC)
    refuse(problems)
    refuse([Problem(f"flags: {flag} starts no job") for flag in NO_JOB if flag in flags])
    target = loaded(target)
    content = b""
    if callable(target):
        from paddock.api import function

        path = function.own_path()
        content = function.pack(
            target, args, kwargs, path=path, roots=path, result_bytes_max=result_bytes_max
        )
    entry = take_entry(os.environ, as_name(name or name_of_target(target)), run_id)
    if not entry.folder:
        if run_id and os.path.exists(os.path.join(registry_folder(os.environ), run_id)):
            raise UsageError(f"run_id='{run_id}': another run has it", hint="leave run_id out")
        raise UsageError(f"a run cannot be recorded: {entry.problem}", hint=STATE_HINT)
    words = [*_env_flags(env or {}), *words, *flags]
    child_env = {**os.environ, **(env or {}), GIVEN_ID: entry.run_id}
    child_env[CALL_TEXT] = call_text(target, args, kwargs)
    if not any(word.startswith(("--job-id", "--job_id")) for word in flags):
        words += ["--job-id", entry.run_id]  # of the ranks, in PADDOCK_JOB_ID, as on a site
    try:
        words += ["--", *_command(target, args, content, entry.folder)]
        run = start(words, entry.run_id, entry.folder, child_env, quiet=quiet, cell=cell)
    except BaseException as error:
        import shutil

        shutil.rmtree(entry.folder, ignore_errors=True)
        if isinstance(error, OSError) and error.errno in (ENOSPC, EDQUOT):
            what = f"a run cannot be recorded: {entry.folder}: {error.strerror}"
            raise UsageError(what, hint=STATE_HINT) from error
        raise
    if content:
        import weakref

        mark = os.path.join(entry.folder, CALLER)
        weakref.finalize(run, _let_be_pruned, mark, os.getpid()).atexit = False
    return run


def _let_be_pruned(path: str, caller_pid: int) -> None:
    """Remove the mark of a run that nobody holds: its results will not be read."""
    if os.getpid() == caller_pid:  # a forked process has copies of runs
        with suppress(OSError):
            os.unlink(path)


def is_function(target: object) -> bool:
    """Return True for a function, and for a text that names one."""
    return callable(target) or (isinstance(target, str) and MODULE.fullmatch(target) is not None)


def check_all(
    verb: Callable[..., object],
    target: Target,
    args: Sequence[object],
    kwargs: Mapping[str, object],
    **keywords: object,
) -> list[Problem]:
    """Return what is wrong with a target, its arguments and keywords. verb: launch or submit."""
    problems = [] if is_function(target) or not kwargs else [no_keywords(verb, kwargs)]
    if callable(target):
        problems = wrong_arguments(target, verb.__kwdefaults__ or (), args, kwargs)
    return [*problems, *wrong_target(target, args), *wrong_keywords(keywords)]


def refuse_in_rank(verb: str) -> None:
    """Raise UsageError in a rank: each rank of a job would start a job of its own."""
    if rank := os.environ.get("PADDOCK_RANK"):
        hint = "call it below if __name__ == '__main__', in the process that is no rank"
        raise UsageError(f"paddock.{verb}() was called in rank {rank} of a job", hint=hint)


def launch_flags(
    nproc: int | str | None,
    devices: str | Sequence[int | str] | None,
    elastic: tuple[int, int] | None,
    max_restarts: int | None,
    timeout: float | None,
    warm: bool | str | None,
    problems: list[Problem],
) -> list[str]:
    """Return the flags of `paddock launch` for these keywords; what is wrong goes to problems."""
    problems += wrong_keywords({
        "nproc": nproc, "devices": devices, "max_restarts": max_restarts, "timeout": timeout,
        "warm": warm,
    })  # fmt: skip
    given: dict[str, object] = {
        "--nproc-per-node": nproc,
        "--devices": devices if devices is None or isinstance(devices, (str, int))
        else ",".join(map(str, devices)),
        "--max-restarts": max_restarts,
        "--timeout": timeout,
        "--warm": ("off", "on")[warm] if isinstance(warm, bool) else warm,
    }  # fmt: skip
    if elastic is not None:
        try:
            low, high = elastic
            given["--nnodes"] = f"{low:d}:{high:d}"
        except (TypeError, ValueError):
            problems.append(Problem(f"elastic={elastic!r}: not two numbers", "elastic=(2, 4)"))
    return [word for name, each in given.items() if each is not None for word in (name, str(each))]


def _env_flags(env: Mapping[str, str]) -> list[str]:
    """Return --env flags for the variables that ranks do not inherit from a launcher."""
    from paddock.contracts.environment import inherited

    left = env.keys() - inherited(env).keys()
    return [word for name in sorted(left) for word in ("--env", f"{name}={env[name]}")]


def no_keywords(verb: Callable[..., object], kwargs: Mapping[str, object]) -> Problem:
    from paddock.command_line import nearest

    name, word = next(iter(kwargs)), verb.__name__
    hint = f"give a script its arguments as texts: {word}('train.py', '--lr=1')"
    what = f"{word}() has no keyword '{name}', and only a function takes others"
    return Problem(what, nearest(name, verb.__kwdefaults__ or (), hint))


def wrong_arguments(
    function: Callable[..., object],
    known: Iterable[str],
    args: Sequence[object],
    kwargs: Mapping[str, object],
) -> list[Problem]:
    """Return why a function cannot be called so, perhaps for a misspelt one of known keywords."""
    import inspect

    from paddock.api.function import name_of
    from paddock.command_line import nearest

    try:
        taken = inspect.signature(function, follow_wrapped=False)  # of a decorated one, its wrapper
    except ValueError:  # some builtins do not say what they take
        return []
    try:
        taken.bind(*args, **kwargs)
    except TypeError as error:
        name = name_of(function)
        others = [nearest(each, known, " ") for each in kwargs if each not in taken.parameters]
        hint = next(filter(str.strip, others), f"it is {name}{taken}")
        return [Problem(f"{name}(): {error}", hint)]
    return []


def name_of_target(target: Target) -> str:
    """Return the name of a run from its target."""
    if callable(target):
        from paddock.api.function import name_of

        return name_of(target).rpartition(".")[2]
    word = target if isinstance(target, (str, os.PathLike)) else next(iter(target), "")
    return os.path.basename(str(word)).rpartition(":")[2].removesuffix(".py")


def call_text(target: Target, args: Sequence[object], kwargs: Mapping[str, object]) -> str:
    """Return the call of a function, as `paddock list` shows it; "" for other targets.

    >>> call_text(pow, (2, [1] * 99), {"mod": 3})
    'pow(2, list, mod=3)'
    >>> import functools
    >>> call_text(functools.partial(pow, 2), (8,), {})
    'pow(2, 8)'
    """
    if not callable(target):
        return ""
    if text := getattr(target, SHOWN, ""):
        return str(text)
    from functools import partial

    from paddock.api.function import name_of

    if isinstance(target, partial):
        args, kwargs = (*target.args, *args), {**target.keywords, **kwargs}

    def short(value: object) -> str:
        is_plain = isinstance(value, (int, float, bool)) or value is None
        return repr(value) if is_plain else type(value).__name__  # a text may be a secret

    shown = [*map(short, args), *(f"{key}={short(each)}" for key, each in kwargs.items())]
    return f"{name_of(target)}({', '.join(shown)})"


def words_of(target: Target, args: Sequence[object]) -> list[str]:
    """Return the words of a script or a command, and its arguments."""
    assert not callable(target)
    first = (target,) if isinstance(target, (str, os.PathLike)) else target
    return [*map(str, (*first, *args))]


def _command(target: Target, args: Sequence[object], content: bytes, folder: str) -> list[str]:
    """Return the words of the script and its arguments. content: of a function's call file."""
    if not callable(target):
        return words_of(target, args)
    path = os.path.join(folder, CALL)
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with open(fd, "wb") as file:
        file.write(content)
    with open(os.path.join(folder, CALLER), "x", encoding="ascii") as text:
        text.write(process_text(os.getpid()))
    script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "rank.py")
    return [script, path, os.path.join(folder, RESULTS)]


def loaded(target: T) -> T | Callable[..., object]:
    """Return the function that "package.module:function" names, else the target as it is.

    Raises UsageError.
    """
    if not isinstance(target, str) or not is_function(target):
        return target
    from importlib import import_module

    module, _, names = target.partition(":")
    if "" not in sys.path and os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())  # as `python -m` does
    try:
        found: object = import_module(module)
        for name in names.split("."):
            found = getattr(found, name)
    except (ImportError, AttributeError) as error:
        raise UsageError(f"'{target}' cannot be imported: {error}") from error
    if not callable(found):
        raise UsageError(f"'{target}' is a {type(found).__name__}, and no function")
    return found


def start(
    argv: Sequence[str],
    run_id: str,
    folder: str,
    env: dict[str, str],
    *,
    quiet: bool,
    cell: tuple[str, int] | None = None,
) -> Run:
    """Start a launcher that ends when this process does, and whose output is shown here."""
    reason = os.path.join(folder, REASON)
    with open(reason, "x", encoding="utf-8"):
        pass
    held, ours = os.pipe()  # the launcher sees when this process has ended: nobody holds `ours`
    where = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    command = [sys.executable, "-c", CODE.format(where), "launch", *argv]
    is_shown = not quiet and not (sys.stdout is sys.__stdout__ and sys.stderr is sys.__stderr__)
    out = subprocess.DEVNULL if quiet else subprocess.PIPE if is_shown else None
    try:
        child = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, pass_fds=(held,),
            start_new_session=True,  # Ctrl-C reaches this process only, which then stops the job
            env={**env, TERMINATION_LOG: reason, CALLER_FD: str(held)},
        )  # fmt: skip
    except BaseException:
        os.close(ours)
        raise
    finally:
        os.close(held)
    readers = []
    if is_shown:
        for stream, to in ((child.stdout, sys.stdout), (child.stderr, sys.stderr)):
            assert stream is not None
            readers.append(threading.Thread(target=_show, args=(stream, to), daemon=True))
            readers[-1].start()
    run = Run(run_id, folder, child=child, held_fd=ours, readers=readers, cell=cell)
    if cell is not None and is_shown:
        from paddock.api.cell import is_notebook, tell_others

        if is_notebook():
            tell_others(run)
    return run


def _cell() -> tuple[str, int] | None:
    """Return the notebook's cell that is executed now: its text and the number of its execution."""
    module = sys.modules.get("IPython")
    shell = module.get_ipython() if module is not None else None
    if shell is None:
        return None
    return str((shell.user_ns.get("In") or [""])[-1]), int(shell.execution_count)


def _show(stream: IO[bytes], to: IO[str]) -> None:
    """Copy what a launcher prints to the stream of a cell, as it comes."""
    import codecs

    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    with stream:
        while data := stream.read1():  # type: ignore[attr-defined]  # a BufferedReader has it
            with suppress(Exception):  # it may be closed; the launcher must be read on
                to.write(decoder.decode(data))
                to.flush()
