"""paddock.submit: the job of paddock.launch on a site: ssh, Slurm, MPI, Kubernetes, a script."""

from __future__ import annotations

import os
import shutil
import sys
import time
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from secrets import token_hex

from paddock.api import call, function
from paddock.api.launch import (
    Label,
    call_text,
    check_all,
    launch_flags,
    loaded,
    name_of_target,
    refuse_in_rank,
    words_of,
)
from paddock.api.results import RESULTS_THERE
from paddock.api.run import Run
from paddock.backends.after import wait_for
from paddock.backends.backend import find_backend
from paddock.backends.flags import split_args
from paddock.backends.registry import new_id
from paddock.backends.submit import read_args, read_submission, site_of, start
from paddock.backends.table import BACKENDS
from paddock.backends.types import CALL_PYTHON
from paddock.errors import Problem, UsageError, refuse
from paddock.local.runs.entry import CALL, as_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from paddock.api.launch import Target
    from paddock.backends.types import Site

# Backends whose hosts see this Python: this machine, and clusters with a shared file system.
SAME_PYTHON = ("local", "slurm", "mpi", "script")
# Flags of `paddock submit` for which Python has something else, and what.
ELSEWHERE = {
    "sweep": "paddock.sweep(target, {'lr': [0.1, 0.2]}, site=...)",
    "dry_run": "paddock.explain(job)",
    "watch": "run.logs(follow=True)",
}
OUR_PYTHON = "{}.{}".format(*sys.version_info)
CALL_SECONDS_MAX = 30 * 86400.0  # a submission takes less, also one that waits (--after)
# The part of Paddock that a rank's code may use, for hosts where it is not installed.
FOR_RANKS = (
    "__init__.py", "api/__init__.py", "api/ranks.py", "api/checkpoint.py", "watch/__init__.py",
    "watch/rank.py",
)  # fmt: skip


def submit(
    target: Target,
    *args: object,
    site: str = "",
    hosts: str | Sequence[str] | None = None,
    nodes: int | None = None,
    nproc: int | str | None = None,
    devices: str | Sequence[int | str] | None = None,
    elastic: tuple[int, int] | None = None,
    max_restarts: int | None = None,
    env: Mapping[str, str] | None = None,
    timeout: float | None = None,
    warm: bool | str | None = None,
    name: str | None = None,
    run_id: str = "",
    package: str | os.PathLike[str] | None = None,
    python: str | None = None,
    flags: Sequence[str] = (),
    result_bytes_max: int | None = None,
    **kwargs: object,
) -> Run:
    """Submit a job to a site; returns once it is on its way. It outlives this process.

    site: ssh, slurm, mpi, kubernetes, ray, script, local, or a site of paddock.toml. hosts: of ssh
    and mpi. nodes: how many; elastic: minimum and maximum of them. package: the directory that is
    sent and becomes the working directory, the current one by default. python: the interpreter
    there. The output of the ranks is not shown: see Run.logs.
    flags: more flags of `paddock submit`. The others are as in paddock.launch; nproc is for each
    node. A function needs the same minor version of Python there; cloudpickle is sent with it. It
    is refused for Kubernetes, from which no results come back: submit a script.

    Raises UsageError with all problems, PaddockError when the site refuses the job.
    """
    refuse_in_rank("submit")
    if isinstance(target, os.PathLike):
        target = os.fspath(target)
    site, flags = site or "", flags or ()  # None, as other keywords
    problems = check_all(
        submit, target, args, kwargs, site=site, hosts=hosts, nodes=nodes, env=env, name=name,
        run_id=run_id, package=package, python=python, flags=flags,
        result_bytes_max=result_bytes_max,
    )  # fmt: skip
    words = launch_flags(nproc, devices, elastic, max_restarts, timeout, warm, problems)
    refuse(problems)
    target = loaded(target)
    own = {
        "--site": site, "--hosts": hosts if isinstance(hosts, str) else ",".join(hosts or ()),
        "--np-nodes": str(nodes or ""), "--package": os.fspath(package or ""),
        "--interpreter": python or "",
    }  # fmt: skip
    words += [word for key, text in own.items() if text for word in (key, text)]
    words += [word for key, text in (env or {}).items() for word in ("--env", f"{key}={text}")]
    if callable(target):
        _refuse_without_results(_named_site([*words, *flags]), name_of_target(target))
        # Of a site that flags name with -b nobody says that its hosts see this Python.
        if not python and (ours := _python_for(_named_site(words))):
            words = ["--interpreter", ours, *words]
    is_label = isinstance(name, Label)
    words += ["--name", as_name(name)] if name and not is_label else []
    folder = Path(package or ".")
    with _sent(target, args, kwargs, folder, result_bytes_max) as command:
        split = read_args([*words, "--detach", "--json", *flags, "--", *command])
        given = {**split.own, **({"sweep": ""} if split.sweep else {})}
        refuse([
            Problem(f"submit() takes no --{key.replace('_', '-')}", f"Python has {instead}")
            for key, instead in ELSEWHERE.items() if key in given
        ])  # fmt: skip
        if is_label and "replace" in given:
            raise UsageError("--replace: a tool starts the job, and several jobs have its name",
                             hint="paddock stop the others first")  # fmt: skip
        submission = read_submission(split)
        where = f"--from {given['from']}" if "from" in given else ""
        where = submission.source("workspace") if submission.workspace else where
        if callable(target) and where:
            hint = "let package= name a directory, or submit a script that is there"
            raise UsageError(f"a function cannot be sent to {where}", hint=hint)
        short = submission.name if "name" in given else as_name(name or name_of_target(target))
        claims = submission.takes_name and not is_label  # --name in the flags of a tool is a label
        run_id = run_id or new_id(short)
        submission = replace(submission, name=short, run_id=run_id, takes_name=claims)
        if callable(target):
            submission = replace(submission, extra={**submission.extra, CALL_PYTHON: OUR_PYTHON})
        plan = find_backend(submission.site.backend).plan(submission)
        wait_for(split.waits)
        entry, _code = start(split, submission, plan)
    if text := call_text(target, args, kwargs):
        entry.command = text
        entry.keep()
    return Run(entry.run_id, str(entry.folder))


