"""The words of `paddock submit` beside those of `launch`, and how they are told apart. Pure.

Words of both come before the script, in any order; after it, everything is the script's.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import TYPE_CHECKING

from paddock.backends.sites.keys import BY_NAME as KEYS
from paddock.errors import Problem
from paddock.jobfile.flags import BY_NAME as LAUNCH
from paddock.jobfile.suggest import LAUNCH_HELP
from paddock.jobfile.words import Words, take_flag

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


@dataclass(frozen=True)
class Own:
    """One of submit's own flags. metavar "" means a switch. group: a heading of the help."""

    name: str
    metavar: str
    help: str
    group: str
    aliases: tuple[str, ...] = ()


WHERE, WHAT, HOW, KUBE, BATCH = (
    "where it runs", "what goes with it", "how it is done", "Kubernetes", "Slurm and other queues",
)  # fmt: skip
FLAGS = (
    Own("b", "BACKEND|SITE", "ssh, slurm, mpi, kubernetes, script, local, or a site of yours; "
        "key=value after commas", WHERE, ("site",)),
    Own("hosts", "HOST,...", "[user@]host[:port][=address], in the order of the nodes", WHERE),
    Own("hostfile", "FILE", "one host a line, as mpirun takes it", WHERE),
    Own("conf", "conf.py", "hosts and ports of the old cluster tool; read, not executed", WHERE),
    Own("n", "N", "how many nodes; all of the site's when absent", WHERE, ("np_nodes",)),
    Own("root", "DIR", "directory on the hosts that holds the jobs [~/paddock/jobs]", WHERE),
    Own("interpreter", "PYTHON", "the Python that runs the script there", WHERE),
    Own("package", "DIR", "send this directory; it becomes the working directory [.]", WHAT,
        ("p", "job_dispatch_package")),
    Own("workspace", "DIR", "a directory that every host has already: nothing is sent", WHAT,
        ("j", "job_workspace")),
    Own("data", "PATTERN", "numbered files of the package, dealt out: file i to node i modulo N",
        WHAT),
    Own("from", "DIR", "run a rendered submission again (script)", WHAT),
    Own("name", "NAME", "name of the job; one that is in use is refused", HOW),
    Own("replace", "", "stop the job that has the name first", HOW),
    Own("detach", "", "come back at once; the job outlives this terminal", HOW, ("d",)),
    Own("watch", "", "stay and show the state until the job has ended", HOW),
    Own("dry_run", "", "show exactly what would be done, and do nothing", HOW),
    Own("json", "", "one JSON value on stdout", HOW),
    Own("help", "", "show this help", HOW, ("h",)),
    Own("image", "IMAGE", "container image", KUBE),
    Own("namespace", "NAME", "namespace of the job", KUBE),
    Own("context", "NAME", "context of the kubeconfig", KUBE),
    Own("scheduler", "NAME", "volcano, kueue or coscheduling", KUBE),
    Own("queue", "NAME", "queue of the scheduler", KUBE),
    Own("cpu", "QUANTITY", "processors of each pod", KUBE),
    Own("memory", "QUANTITY", "memory of each pod, or node", KUBE),
    Own("secrets", "NAME,...", "secrets whose entries become variables, by reference", KUBE),
    Own("volumes", "CLAIM:PATH,...", "volume claims to mount", KUBE),
    Own("pod_patch", "FILE", "YAML that is merged into the pod template", KUBE),
    Own("partition", "NAME", "partition of the cluster", BATCH),
    Own("account", "NAME", "who pays", BATCH),
    Own("qos", "NAME", "quality of service", BATCH),
    Own("constraint", "FEATURES", "features that a node must have", BATCH),
    Own("gres", "LIST", "generic resources of each node: gpu:8", BATCH),
    Own("time", "LIMIT", "time limit, as sbatch takes it", BATCH),
    Own("array", "1-10%2", "so many jobs, numbered, two at once", BATCH),
    Own("after", "HANDLE", "start when that job has succeeded", BATCH),
    Own("servers_on", "even|HOST,...", "which ranks are servers (mpi)", BATCH),
)  # fmt: skip
BY_NAME = {name: flag for flag in FLAGS for name in (flag.name, *flag.aliases)}
# Of flags that are no key of a site: the backends that honour them. All do where it says nothing.
ONLY = {
    "data": ("ssh", "local"), "from": ("script",), "array": ("slurm",), "after": ("slurm",),
    "servers_on": ("mpi",),
}  # fmt: skip
# Decided by where the job runs, so that nobody can say it beside.
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
class Split:
    """What a command line of `paddock submit` says. own: by Own.name, switches are "1".

    env: every --env, which is in no other list: its values may be secret.
    """

    own: dict[str, str] = field(default_factory=dict)
    flags: list[str] = field(default_factory=list)
    nnodes: str = ""
    file: str = ""
    env: list[str] = field(default_factory=list)
    script: tuple[str, ...] = ()
    problems: list[Problem] = field(default_factory=list)


