"""backend.yaml, below `engine:` (2020-05) or flat (1.8.5), or a site's name -> Cluster. Pure.

`paddock submit` reads such a file, too; here are its keys for the numbers and the pods, so that the
command which is run says them (docs/reference/sites.md). choose_engine() and choose_cluster():
where a recipe runs, and how many of what, by config.yaml, backend.yaml and -o together.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from paddock.command_line import nearest
from paddock.errors import Problem
from paddock.rec.config.args import RecArgs
from paddock.rec.config.document import OPTION
from paddock.rec.config.keys import MAPPED, REFUSED, Draft, Given, Key, KeyReader, Settings
from paddock.rec.settings import Cluster, EngineKind

BACKENDS = {
    "k8s": "kubernetes", "kubernetes": "kubernetes", "paddlecloud": "paddlecloud", "mpi": "mpi",
    "slurm": "slurm", "ssh": "ssh", "ray": "ray", "local": "local", "script": "script",
}  # fmt: skip
QUEUE = "that queue is not public: -b mpi runs mpirun; for qsub write a site of backend script"
SECRET = "export it, and name the variable in credentials of the site; docs/guide/submit-script.md"
VALUE = "a value for the commands of a site of backend script"
# fmt: off
TOP: tuple[Key, ...] = (
    Key("backend", "text", "backend", "k8s, PaddleCloud, MPI; or slurm, ssh, ray, local, script"),
    Key("job_name", "text", "cluster.job_name", "what paddock status, logs and stop call it"),
    Key("form", "text", "form", "volcano-job, paddlejob or job", default="volcano-job"),
    Key("options.*", "any", "options",
        "more keys of a site of paddock submit: namespace, queue, hosts"),
    Key("workspace", MAPPED, "", "the folder of config.yaml travels with the job"),
    Key("cluster_type", MAPPED, "", VALUE),
    Key("config.*", MAPPED, "", f"{VALUE}; communicator flags are lines of its config.ini"),
    Key("hdfs.*", REFUSED, "",
        "data by an fsspec URL in config.yaml; credentials in its own variables"),
    Key("package.*", REFUSED, "", "the folder of config.yaml and the launcher travel with the job"),
    Key("submit_scrpit", REFUSED, "", QUEUE), Key("job_scrpit", REFUSED, "", QUEUE),
)
SUBMIT: tuple[Key, ...] = (
    Key("job_name", "text", "cluster.job_name", "the same"),
    Key("jobname", "text", "cluster.job_name", "the same, of PaddleCloud"),
    Key("server_num", "count or 0", "cluster.servers",
        "servers; of each node, where nodes are no pods"),
    Key("trainer_num", "count", "cluster.workers",
        "workers; of each node, where nodes are no pods"),
    Key("worker_num", "count", "workers", "the same, as PaddleRec's page called it"),
    Key("k8s_trainers", "count", "cluster.workers", "the same, of 1.8.5"),
    Key("k8s_ps_num", "count or 0", "cluster.servers", "servers, of 1.8.5"),
    Key("k8s_cpu_cores", "text", "cluster.cpus", "processors of a worker's pod", default="threads"),
    Key("k8s_ps_cores", "text", "server_cpu", "processors of a server's pod"),
    Key("k8s_gpu_card", "text", "gpus", "devices of a worker's pod"),
    Key("docker_image", "text", "cluster.image", "an image with Python 3.10 and the framework"),
    Key("memory", "text", "cluster.memory", "of each pod, as 4Gi"),
    Key("storage", "text", "cluster.storage", "ephemeral storage of each pod, as 10Gi"),
    Key("log_level", "count or 0", "cluster.log_level", "GLOG_v"),
    Key("nodes", "count", "nodes", "nodes of mpi, slurm, ssh or ray: a server and worker on each"),
    Key("start_cmd", MAPPED, "", "the worker program is started with the same words"),
    Key("files", MAPPED, "", "the folder of config.yaml travels with the job"),
    *(Key(name, MAPPED, "", VALUE)
      for name in ("priority", "group", "version", "cluster", "config")),
    *(Key(name, REFUSED, "", SECRET) for name in ("ak", "sk")),
    *(Key(name, REFUSED, "", QUEUE) for name in ("hpc", "qconf")),
)
# fmt: on
SECRETS = (("config", "fs_ugi"), ("hdfs", "ugi"))
KUBERNETES = ("form", "server_cpu", "gpus")
OF_PODS = ("cluster.image", "cluster.memory", "cluster.storage", "cluster.cpus", *KUBERNETES)


def read_backend(reader: KeyReader, path: str, extra: str) -> Settings:
    """The settings of a backend.yaml, by field. extra: `key=value,...` behind its name."""
    document, found = reader.document, Settings()
    top = ("engine",) if isinstance(document.tree.get("engine"), dict) else ()
    for names in SECRETS:
        secret = (*top, *names)
        if document.get(secret):
            reader.used.add(secret)
            reader.fault(document.source(secret), f"{'.'.join(secret)} holds a secret", SECRET)
    reader.read(TOP, top, found)
    reader.read(SUBMIT, (*top, "submit"), found)
    if (other := found.pop("workers", None)) is not None:
        first = found.setdefault("cluster.workers", other)
        if first.value != other.value:
            what = f"worker_num is {other.value}, and trainer_num is {first.value} ({first.source})"
            reader.fault(other.source, what, "they mean the same: leave one out")
    more = found.pop("options", Given(None, "")).value
    options: dict[str, object] = {**more} if isinstance(more, dict) else {}
    backend = found.pop("backend", None)
    if backend is None:
        where = document.source((*top, "backend"))
        reader.fault(where, "no backend is named", f"write backend: {', '.join(BACKENDS)}")
        return found
    word = BACKENDS.get(str(backend.value).lower())
    if word is None:
        what = f"there is no backend '{backend.value}'"
        reader.fault(backend.source, what, nearest(str(backend.value), BACKENDS))
        return found
    if word not in ("kubernetes", "paddlecloud"):  # Others may read the same file.
        for name in OF_PODS:
            if (unfit := found.pop(name, None)) is not None:
                key = next(key.name for key in (*SUBMIT, *TOP) if key.field == name)
                what = f"{unfit.source}: {key} is for pods, and backend {word} has none"
                reader.warnings.append(f"{what}: it is not used")
    options |= {name: found.pop(name).value for name in KUBERNETES if name in found}
    if word == "kubernetes":
        options.setdefault("form", "volcano-job")
    if (nodes := found.pop("nodes", None)) is not None:
        options["nodes"] = nodes.value
    options |= dict(pair.split("=", 1) for pair in extra.split(",") if "=" in pair)
    if word == "paddlecloud":
        word, options = "script", {**options, "conf": path}
    found["cluster.backend"] = Given(word, backend.source)
    found["cluster.options"] = Given(options, document.name)
    for unread in reader.unused():
        hint = nearest(unread[-1], {key.name for key in (*TOP, *SUBMIT)}, "leave it out")
        what = f"{document.source(unread)}: nothing reads {'.'.join(unread)}"
        reader.warnings.append(f"{what}; {hint}")
    return found


ORDER = [EngineKind.SINGLE, EngineKind.LOCAL_CLUSTER, EngineKind.CLUSTER]
MAX_LOCAL = 1024  # workers of one machine
COUNTS = ("cluster.servers", "cluster.workers")


def choose_engine(
    drafts: Sequence[Draft],
    cluster: Settings,
    name: str,
    request: RecArgs,
    problems: list[Problem],
    warnings: list[str],
    *,
    submits: bool,
) -> tuple[EngineKind, str]:
    """The engine of all runs, and the file and line that say so. name: of config.yaml.

    It is the largest that a run names: 1.8.5 has an engine for each. Without any, -b submits, and
    counts start servers here. A cluster needs -b, and others do not use it.
    """
    named = [d.settings["engine"] for d in drafts if "engine" in d.settings]
    if named:
        given = max(named, key=lambda each: ORDER.index(EngineKind(each.value)))
        engine, source = EngineKind(given.value), given.source
    elif cluster:
        engine, source = EngineKind.CLUSTER, "-b"
    else:
        is_many = any(count in d.settings for d in drafts for count in COUNTS)
        engine, source = EngineKind.LOCAL_CLUSTER if is_many else EngineKind.SINGLE, name
    if engine is EngineKind.SINGLE and any(map(is_collective, drafts)):
        engine = EngineKind.LOCAL_CLUSTER
    counts = (d.settings.get("cluster.workers") for d in drafts)
    is_large = any(count is not None and count.value > MAX_LOCAL for count in counts)
    if engine is EngineKind.LOCAL_CLUSTER and is_large:
        what = f"{source}: more than {MAX_LOCAL} workers on one machine"
        problems.append(Problem(what, "engine: cluster runs them on many"))
    word = "--replace" if request.replace else "--name" if request.name else ""
    if engine is EngineKind.CLUSTER:
        if submits and not request.backend:
            hint = "add -b backend.yaml, or -b SITE; -o engine=local_cluster runs it here"
            problems.append(Problem(f"{source}: engine cluster needs a backend.yaml", hint))
    elif word:
        what = f"{word}: for a job that is submitted, and the engine is {engine.value} ({source})"
        problems.append(Problem(what, "leave it out; or -o engine=cluster, with -b"))
    elif cluster:
        what = f"{source}: the engine is {engine.value}, so -b {request.backend} is not used"
        warnings.append(f"{what}; -o engine=cluster submits the job")
    return engine, source


def is_collective(draft: Draft) -> bool:
    """The run averages gradients among its processes, and has no servers."""
    said = {name: given.value for name, given in draft.settings.items()}
    if said.get("collective"):
        return True
    is_many = said.get("device", "cpu") != "cpu" and len(said.get("devices") or ()) > 1
    return said.get("fleet") == "collective" or (is_many and not draft.is_evaluation)


def choose_cluster(
    drafts: Sequence[Draft], cluster: Settings, engine: EngineKind
) -> tuple[Cluster, Settings]:
    """The counts, and what processes without servers run on; and the settings that say so.

    By -o, then by backend.yaml, then by config.yaml. On this machine config.yaml goes before
    backend.yaml.
    """
    counts: Settings = {}
    for draft in drafts:
        counts |= {k: g for k, g in draft.settings.items() if k.startswith("cluster.")}
    for name, given in cluster.items():
        own = counts.get(name)
        is_said = own is not None and own.source.startswith(OPTION)
        if not is_said and (engine is EngineKind.CLUSTER or own is None):
            counts[name] = given
    values: dict[str, Any] = {
        name.removeprefix("cluster."): given.value for name, given in counts.items()
    }
    options = dict(values.pop("options", None) or {})
    if not values.get("servers", 0 if any(map(is_collective, drafts)) else 1):
        values["servers"] = 0
        devices = [g.value for d in drafts if (g := d.settings.get("devices")) is not None]
        options["collective"] = True
        if devices:
            values.setdefault("workers", len(devices[-1]))
            options["devices"] = ",".join(devices[-1])
        elif "workers" not in values:
            options["per_device"] = True
    return Cluster(**values, options=options), counts