def _named_site(words: Sequence[str]) -> Site | None:
    """Return the site of these arguments; None where read_submission will tell what is wrong."""
    try:
        return site_of(split_args([*words, "--", "script"]))
    except UsageError:
        return None


def _refuse_without_results(site: Site | None, name: str) -> None:
    """Raise UsageError for a function if no results come back from the site.

    Asked before the package gets the function.
    """
    if site is not None and not BACKENDS[site.backend].has_output:
        where = site.name if site.name == site.backend else f"{site.name} ({site.backend})"
        raise UsageError(
            f"{name} is a function, and from {where} no results come back",
            hint="submit a script instead, which saves what it computes to a volume",
        )


def _python_for(site: Site | None) -> str:
    """Return the interpreter for a function: ours, where the hosts see it."""
    is_ours = site and site.backend in SAME_PYTHON and not site.text("interpreter")
    return sys.executable if is_ours else ""


@contextmanager
def _sent(
    target: Target,
    args: Sequence[object],
    kwargs: Mapping[str, object],
    package: Path,
    result_bytes_max: int | None,
) -> Iterator[list[str]]:
    """Yield the words of the script and its arguments. A function is in the package meanwhile."""
    if not callable(target):
        yield words_of(target, args)
    else:
        for old in package.glob("paddock-call-????????/call.py"):  # its process was killed
            with suppress(OSError):  # another submission has removed its own just now
                if time.time() - old.stat().st_mtime > CALL_SECONDS_MAX:
                    shutil.rmtree(old.parent, ignore_errors=True)
        name = f"paddock-call-{token_hex(4)}"
        folder = package / name
        try:
            try:
                folder.mkdir(0o700)
                _write_call(folder, target, args, kwargs, result_bytes_max)
            except OSError as error:
                what = f"the function cannot be put into the package {package.absolute()}"
                hint = "let package= name a directory of yours; it is sent as a whole"
                raise UsageError(f"{what}: {error.strerror}", hint=hint) from error
            yield [f"{name}/call.py", f"{name}/{CALL}", RESULTS_THERE]
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def _write_call(
    folder: Path,
    target: Callable[..., object],
    args: Sequence[object],
    kwargs: Mapping[str, object],
    result_bytes_max: int | None,
) -> None:
    """Write all that a rank needs to run the function, on a host without Paddock."""
    content = function.pack(
        target, args, kwargs, path=[""], path_end=[folder.name],
        roots=[str(folder.parent), *function.installed_path()], result_bytes_max=result_bytes_max,
    )  # fmt: skip
    (folder / CALL).write_bytes(content)
    shutil.copyfile(call.__file__, folder / "call.py")
    ours = Path(call.__file__).parent.parent
    for name in FOR_RANKS:
        to = folder / "paddock" / name
        to.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ours / name, to)
    if "cloudpickle" in sys.modules:
        where = Path(str(sys.modules["cloudpickle"].__file__)).parent
        shutil.copytree(where, folder / "cloudpickle", ignore=shutil.ignore_patterns("__pycache__"))