def foreign(backend: str, own: Mapping[str, str]) -> tuple[str, ...]:
    """What was said, and this backend cannot honour.

    >>> foreign("mpi", {"image": "train:1", "data": "train-*", "n": "2"})
    ('--image: for kubernetes only', '--data: for ssh and local only; all nodes see the same files')
    """
    found = []
    for name in own:
        backends = KEYS[name].backends if name in KEYS else ONLY.get(name, (backend,))
        if backend not in backends:
            more = "; all nodes see the same files" if name == "data" else ""
            found.append(f"--{name.replace('_', '-')}: for {' and '.join(backends)} only{more}")
    return tuple(found)


def split_words(argv: Sequence[str]) -> Split:
    """Tell submit's own flags from the launcher's.

    >>> found = split_words(["-b", "lab", "--nproc_per_node=2", "--dry-run", "train.py", "-b"])
    >>> found.own, found.flags, found.script
    ({'b': 'lab', 'dry_run': '1'}, ['--nproc_per_node=2'], ('train.py', '-b'))
    """
    found = Split()
    at = 0
    while at < len(argv):
        word = argv[at]
        if word == "--" or not word.startswith("-") or word == "-":
            found.script = tuple(argv[at + (word == "--") :])
            break
        own = _own(word)
        if own is not None:
            at = _take_own(found, own, argv, at)
        else:
            at = _take_launch(found, argv, at)
    return found


def _own(word: str) -> Own | None:
    name = word.partition("=")[0]
    if name.startswith("--"):
        flag = BY_NAME.get(name[2:].replace("-", "_"))
        return flag if flag is not None and len(name) > 3 else None
    return BY_NAME.get(name[1:]) if len(name) == 2 else None


def _take_own(found: Split, flag: Own, argv: Sequence[str], at: int) -> int:
    name, equals, text = argv[at].partition("=")
    at += 1
    if flag.metavar and not equals:
        if at == len(argv) or (argv[at].startswith("-") and argv[at] != "-"):
            found.problems.append(Problem(f"{name} needs a value", f"write {name} {flag.metavar}"))
            return at
        text = argv[at]
        at += 1
    found.own[flag.name] = text if flag.metavar else "1"
    return at


def _unknown_here(word: str, problem: Problem) -> Problem:
    """What launch says of a flag, with a hint that knows submit's flags too."""
    if not problem.message.startswith("unknown flag"):
        return problem
    name = word.partition("=")[0].lstrip("-").replace("-", "_")
    close = get_close_matches(name, [*LAUNCH, *BY_NAME], n=1, cutoff=0.7)
    hint = f"did you mean --{close[0].replace('_', '-')}?" if close else problem.hint
    return Problem(problem.message, hint.replace(LAUNCH_HELP, "see paddock help submit"))


def _take_launch(found: Split, argv: Sequence[str], at: int) -> int:
    words = Words()
    after = take_flag(words, argv, at, "flag")
    if words.problems:
        found.problems += [_unknown_here(argv[at], problem) for problem in words.problems]
        return after
    (name, given), *_ = [*words.values.items(), ("", None)]
    if name in DECIDED:
        found.problems.append(Problem(f"{argv[at]} cannot be given here", DECIDED[name]))
    elif name == "nnodes" and given is not None:
        found.nnodes = given.text
    elif name == "file" and given is not None:
        found.file = given.text
    elif name == "env":
        found.env += words.env
    else:
        found.flags += argv[at:after]
    return after
