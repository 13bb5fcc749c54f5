"""PaddleRec's backend.yaml as a site. Pure.

Source: PaddleRec of 2020-05 (`engine:` above all, backend k8s) and 1.8.5 (`backend:` on top,
PaddleCloud or kubernetes). Their PaddleCloud client is not public: its command is the site's.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Mapping

from paddock.backends.sites.keys import leaves, secret_problems
from paddock.backends.types import Site
from paddock.command_line import nearest
from paddock.errors import Problem, UsageError, refuse
from paddock.local.runs.entry import as_name

KNOWN = ("k8s", "kubernetes", "PaddleCloud", "MPI")
# Key of `submit` -> key of a site, for Kubernetes. Their page said worker_num, their code read
# trainer_num.
KUBERNETES = {
    "server_num": "server_num",
    "trainer_num": "trainer_num",
    "worker_num": "trainer_num",
    "docker_image": "image",
    "memory": "memory",
    "storage": "storage",
}
COUNTS = {"server_num": 0, "trainer_num": 1}  # key of a site -> the smallest
JOB_NAMES = ("job_name", "jobname")
CREDENTIALS = ("fs_ugi", "ugi")  # user and password of the file system


def site_from_document(document: Mapping[str, object], name: str, folder: str = ".") -> Site:
    """Return the site of a backend.yaml. Raises UsageError with every problem.

    folder: the base of its relative file names.

    >>> submit = {"server_num": 2, "docker_image": "i:1"}
    >>> site = site_from_document({"engine": {"backend": "k8s", "submit": submit}}, "b.yaml")
    >>> site.backend, site.options["image"], site.options["server_num"]
    ('kubernetes', 'i:1', 2)
    """
    problems = [*secret_problems(document, name), *_credentials(document, name)]
    refuse(problems)
    inner = document.get("engine", document)
    top = inner if isinstance(inner, dict) else {}
    backend = str(top.get("backend", ""))
    submit = top.get("submit")
    if not isinstance(submit, dict):
        raise UsageError(f"{name} has no submit:", hint="see docs/reference/sites.md")
    if backend.lower() in ("k8s", "kubernetes"):
        return _kubernetes(top, submit, name)
    if backend.lower() == "paddlecloud":
        return _paddlecloud(top, submit, name, folder)
    if backend.lower() == "mpi":
        raise UsageError(
            f"{name}: backend MPI was a queue that is not public",
            hint="-b mpi runs mpirun itself; for a queue with qsub write a site of backend script",
        )
    raise UsageError(f"{name}: there is no backend '{backend}'", hint=nearest(backend, KNOWN))


def _kubernetes(top: Mapping[str, object], submit: Mapping[str, object], name: str) -> Site:
    options: dict[str, object] = {"form": "volcano-job"}
    sources: dict[str, str] = {"form": f"{name}: backend"}
    problems: list[Problem] = []
    for key, value in submit.items():
        where = f"{name}: submit.{key}"
        if key == "log_level":
            options["env"] = {"GLOG_v": str(value)}
            sources["env"] = where
        elif key not in KUBERNETES:
            if key not in JOB_NAMES:
                known = (*KUBERNETES, *JOB_NAMES, "log_level")
                problems.append(Problem(f"{where} is not known", nearest(str(key), known)))
        elif KUBERNETES[key] in COUNTS:
            count, least = _count(value), COUNTS[KUBERNETES[key]]
            if count is None or count < least:
                what = f"{where} must be a whole number from {least} on, not {value!r}"
                problems.append(Problem(what))
            elif options.setdefault(KUBERNETES[key], count) != count:
                other = f"{sources[KUBERNETES[key]]} is {options[KUBERNETES[key]]}"
                hint = "they mean the same: leave one out"
                problems.append(Problem(f"{where} is {count}, and {other}", hint))
            sources.setdefault(KUBERNETES[key], where)
        else:
            options[KUBERNETES[key]] = str(value)
            sources[KUBERNETES[key]] = where
    refuse(problems)
    _take_name(top, submit, options, sources, name)
    return Site("kubernetes", "kubernetes", options, sources)


def _paddlecloud(
    top: Mapping[str, object], submit: Mapping[str, object], name: str, folder: str
) -> Site:
    """Return a script site with the values that its commands may use: params, config.ini, files."""
    config = top.get("config", {})
    if not isinstance(config, dict):
        raise UsageError(f"{name}: config must be a table")
    params = dict(_scalars(config)) | dict(_scalars(submit))
    params.pop("files", None)
    cluster = str(top.get("cluster_type", "mpi")).lower()
    ini = {"PADDLE_PADDLEREC_ROLE": "WORKER", "PADDLEREC_CLUSTER_TYPE": cluster.upper()}
    communicator = config.get("communicator", {})
    ini |= dict(_scalars(communicator if isinstance(communicator, dict) else {}))
    files = submit.get("files", "")
    words = files if isinstance(files, list) else str(files).split()
    options: dict[str, object] = {"params": {**params, "cluster_type": cluster}, "config": ini}
    sources = {"params": f"{name}: submit, config", "config": f"{name}: config.communicator"}
    if words:
        options["files"] = [posixpath.join(folder, str(each)) for each in words]
        sources["files"] = f"{name}: submit.files"
    _take_name(top, submit, options, sources, name)
    return Site("script", "script", options, sources)


def _take_name(
    top: Mapping[str, object],
    submit: Mapping[str, object],
    options: dict[str, object],
    sources: dict[str, str],
    name: str,
) -> None:
    """Set the job's name in the options: theirs have capitals and underscores, ours cannot."""
    for table, where in ((top, ""), (submit, "submit.")):
        for key in JOB_NAMES:
            if table.get(key):
                options["job_name"] = as_name(str(table[key]))
                sources["job_name"] = f"{name}: {where}{key}"


def _count(value: object) -> int | None:
    """Return a number of pods, which may stand in quotes."""
    text = "" if isinstance(value, bool) else str(value)
    return int(text) if text.isdecimal() and len(text) < 10 else None


def _scalars(table: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    for key, value in table.items():
        if isinstance(value, (str, int, float)):
            yield str(key), str(value)


def _credentials(document: object, name: str) -> Iterator[Problem]:
    """Yield a problem for the file system's user and password: their key does not sound secret."""
    for path, value in leaves(document):
        if path[-1] in CREDENTIALS and value:
            yield Problem(
                f"{name}: {path[-1]} holds a secret", "give it in the environment: FS_UGI"
            )
