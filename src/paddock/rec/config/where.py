"""Where a recipe runs, and how many of what: config.yaml, backend.yaml and -o together. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from paddock.errors import Problem
from paddock.rec.config.args import RecArgs
from paddock.rec.config.build import Draft
from paddock.rec.config.document import OPTION
from paddock.rec.config.keys import Settings
from paddock.rec.settings import Cluster, EngineKind

ORDER = [EngineKind.SINGLE, EngineKind.LOCAL_CLUSTER, EngineKind.CLUSTER]
MAX_LOCAL = 1024  # workers of one machine
COUNTS = ("cluster.servers", "cluster.workers")


def choose_engine(
    drafts: Sequence[Draft], cluster: Settings, name: str
) -> tuple[EngineKind, str, list[Problem]]:
    """Where all runs run, the file and line that say so, and what is wrong with that.

    It is the largest that a run names: 1.8.5 has an engine for each. Without any, -b submits, and
    counts start servers here. name: of config.yaml.
    """
    named = [d.settings["engine"] for d in drafts if "engine" in d.settings]
    problems = []
    if named:
        given = max(named, key=lambda each: ORDER.index(EngineKind(each.value)))
        engine, source = EngineKind(given.value), given.source
    elif cluster:
        engine, source = EngineKind.CLUSTER, "-b"
    else:
        is_many = any(count in d.settings for d in drafts for count in COUNTS)
        engine = EngineKind.LOCAL_CLUSTER if is_many else EngineKind.SINGLE
        source = name
    if engine is EngineKind.SINGLE and any(map(is_collective, drafts)):
        engine = EngineKind.LOCAL_CLUSTER
    if engine is EngineKind.LOCAL_CLUSTER and any(
        d.settings["cluster.workers"].value > MAX_LOCAL
        for d in drafts
        if "cluster.workers" in d.settings
    ):
        what = f"{source}: more than {MAX_LOCAL} workers on one machine"
        problems.append(Problem(what, "engine: cluster runs them on many"))
    return engine, source, problems


def is_collective(draft: Draft) -> bool:
    """Whether a run averages gradients among its processes, and has no servers."""
    said = {name: given.value for name, given in draft.settings.items()}
    if said.get("collective"):
        return True
    is_many = said.get("device", "cpu") != "cpu" and len(said.get("devices") or ()) > 1
    return said.get("fleet") == "collective" or (is_many and not draft.is_evaluation)


def check_backend(
    engine: EngineKind, source: str, cluster: Settings, request: RecArgs, *, submits: bool
) -> tuple[list[Problem], list[str]]:
    """A cluster needs -b, and others do not use it: problems and warnings."""
    named = "--replace" if request.replace else "--name" if request.name else ""
    if named and engine is not EngineKind.CLUSTER:
        what = f"{named}: for a job that is submitted, and the engine is {engine.value} ({source})"
        return [Problem(what, "leave it out; or -o engine=cluster, with -b")], []
    if cluster and engine is not EngineKind.CLUSTER:
        what = f"{source}: the engine is {engine.value}, so -b {request.backend} is not used"
        return [], [f"{what}; -o engine=cluster submits the job"]
    if engine is EngineKind.CLUSTER and not request.backend and submits:
        hint = "add -b backend.yaml, or -b SITE; -o engine=local_cluster runs it here"
        return [Problem(f"{source}: engine cluster needs a backend.yaml", hint)], []
    return [], []


def merge_counts(drafts: Sequence[Draft], cluster: Settings, engine: EngineKind) -> Settings:
    """What is said of the cluster: by -o, then by backend.yaml, then by config.yaml.

    On this machine config.yaml goes before backend.yaml.
    """
    found: Settings = {}
    for draft in drafts:
        found |= {k: g for k, g in draft.settings.items() if k.startswith("cluster.")}
    for name, given in cluster.items():
        own = found.get(name)
        is_said = own is not None and own.source.startswith(OPTION)
        if not is_said and (engine is EngineKind.CLUSTER or own is None):
            found[name] = given
    return found


def choose_cluster(drafts: Sequence[Draft], counts: Settings) -> Cluster:
    """The counts, and what processes without servers run on."""
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
    return Cluster(**values, options=options)
