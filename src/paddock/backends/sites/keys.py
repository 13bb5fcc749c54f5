"""The keys of a site: one table, with the checks of a site's table against it. Pure.

kind: text (a number is taken too), int, bool, texts (a list, or one text with commas), path (of
this machine, relative to the file it stands in), table, tables (a list of them), lines (a list, or
one text with line breaks).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from paddock.backends.table import EVERY, HOSTED
from paddock.backends.types import split_list
from paddock.command_line import nearest
from paddock.core.endpoint import without_login
from paddock.core.secrets import is_secret
from paddock.errors import Problem


@dataclass(frozen=True)
class SiteKey:
    """A key of [site.NAME]. is_reference: the name sounds secret, the value is but a name."""

    name: str
    kind: str
    backends: tuple[str, ...]
    help: str
    is_reference: bool = False


KUBE, SLURM, SCRIPT, RAY = ("kubernetes",), ("slurm",), ("script",), ("ray",)
# A table reads better than one argument a line.
# fmt: off
KEYS: tuple[SiteKey, ...] = (
    SiteKey("backend", "text", EVERY, f"{', '.join(EVERY[:-1])} or {EVERY[-1]}"),
    SiteKey("interpreter", "text", EVERY, "the Python of the hosts that runs the scripts"),
    SiteKey("root", "text", EVERY,
        "parent directory of job directories there; ~ is the home there"),
    SiteKey("workspace", "text", EVERY, "a directory that is there already and jobs run in"),
    SiteKey("env", "table", EVERY, "variables of every process, by name; no secrets"),
    SiteKey("hosts", "texts", HOSTED, "host, user@host:port, [host, address]; or a file's name"),
    SiteKey("hostfile", "path", HOSTED, "file with hosts, as Open MPI and PBS write it"),
    SiteKey("user", "text", HOSTED, "user of hosts that name none"),
    SiteKey("port", "int", HOSTED, "ssh port of hosts that name none"),
    SiteKey("ports", "text", HOSTED, "first port of the jobs' processes"),
    SiteKey("port_base", "int", HOSTED, "port where the nodes meet; a free one if absent"),
    SiteKey("nic", "text", HOSTED, "network interface by which the hosts reach one another"),
    SiteKey("paddle_init", "table", HOSTED, "variables PADDLE_INIT_NAME of the trainers, by NAME"),
    SiteKey("identity", "path", ("ssh",), "private key file, as ssh -i"),
    SiteKey("ssh_config", "path", HOSTED, "ssh configuration file, as ssh -F"),
    SiteKey("connect_timeout", "int", ("ssh", "ray"), "seconds to wait for a host"),
    SiteKey("mpirun", "text", ("mpi",), "the mpirun to use, a name or a path"),
    SiteKey("mpirun_args", "texts", ("mpi",), "more words of mpirun's own, a list"),
    SiteKey("partition", "text", SLURM, "as sbatch --partition"),
    SiteKey("account", "text", ("slurm", "script"), "whom the time is charged to"),
    SiteKey("qos", "text", SLURM, "as sbatch --qos"),
    SiteKey("constraint", "text", SLURM, "as sbatch --constraint"),
    SiteKey("gres", "text", SLURM, "as sbatch --gres"),
    SiteKey("time", "text", ("slurm", "script"), "time limit of a job"),
    SiteKey("nodes", "text", SLURM, "as sbatch --nodelist"),
    SiteKey("cpus", "int", ("slurm", "ray"),
        "cores of each node; a core for each process if absent"),
    SiteKey("requeues", "int", SLURM, "how often a job that was told to end in time goes on"),
    SiteKey("requeue", "text", SLURM, "which of them: saved (the default), always or never"),
    SiteKey("cluster", "text", SLURM, "as sbatch --clusters"),
    SiteKey("sbatch_lines", "texts", SLURM, "raw #SBATCH words, a list"),
    SiteKey("setup", "lines", SLURM,
        "lines of bash, a list, that run on the first node before the ranks begin"),
    SiteKey("bin", "text", SLURM, "directory of sbatch and its like"),
    SiteKey("namespace", "text", KUBE, "namespace of the jobs"),
    SiteKey("context", "text", KUBE, "context of the kubeconfig"),
    SiteKey("kubeconfig", "path", KUBE, "kubeconfig file"),
    SiteKey("image", "text", KUBE, "container image"),
    SiteKey("form", "text", KUBE, "paddlejob, job or volcano-job"),
    SiteKey("scheduler", "text", KUBE, "volcano, kueue or coscheduling"),
    SiteKey("queue", "text", ("kubernetes", "script"), "queue of the scheduler"),
    SiteKey("cpu", "text", KUBE, "cores of each pod"),
    SiteKey("memory", "text", ("kubernetes", "slurm"), "memory of each pod, as 4Gi; of each node"),
    SiteKey("storage", "text", KUBE, "ephemeral storage of each pod, as 10Gi"),
    SiteKey("gpus", "text", ("kubernetes", "ray"),
        "devices of each pod, or node: a number, or resource=number"),
    SiteKey("server_cpu", "text", KUBE, "cores of a pod that runs servers only; as cpu"),
    SiteKey("server_memory", "text", KUBE, "memory of such a pod; as memory"),
    SiteKey("server_gpus", "text", KUBE, "devices of such a pod; none if absent"),
    SiteKey("volumes", "texts", KUBE, "claims and where they are mounted: claim:/path"),
    SiteKey("secrets", "texts", KUBE, "names of Secrets that become variables", True),
    SiteKey("pull_secrets", "texts", KUBE, "names of Secrets to pull the image with", True),
    SiteKey("node_selector", "table", KUBE, "labels that nodes must have"),
    SiteKey("tolerations", "tables", KUBE, "taints that are put up with"),
    SiteKey("service_account", "text", KUBE, "service account of the pods"),
    SiteKey("priority_class", "text", KUBE, "priority class of the pods"),
    SiteKey("pod_patch", "path", KUBE, "YAML that is merged into the pod template"),
    SiteKey("server_num", "int", KUBE, "servers of a job that does not say how many"),
    SiteKey("trainer_num", "int", KUBE, "trainers of a job that does not say how many"),
    SiteKey("address", "text", RAY, "of the Ray cluster: HOST:PORT, ray://HOST:10001, or auto"),
    SiteKey("placement", "text", RAY, "spread: each launcher on a node of its own; or pack"),
    SiteKey("wait", "int", RAY, "seconds to wait for resources that Ray does not have yet"),
    SiteKey("job_name", "text", ("kubernetes", "script"), "name of jobs that are given none"),
    SiteKey("submit", "text", SCRIPT, "command that submits job.sh; run in the job's directory"),
    SiteKey("run", "text", SCRIPT, "words that start node.sh on every node: mpirun ..."),
    SiteKey("status", "text", SCRIPT, "command that tells how job {id} is"),
    SiteKey("logs", "text", SCRIPT, "command that prints the output of job {id}"),
    SiteKey("stop", "text", SCRIPT, "command that ends job {id}"),
    SiteKey("stop_now", "text", SCRIPT, "command that ends job {id} at once; stop if absent"),
    SiteKey("job_id", "text", SCRIPT, "regular expression; its group is the id that submit said"),
    SiteKey("states", "table", SCRIPT, "regular expression of what status says, by state"),
    SiteKey("before_hook", "path", SCRIPT, "file that becomes before_hook.sh"),
    SiteKey("end_hook", "path", SCRIPT, "file that becomes end_hook.sh"),
    SiteKey("job_script", "path", SCRIPT, "template of job.sh"),
    SiteKey("files", "texts", SCRIPT, "files that go into the job's directory"),
    SiteKey("config", "table", SCRIPT, "lines of config.ini, which job.sh reads"),
    SiteKey("params", "table", SCRIPT, "values that commands may name, as {group}"),
    SiteKey("credentials", "texts", SCRIPT, "names of variables the commands need", True),
)
# fmt: on
BY_NAME = {key.name: key for key in KEYS}
SECRET_HINT = (
    "take it out of the file, and give it in the environment of the one who submits, "
    "or as the name of a Secret"
)
REFERENCES = [key.name for key in KEYS if key.is_reference]


def _all_are(kinds: type | tuple[type, ...], value: object) -> bool:
    return isinstance(value, (list, tuple)) and all(isinstance(each, kinds) for each in value)


def _is_table(value: object) -> bool:
    return isinstance(value, dict) and _all_are((str, int, float), [*value.values()])


# Kind -> as people call it, and whether a value is of it; bool is an int.
KINDS: dict[str, tuple[str, Callable[[object], bool]]] = {
    "text": ("a text", lambda v: isinstance(v, (str, int, float)) and not isinstance(v, bool)),
    "int": ("a whole number", lambda v: isinstance(v, int) and not isinstance(v, bool)),
    "bool": ("true or false", lambda v: isinstance(v, bool)),
    "path": ("a file's name", lambda v: isinstance(v, str)),
    "lines": ("a list of lines", lambda v: isinstance(v, str) or _all_are(str, v)),
    "texts": ("a list of texts", lambda v: isinstance(v, str) or _all_are(str, v)),
    "table": ("a table of texts", _is_table),
    "tables": ("a list of tables", lambda v: _all_are(dict, v)),
}


def keys_of(backend: str) -> dict[str, SiteKey]:
    """Return the keys that a backend's sites may have, by name."""
    return {key.name: key for key in KEYS if backend in key.backends}


