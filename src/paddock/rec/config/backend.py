"""backend.yaml, below `engine:` (2020-05) or flat (1.8.5), or a site's name -> Cluster. Pure.

`paddock submit` reads such a file, too; here is what of it concerns the numbers and the pods, so
that the command which is run says them. docs/reference/sites.md.
"""

from __future__ import annotations

from paddock.rec.config.document import Document
from paddock.rec.config.keys import Given, Key, KeyReader, Settings, mapped, nearest, refused

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
    mapped("workspace", "the folder of config.yaml travels with the job"),
    mapped("cluster_type", VALUE),
    mapped("config.*", f"{VALUE}; communicator flags are lines of its config.ini"),
    refused("hdfs.*", "data by an fsspec URL in config.yaml; credentials in its own variables"),
    refused("package.*", "the folder of config.yaml and the launcher travel with the job"),
    refused("submit_scrpit", QUEUE), refused("job_scrpit", QUEUE),
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
    mapped("start_cmd", "the worker program is started with the same words"),
    mapped("files", "the folder of config.yaml travels with the job"),
    *(mapped(name, VALUE) for name in ("priority", "group", "version", "cluster", "config")),
    refused("ak", SECRET), refused("sk", SECRET), refused("hpc", QUEUE), refused("qconf", QUEUE),
)
# fmt: on
SECRETS = (("config", "fs_ugi"), ("hdfs", "ugi"))
KUBERNETES = ("form", "server_cpu", "gpus")
OF_PODS = ("cluster.image", "cluster.memory", "cluster.storage", "cluster.cpus", *KUBERNETES)


def is_file(text: str) -> bool:
    """Whether -b names a file rather than a site.

    >>> is_file("backend.yaml"), is_file("backend.yaml,form=job"), is_file("slurm,partition=p")
    (True, True, False)
    """
    return text.partition(",")[0].endswith((".yaml", ".yml"))


def read_backend(reader: KeyReader, path: str, extra: str) -> Settings:
    """What a backend.yaml says, by field. extra: `key=value,...` behind its name."""
    document = reader.document
    top = ("engine",) if isinstance(document.tree.get("engine"), dict) else ()
    for names in SECRETS:
        secret = (*top, *names)
        if document.get(secret):
            reader.used.add(secret)
            reader.fault(document.source(secret), f"{'.'.join(secret)} holds a secret", SECRET)
    found: Settings = {}
    reader.read(TOP, top, found)
    reader.read(SUBMIT, (*top, "submit"), found)
    _same_workers(reader, found)
    options: dict[str, object] = {}
    given = found.pop("options", None)
    if given is not None and isinstance(given.value, dict):
        options |= given.value
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
    if word not in ("kubernetes", "paddlecloud"):
        _drop_of_pods(reader, found, word)
    for name in KUBERNETES:
        if (value := found.pop(name, None)) is not None:
            options[name] = value.value
    if word == "kubernetes":
        options.setdefault("form", "volcano-job")
    nodes = found.pop("nodes", None)
    if nodes is not None:
        options["nodes"] = nodes.value
    options |= dict(pair.split("=", 1) for pair in extra.split(",") if "=" in pair)
    if word == "paddlecloud":
        word, options = "script", {**options, "conf": path}
    found["cluster.backend"] = Given(word, backend.source)
    found["cluster.options"] = Given(options, document.name)
    return found


def _drop_of_pods(reader: KeyReader, found: Settings, backend: str) -> None:
    """What this backend cannot honour is told: the same file serves the cluster, too."""
    for name in OF_PODS:
        if (given := found.pop(name, None)) is not None:
            key = next(key.name for key in (*SUBMIT, *TOP) if key.field == name)
            what = f"{given.source}: {key} is for pods, and backend {backend} has none"
            reader.warnings.append(f"{what}: it is not used")


def _same_workers(reader: KeyReader, found: Settings) -> None:
    other = found.pop("workers", None)
    if other is None:
        return
    first = found.setdefault("cluster.workers", other)
    if first.value != other.value:
        what = f"worker_num is {other.value}, and trainer_num is {first.value} ({first.source})"
        reader.fault(other.source, what, "they mean the same: leave one out")


def read_site(text: str) -> Settings:
    """-b with words of `paddock submit`: a backend or a site, with options after commas."""
    name = text.partition(",")[0]
    return {"cluster.backend": Given(name, "-b"), "cluster.options": Given({"site": text}, "-b")}


def unused_of(reader: KeyReader, document: Document) -> list[str]:
    """A warning for each key of a backend.yaml that nothing read."""
    known = {key.name for key in (*TOP, *SUBMIT)}
    found = []
    for path in reader.unused():
        hint = nearest(path[-1], known, "leave it out")
        found.append(f"{document.source(path)}: nothing reads {'.'.join(path)}; {hint}")
    return found
