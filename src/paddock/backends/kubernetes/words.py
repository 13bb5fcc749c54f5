"""The command line of every node: a fixed shell line, then arguments, never pasted together. Pure.

    sh -c START paddock PYTHON PROGRAM launch FLAGS -- SCRIPT ARGS

Kubernetes replaces $(NAME) in the arguments of a container, so every $ of the user's is written
twice.
"""

from __future__ import annotations

from collections.abc import Sequence

from paddock.backends.kubernetes.options import KubernetesOptions
from paddock.backends.types import Submission

PORT = 36767  # where the launchers of a job meet; every pod has an address of its own
FOLDER = "/paddock"
PROGRAM = f"{FOLDER}/program"
WORK = f"{FOLDER}/work"
SENT = f"{FOLDER}/sent"
# Variables that hold the values of --env: no word of a container has one.
VALUE = "PADDOCK_ENV_"
TASK_INDEX = "VC_TASK_INDEX"  # set by the plug-in env of Volcano
# Ends with exec: the launcher gets the kubelet's signals. Python unpacks: an image may lack tar.
START = f"""set -e
[ ! -e {SENT}/program.zip ] || "$1" -m zipfile -e {SENT}/program.zip {PROGRAM}
[ ! -e {SENT}/work.tar.gz ] || "$1" -m tarfile -e {SENT}/work.tar.gz {WORK}
[ ! -d {WORK} ] || cd {WORK}
exec "$@"
"""
# In a Job of Volcano a pod learns its number from a variable that others may not refer to.
START_OF_TASK = f"""set -e
export PADDLE_TRAINER_ID="${TASK_INDEX}" POD_IP="$PADDOCK_TASK-${TASK_INDEX}.$PADDOCK_SERVICE"
""" + START.partition("\n")[2]
# The last words on it: all processes are in the pod's log, and log files in the pod.
CONSOLE = ("--tail", "all", "--prefix", "always", "--log_dir", f"{FOLDER}/log")


def escaped(word: str) -> str:
    """Return an argument that Kubernetes passes on unchanged.

    >>> escaped("$(HOME)/$x")
    '$$(HOME)/$$x'
    """
    return word.replace("$", "$$")


def split_flags(flags: Sequence[str]) -> tuple[list[str], list[tuple[str, str]]]:
    """Return the launcher's arguments without --env, and the variables that it sets.

    >>> split_flags(["--grace=5", "--env", "A=1", "-m"])
    (['--grace=5', '-m'], [('A', '1')])
    """
    kept: list[str] = []
    env: list[tuple[str, str]] = []
    rest = iter(flags)
    for word in rest:
        if word == "--env":
            name, _, text = next(rest, "").partition("=")
            env.append((name, text))
        else:
            kept.append(word)
    return kept, env


def launch_words(
    submission: Submission, options: KubernetesOptions, ours: Sequence[str]
) -> list[str]:
    """Return the arguments after the shell line.

    ours: flags, which may refer to variables as $(NAME).
    """
    program = ["-m", "paddock"] if options.program == "image" else [f"{PROGRAM}/__main__.py"]
    kept, env = split_flags(submission.flags)
    named = [f"{escaped(name)}=$({VALUE}{number})" for number, (name, _) in enumerate(env)]
    kept += ["-f", f"{SENT}/job.json"] if submission.file else []
    return [
        *(escaped(word) for word in (options.interpreter, *program, "launch", *kept)),
        *(word for text in named for word in ("--env", text)),
        *ours,
        *(escaped(word) for word in submission.script),
    ]


def meeting_words(submission: Submission, name: str, rank: str) -> list[str]:
    """Return the rendezvous flags.

    name: of the Service, whose first pod hosts it; rank: an argument. A job that meets at etcd has
    its address, which may hold a password, as PADDLE_MASTER.
    """
    job = submission.job
    if job.nnodes_max == 1:
        return ["--nnodes", "1", "--job_id", name]
    is_fixed = job.nnodes_min == job.nnodes_max
    words = ["--nnodes", submission.nnodes, "--job_id", name]
    if job.rendezvous.kind == "etcd":
        return words
    return [*words, "--master", f"{name}-0.{name}:{PORT}", *(["--rank", rank] if is_fixed else [])]
