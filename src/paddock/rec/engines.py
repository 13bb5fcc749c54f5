"""Recipe -> the command that carries it out, as words. Pure.

One process trains in `paddock rec` itself. Of the other engines each is another program, which
takes its place: its exit code is the exit code, Ctrl-C is its own. Their workers get the words that
`paddock rec` got, and on this machine the recipe that it resolved (run.py).
"""

from __future__ import annotations

import posixpath
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from paddock.errors import Problem, UsageError
from paddock.rec.config.args import RecArgs
from paddock.rec.config.keys import is_secret
from paddock.rec.settings import Cluster, EngineKind, Recipe

WORKER = "paddock.rec.worker"
# Where servers remember how far everybody is. PADDLE_MAX_RESTART goes before it, as in launch.
RESTARTS = 3
# Workers of a new attempt go on where they were: so do the servers (contracts/environment.py). Not
# where an attempt has new pods: their disks are empty.
STATE = {"PADDOCK_PS_STATE": "job"}
# Keys of `options` that are none of a site's.
OWN = ("site", "conf", "nodes", "form", "collective", "per_device", "devices")


@dataclass(frozen=True)
class Command:
    """A program to run. env: variables that it gets besides those that are there.

    is_here: the process that was given the command is itself the worker. worker: the words of the
    worker program.
    """

    words: tuple[str, ...]
    env: Mapping[str, str]
    is_here: bool
    worker: Sequence[str] = ()


def command(recipe: Recipe, request: RecArgs, config: str, python: str) -> Command:
    """The command of a recipe. config: the config.yaml, as a path of this machine."""
    engine, cluster = recipe.engine, recipe.cluster
    is_cluster, is_alone = engine is EngineKind.CLUSTER, engine is EngineKind.SINGLE
    # A cluster without -b passes only inside of one (config/resolve.py).
    is_here = is_alone or request.role == "WORKER" or (is_cluster and cluster.backend is None)
    threads = max((run.strategy.threads for run in recipe.runs), default=1)
    if is_cluster and not is_here:
        words = _submit(recipe, request, config, threads)
        return Command((python, "-m", "paddock", *words), {}, is_here)
    # Workers beside one another share the cores: frameworks would each take them all.
    env = {} if is_alone and threads == 1 else {"OMP_NUM_THREADS": str(threads)}
    worker = worker_words(request, request.model)
    if is_here:
        return Command((python, "-u", "-m", WORKER, *worker), env, is_here, worker)
    counts = _counts(cluster)
    if cluster.max_restart is None and cluster.servers:
        counts += _restarts(RESTARTS)
    # The workers' lines are what the user came for; the launcher's are for `paddock launch`.
    quiet = ("--log_level", "WARNING")
    launch = (python, "-m", "paddock", "launch", *quiet, *counts, "-m", WORKER, *worker)
    return Command(launch, {**env, **STATE}, is_here, worker)


def worker_words(request: RecArgs, model: str) -> list[str]:
    """The words of the worker program.

    >>> worker_words(RecArgs("c.yaml", options=(("epochs", "2"),), evaluate=True), "c.yaml")
    ['-m', 'c.yaml', '-o', 'epochs=2', '--evaluate']
    """
    found = ["-m", model]
    for key, text in request.options:
        found += ["-o", f"{key}={text}"]
    return [*found, "--evaluate"] if request.evaluate else found


def _restarts(count: int) -> list[str]:
    """A program that ended by itself would do so again: that is not what a restart is for."""
    return ["--max_restart", str(count), *(["--restart-on", "signal"] if count else [])]


def _counts(cluster: Cluster) -> list[str]:
    """How many of what, in the words of `paddock launch`."""
    again = [] if cluster.max_restart is None else _restarts(cluster.max_restart)
    if cluster.options.get("collective") and not cluster.servers:
        devices = cluster.options.get("devices")
        found = ["--devices", str(devices)] if devices else []
        if not cluster.options.get("per_device"):
            found += ["--nproc_per_node", str(cluster.workers)]
        return [*found, *again]
    return [
        "--server_num", str(cluster.servers), "--worker_num", str(cluster.workers),
        "--server_script", "pserver", *again,
    ]  # fmt: skip


