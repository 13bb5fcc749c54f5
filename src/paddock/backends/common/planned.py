"""The common parts of the plans of several backends; which variables go with a job. Pure.

A variable is named by --env, by `env` or `credentials` of the site, or in a command of the site.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Collection, Mapping, Sequence

from paddock.backends.types import Submission
from paddock.errors import Problem
from paddock.jobfile.masked import masked_args

# Programs are found by PATH; the others say who the user is, and how texts are written.
BASE = ("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LC_ALL", "LC_CTYPE", "TZ")
# What commands of queues, mpirun and the ssh that it starts read of their caller's environment.
OF_COMMANDS = ("LD_LIBRARY_PATH", "TMPDIR", "SSH_AUTH_SOCK", "KRB5CCNAME", "XDG_RUNTIME_DIR")
PREFIXES = (
    "SLURM_", "SBATCH_", "SQUEUE_", "PBS_", "LSB_", "LSF_", "LS_", "SGE_", "PE_",
    "OMPI_", "OPAL_", "ORTE_", "PRTE_", "PMIX_", "HYDRA_", "MPIEXEC_", "MPIR_", "MPICH_", "I_MPI_",
)  # fmt: skip
NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)
REFERENCE = re.compile(r"\$\{?([A-Za-z_]\w*)", re.ASCII)


def job_text(submission: Submission, **more: object) -> str:
    """Return the job.json of a job's directory: the submission without secrets, for --discover."""
    command = submission.job.command
    words = (command.program, *command.args)
    row = {
        "id": submission.run_id,
        "backend": submission.site.backend,
        "name": submission.name,
        "command": shlex.join(masked_args(words, len(words))),
        "nnodes": submission.job.nnodes_max,
        **more,
    }
    return json.dumps(row, ensure_ascii=False, indent=1) + "\n"


def bad_names(submission: Submission) -> list[Problem]:
    """Return a problem for each --env whose name no shell takes."""
    names = [name for name, _ in submission.env if not NAME.fullmatch(name)]
    return [Problem(f"--env {name}: not a name of a variable") for name in names]


def rows_of(
    submission: Submission, names: Sequence[str], devices: str
) -> tuple[tuple[str, str, str, str], ...]:
    """Return the table of a plan: node, host, processes, devices. names: of the hosts."""
    worker = submission.job.role("worker")
    each = str(worker.count) if worker is not None and worker.count else "one per device"
    return tuple((str(index), name, each, devices) for index, name in enumerate(names))


def making(submission: Submission, folder: str, what: str) -> str:
    """Return the sentence of the step that makes a job's directory.

    what: its content but the package.
    """
    package = f", and what is in {submission.package}" if submission.package else ""
    return f"make {folder} with {what}{package}"


def of_command(
    env: Mapping[str, str], named: Collection[str] = (), text: str = ""
) -> dict[str, str]:
    """Return the environment of a command that starts a job.

    text: shell lines, which may name more.

    >>> of_command({"PATH": "/bin", "AK": "1", "HOSTS": "h", "X": "2"}, ["AK"], "go --on ${HOSTS}")
    {'PATH': '/bin', 'AK': '1', 'HOSTS': 'h'}
    """
    known = {*BASE, *OF_COMMANDS, *named, *REFERENCE.findall(text)}
    return {n: v for n, v in env.items() if n in known or n.startswith(PREFIXES)}


def env_text(env: Sequence[tuple[str, str]]) -> str:
    return "".join(f"{name}={shlex.quote(text)}\n" for name, text in env)


def taken(words: Sequence[str], env: Mapping[str, str]) -> tuple[list[str], list[str]]:
    """Return the values of --env, `NAME` as `NAME=value`, and the names that are not set.

    >>> taken(["A=1", "HOME", "NOT"], {"HOME": "/root"})
    (['A=1', 'HOME=/root'], ['NOT'])
    """
    lacks = [word for word in words if "=" not in word and word not in env]
    found = [word if "=" in word else f"{word}={env[word]}" for word in words if word not in lacks]
    return found, lacks
