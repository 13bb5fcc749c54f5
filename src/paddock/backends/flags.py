"""The flags of `paddock submit` beside those of `launch`, and how they are told apart. Pure.

Flags of both come before the script, in any order; after it, everything is the script's. A script
may begin with `#PADDOCK --flag value` lines, as with `#SBATCH` lines.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from paddock.backends.sites.keys import BY_NAME as KEYS
from paddock.backends.table import BACKENDS
from paddock.command_line import FlagTable, flag, read_line
from paddock.errors import Problem, refuse
from paddock.jobfile.flags import FLAGS as LAUNCH
from paddock.jobfile.flags import FOREIGN

WHERE, WHAT, HOW, MANY, KUBE, BATCH = (
    "Where it runs", "What goes with it", "How it is done", "A sweep", "Kubernetes",
    "Slurm and other queues",
)  # fmt: skip
# fmt: off
FLAGS = (
    flag("site", "BACKEND|SITE", f"{', '.join(BACKENDS)}, or a site of yours; "
         "key=value after commas", "b", group=WHERE),
    flag("hosts", "HOST,...", "[user@]host[:port][=address], in the order of the nodes",
         group=WHERE),
    flag("hostfile", "FILE", "one host a line, as mpirun takes it", group=WHERE),
    flag("conf", "conf.py", "hosts and ports of the old cluster tool; read, not executed",
         group=WHERE),
    # Not "nodes", which a site of Slurm has for their names.
    flag("np-nodes", "N", "how many nodes; all of the site's when absent", "n", group=WHERE),
    flag("root", "DIR", "directory on the hosts that holds the jobs [~/paddock/jobs]", group=WHERE),
    flag("interpreter", "PYTHON", "the Python that runs the script there", group=WHERE),
    flag("package", "DIR", "send this directory; it becomes the working directory [.]",
         "p", aliases=("job-dispatch-package",), group=WHAT),
    flag("workspace", "DIR", "a directory that every host has already: nothing is sent",
         "j", aliases=("job-workspace",), group=WHAT),
    flag("data", "PATTERN", "numbered files of the package, shared among the nodes: file i "
         "goes to node i modulo N", group=WHAT),
    flag("from", "DIR", "submit the job directory DIR once more (script)", group=WHAT),
    flag("name", "NAME", "name of the job; one that is in use is refused", group=HOW),
    flag("replace", "", "stop the job that has the name first", group=HOW),
    flag("detach", "", "come back at once; the job outlives this terminal", "d", group=HOW),
    flag("watch", "", "stay and show the state until the job has ended", group=HOW),
    flag("after", "RUN[:ok|any]", "start when that run has succeeded, or with :any has ended",
         group=HOW),
    flag("retry", "lost=N", "start again up to N times when the run was lost; never when it failed",
         group=HOW),
    flag("dry-run", "", "show exactly what would be done, and do nothing", group=HOW),
    flag("json", "", "one JSON value on stdout", group=HOW),
    flag("sweep", "NAME=VALUES", "a run for each value: lr=1e-3,1e-4 or bs=32:128:32; repeat it "
         "for a grid", repeats=True, group=MANY),
    flag("at-once", "N", "so many points run at once [1 on hosts, else all]", group=MANY),
    flag("image", "IMAGE", "container image", group=KUBE),
    flag("namespace", "NAME", "namespace of the job", group=KUBE),
    flag("context", "NAME", "context of the kubeconfig", group=KUBE),
    flag("scheduler", "NAME", "volcano, kueue or coscheduling", group=KUBE),
    flag("queue", "NAME", "queue of the scheduler", group=KUBE),
    flag("cpu", "QUANTITY", "processors of each pod", group=KUBE),
    flag("memory", "QUANTITY", "memory of each pod, or node", group=KUBE),
    flag("server-cpu", "QUANTITY", "processors of each pod that runs servers only", group=KUBE),
    flag("server-memory", "QUANTITY", "memory of each pod that runs servers only", group=KUBE),
    flag("server-gpus", "N", "devices of each pod that runs servers only [0]", group=KUBE),
    flag("secrets", "NAME,...", "secrets whose entries become variables, by reference", group=KUBE),
    flag("volumes", "CLAIM:PATH,...", "volume claims to mount", group=KUBE),
    flag("pod-patch", "FILE", "YAML that is merged into the pod template", group=KUBE),
    flag("partition", "NAME", "partition of the cluster", group=BATCH),
    flag("account", "NAME", "the account that is charged", group=BATCH),
    flag("qos", "NAME", "quality of service", group=BATCH),
    flag("constraint", "FEATURES", "features that a node must have", group=BATCH),
    flag("gres", "LIST", "generic resources of each node: gpu:8", group=BATCH),
    flag("time", "LIMIT", "time limit, as sbatch takes it", group=BATCH),
    flag("array", "1-10%2", "an array of jobs: ten, at most two at a time", group=BATCH),
    flag("requeue", "always|saved|never", "what goes back into the queue at its time limit (slurm)",
        group=BATCH),
    flag("setup", "LINES", "lines of bash that run before the ranks: module load cuda (slurm)",
        group=BATCH),
    flag("servers-on", "even|HOST,...", "which ranks are servers (mpi)", group=BATCH),
)
# fmt: on
OWN = frozenset(flag.key for flag in FLAGS)
TABLE = FlagTable("submit", (*FLAGS, *LAUNCH), FOREIGN)
# Of flags that are no key of a site: the backends that honour them. All do where it says nothing.
ONLY = {
    "data": ("ssh", "local"), "from": ("script",), "array": ("slurm",), "servers_on": ("mpi",),
}  # fmt: skip
# Flags without which another job would run: refused, and not left out with a warning.
ESSENTIAL = ("image", "volumes", "secrets", "pod_patch", "array", "from", "setup")
MARK = "#PADDOCK"
# Decided by where the job runs, so that these flags are refused.
DECIDED = {
    "master": "the submission says where the nodes meet",
    "rdzv_endpoint": "the submission says where the nodes meet",
    "master_addr": "the submission says where the nodes meet",
    "ips": "name the hosts with --hosts",
    "host": "name addresses as --hosts h1=10.0.0.1",
    "rank": "the order of the hosts gives every node its rank",
    "log_dir": "logs are in the job's directory: paddock logs, paddock fetch",
    "job_id": "write --name",
    "standalone": "one node is -n 1",
    "token_file": "every submission has a key of its own",
}


@dataclass
class SubmitArgs:
    """The parsed command line of `paddock submit`. own: by Flag.key, switches are "1".

    env: every --env, which is in no other list: its values may be secret. sweep: every --sweep.
    waits: the runs to wait for here (after.py).
    """

    own: dict[str, str] = field(default_factory=dict)
    flags: list[str] = field(default_factory=list)
    nnodes: str = ""
    file: str = ""
    env: list[str] = field(default_factory=list)
    sweep: list[str] = field(default_factory=list)
    waits: list[Any] = field(default_factory=list)
    script: tuple[str, ...] = ()
    words: tuple[str, ...] = ()  # all of them
    problems: list[Problem] = field(default_factory=list)
    is_help: bool = False


def foreign(backend: str, own: Mapping[str, str]) -> tuple[str, ...]:
    """Return a sentence for each option given that this backend does not support.

    >>> foreign("mpi", {"image": "train:1", "data": "train-*", "np_nodes": "2"})
    ('--image: for kubernetes only', '--data: for ssh and local only; all nodes see the same files')
    """
    found = []
    for name in own:
        backends = _backends_of(name, backend)
        if backend not in backends:
            more = "; all nodes see the same files" if name == "data" else ""
            found.append(f"--{name.replace('_', '-')}: for {' and '.join(backends)} only{more}")
    return tuple(found)


def essential_problems(backend: str, own: Mapping[str, str]) -> list[Problem]:
    """Return a problem for each option that this backend lacks and the job cannot do without.

    >>> [each.message for each in essential_problems("ssh", {"image": "a:1", "partition": "p"})]
    ['--image: for kubernetes only']
    """
    hint = "leave it out, or submit to {}"
    return [
        Problem(sentence, hint.format(" or ".join(_backends_of(name, backend))))
        for name in ESSENTIAL if name in own
        for sentence in foreign(backend, {name: own[name]})
    ]  # fmt: skip


def _backends_of(name: str, backend: str) -> tuple[str, ...]:
    """Return the backends that honour an option; this one where nothing is said of it."""
    return KEYS[name].backends if name in KEYS else ONLY.get(name, (backend,))


def split_args(argv: Sequence[str]) -> SubmitArgs:
    """Split submit's own flags from the launcher's.

    >>> found = split_args(["-b", "lab", "--nproc_per_node=2", "--dry-run", "train.py", "-b"])
    >>> found.own, found.flags, found.script
    ({'site': 'lab', 'dry_run': '1'}, ['--nproc_per_node=2'], ('train.py', '-b'))
    """
    line = read_line(argv, TABLE, has_script=True)
    found = SubmitArgs(
        script=tuple(line.rest), words=tuple(argv), problems=line.problems, is_help=line.is_help
    )
    for parsed in line.flags:
        key = parsed.flag.key
        if key == "sweep":
            found.sweep.append(parsed.text)
        elif key in OWN:
            found.own[key] = parsed.text
        elif key in DECIDED:
            found.problems.append(Problem(f"{parsed.name} cannot be given here", DECIDED[key]))
        elif key == "nnodes":
            found.nnodes = parsed.text
        elif key == "file":
            found.file = parsed.text
        elif key == "env":
            found.env.append(parsed.text)
        else:
            found.flags += parsed.words
    return found


@dataclass(frozen=True)
class Directive:
    """A `#PADDOCK` line: its number in the script, from 1, and its arguments."""

    line: int
    words: tuple[str, ...]


def read_directives(text: str) -> tuple[Directive, ...]:
    """Return the directives of a script, up to the first line that is neither empty nor a comment.

    Raises UsageError with every line that cannot be read.

    >>> read_directives("#!/bin/sh\\n#PADDOCK --nproc_per_node 2  # two GPUs\\necho\\n#PADDOCK -x")
    (Directive(line=2, words=('--nproc_per_node', '2')),)
    """
    found, problems = [], []
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip() and not line.startswith("#"):
            break
        mark, _, rest = line.partition(" ")
        if mark.rstrip() != MARK:
            continue
        try:
            words = tuple(shlex.split(rest, comments=True))
        except ValueError as error:
            problems.append(Problem(f"line {number} of the script: {error}: {line.strip()}"))
            continue
        if words and not words[0].startswith("-"):
            hint = f"write {MARK} --flag value"
            problems.append(
                Problem(f"line {number} of the script: '{words[0]}' is not a flag", hint)
            )
        found.append(Directive(number, words))
    refuse(problems)
    return tuple(found)