def _submit(recipe: Recipe, request: RecArgs, config: str, threads: int) -> list[str]:
    """The words of `paddock submit`, which are kept with the job. Raises UsageError: a secret."""
    told = [key for key, text in request.options if is_secret(key) and "${" not in text]
    if told:
        raise UsageError.of(
            [
                Problem(
                    f"-o {key} is a secret, and this command would be kept with the job",
                    f"-o '{key}=${{NAME}}' is looked up there: see credentials of the site",
                )
                for key in told
            ]
        )
    cluster = recipe.cluster
    options = cluster.options
    found = ["submit", "-b", _site(cluster)]
    if conf := options.get("conf"):
        found += ["--conf", str(conf)]
    if request.name or cluster.job_name != Cluster.job_name:
        found += ["--name", request.name or as_name(cluster.job_name)]
    if request.replace:
        found += ["--replace"]
    root, model = package_of(recipe, request, config)
    found += ["--package", root]
    if nodes := options.get("nodes"):
        found += ["-n", str(nodes)]
    if cluster.backend == "kubernetes":
        pairs = [("--image", cluster.image), ("--memory", cluster.memory),
                 ("--cpu", cluster.cpus or str(threads))]  # fmt: skip
        # Said behind the file's name, as -b backend.yaml,cpu=300m: it is of the site, and wins.
        pairs = [pair for pair in pairs if pair[0].removeprefix("--") not in options]
        found += [word for name, value in pairs if value for word in (name, value)]
    if cluster.log_level is not None:
        found += ["--env", f"GLOG_v={cluster.log_level}"]
    found += ["--env", f"OMP_NUM_THREADS={threads}"]
    form = options.get("form")
    if form is None and (pairs_ := str(options.get("site", "")).split(",")[1:]):
        form = dict(pair.partition("=")[::2] for pair in pairs_).get("form")
    # An attempt makes servers and workers anew that have pods of their own.
    has_own_pods = cluster.backend == "kubernetes" and form != "job"
    if cluster.max_restart and cluster.servers and not has_own_pods:
        found += [word for name, value in STATE.items() for word in ("--env", f"{name}={value}")]
    found += _counts(cluster)
    return [*found, "-m", WORKER, *worker_words(request, model)]


def _site(cluster: Cluster) -> str:
    """-b of `paddock submit`: what was typed, or the backend with its options."""
    options = dict(cluster.options)
    if "site" in options:
        return str(options["site"])
    words = [str(cluster.backend)]
    if "form" in options:
        words.append(f"form={options['form']}")
    if cluster.storage:
        words.append(f"storage={cluster.storage}")
    for name, value in options.items():
        if name not in OWN:
            text = ";".join(map(str, value)) if isinstance(value, list) else str(value)
            words.append(f"{name}={text}")
    return ",".join(words)


def package_of(recipe: Recipe, request: RecArgs, config: str) -> tuple[str, str]:
    """The directory that travels: config.yaml's, the models' and the readers'; -m as seen there.

    Bundled models travel with the launcher, so a dotted name stays one.
    """
    folder = posixpath.dirname(config)
    if _is_ours(config) and "/" not in request.model and not request.model.endswith(".yaml"):
        return folder, request.model
    files = [folder]
    for run in recipe.runs:
        files.append(run.model_directory)
        readings = [each for each in (run.reading, run.test) if each is not None]
        files += [posixpath.dirname(each.reader) for each in readings if "/" in each.reader]
    own = [path for path in files if not _is_ours(path)]
    root = posixpath.commonpath(own) if own else folder
    return root, posixpath.relpath(config, root)


def _is_ours(path: str) -> bool:
    return "/paddock/rec/models" in path


def as_name(text: str) -> str:
    """A name that jobs may have.

    >>> as_name("PaddleRec_CTR"), as_name("k8s-ctr-dnn")
    ('paddlerec-ctr', 'k8s-ctr-dnn')
    """
    found = "".join(c if c.isascii() and c.isalnum() else "-" for c in text.lower())
    return found.strip("-")[:52].strip("-") or "paddlerec"