def secret_problems(table: object, where: str) -> Iterator[Problem]:
    """Yield a problem for each value that looks secret, at any depth: no such file is read.

    >>> [p.message for p in secret_problems({"a": {"password": "x"}, "identity": "k"}, "sites")]
    ['sites: a.password holds a secret']
    """
    for path, value in leaves(table):
        is_taint = "tolerations" in path  # whose `key` is a name
        named = [n for n in path if is_secret(n) and n not in REFERENCES and not is_taint]
        login = isinstance(value, str) and without_login(value) != value
        if (named or login) and value not in ("", None):
            yield Problem(f"{where}: {'.'.join(path)} holds a secret", SECRET_HINT)


def key_problems(backend: str, table: Mapping[str, object], where: str) -> Iterator[Problem]:
    """Yield a problem for each key that the backend lacks, and each value of a wrong kind."""
    known = keys_of(backend)
    for name, value in table.items():
        if name not in known:
            others = BY_NAME[name].backends if name in BY_NAME else ()
            hint = f"it is for {', '.join(others)}" if others else nearest(name, known)
            yield Problem(f"{where}: {backend} has no key '{name}'", hint)
            continue
        what, fits = KINDS[known[name].kind]
        if not fits(value) and not (name == "hosts" and _are_hosts(value)):
            yield Problem(f"{where}: {name} must be {what}, not {value!r}")


def from_text(kind: str, text: str) -> object:
    """Return the value of a key from the command line: ``hosts=h1;h2``.

    A text that does not fit its kind stays.

    >>> from_text("texts", "h1;h2"), from_text("int", "22"), from_text("bool", "true")
    (('h1', 'h2'), 22, True)
    """
    if kind == "texts":
        return split_list(text)
    if kind == "lines":
        return tuple(text.splitlines())
    if kind == "int" and text.isascii() and text.isdigit():
        return int(text[:18])
    if kind == "bool" and text in ("true", "false", "1", "0"):
        return text in ("true", "1")
    return text


def leaves(value: object, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], object]]:
    """Yield (names that lead to it, value) of each value in tables and lists, at any depth."""
    if isinstance(value, dict):
        for name, each in value.items():
            yield from leaves(each, (*path, str(name)))
    elif isinstance(value, (list, tuple)):
        for each in value:
            yield from leaves(each, path)
    else:
        yield path, value


def _are_hosts(value: object) -> bool:
    """Return True if the value is a list of texts, or of pairs of a host and its address."""
    return isinstance(value, (list, tuple)) and all(
        isinstance(each, str) or (_all_are(str, each) and len(each) == 2) for each in value
    )
