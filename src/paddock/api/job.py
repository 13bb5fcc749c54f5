"""paddock.make_job and paddock.explain: what a job asks for, and what is decided, as values."""

from __future__ import annotations

import os
import sys

from paddock.api.check import wrong_keywords
from paddock.api.launch import is_function, launch_flags, words_of
from paddock.errors import Problem, UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from paddock.core.job import Job
    from paddock.core.plan import Plan


def make_job(
    target: str | Sequence[str] | None = None,
    *args: object,
    file: str | os.PathLike[str] | None = None,
    nproc: int | str | None = None,
    devices: str | Sequence[int | str] | None = None,
    elastic: tuple[int, int] | None = None,
    max_restarts: int | None = None,
    env: Mapping[str, str] | None = None,
    timeout: float | None = None,
    warm: bool | str | None = None,
    flags: Sequence[str] = (),
) -> Job:
    """Return a job from keywords, from flags of `paddock launch`, or from a PaddleJob file.

    target: the path of a script, or the words of a command; `args` are its arguments. Without it,
    `flags` may end with the script. Other keywords are those of paddock.launch; they win over the
    file and over variables of this environment, as flags do. Starts nothing; what has no effect
    is told by warnings. Raises UsageError with all problems.

    >>> import paddock
    >>> job = paddock.make_job("train.py", "--lr", 0.1, nproc=2)
    >>> job == paddock.make_job(flags=["--nproc-per-node", "2", "train.py", "--lr", "0.1"])
    True
    """
    problems: list[Problem] = []
    words = [*launch_flags(nproc, devices, elastic, max_restarts, timeout, warm, problems)]
    if wrong := wrong_keywords({"env": env, "flags": flags}):
        raise UsageError.of([*problems, *wrong])
    words += [f"--env={name}={text}" for name, text in (env or {}).items()]
    words += [*flags, *(["-f", os.fspath(file)] if file is not None else ())]
    if is_function(target):
        hint = "paddock.launch and paddock.submit run functions"
        problems.append(Problem("make_job() takes a script or a command, and no function", hint))
    elif target is not None:
        words += ["--", *words_of(target, args)]
    return _read(words, problems)


def _read(words: Sequence[str], problems: list[Problem]) -> Job:
    from paddock.jobfile.parse import parse, resolved

    try:
        parsed = parse(words, os.environ, python=sys.executable)
    except UsageError as error:
        raise UsageError.of([*problems, *error.problems]) from error
    if parsed.is_help:
        problems = [*problems, Problem("flags: --help is no job")]
    if problems:
        raise UsageError.of(problems)
    parsed = resolved(parsed)
    for note in parsed.notes:
        import warnings

        warnings.warn(note, stacklevel=3)
    return parsed.job


def explain(job: Job, *, hosts: Sequence[str] = ()) -> Plan:
    """Return the plan of a job: the host, devices and port of each rank. Starts nothing.

    hosts: addresses of its nodes; without them, those that the job names, else node0, node1, ...
    All hosts are taken to have the devices of this machine. Port 0 is chosen at the start. Raises
    UsageError if the job cannot run on them.

    >>> import paddock
    >>> [(proc.name, proc.host) for proc in paddock.explain(
    ...     paddock.make_job("train.py", nproc=1, flags=["--nnodes=2"]), hosts=["n1", "n2"]).procs]
    [('rank 0', 'n1'), ('rank 1', 'n2')]
    """
    import socket

    from paddock.jobfile.imagined import imagined_plan
    from paddock.local.facts.devices import find_devices

    return imagined_plan(job, find_devices(job, os.environ), socket.gethostname(), hosts)
