"""Submission -> the objects of a job in the order they are made, and the plan of it. Pure.

A pod's environment (EnvVar) is among them. The job itself comes first, suspended; it owns all
others, so that Kubernetes removes them with it.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from paddock.backends.flags import foreign
from paddock.backends.kubernetes import forms
from paddock.backends.kubernetes.options import NO_IMAGE, KubernetesOptions, object_name
from paddock.backends.kubernetes.pods import CONTAINER, DEFAULT_CONTAINER, template_of
from paddock.backends.kubernetes.shown import reason_of, yaml_lines
from paddock.backends.kubernetes.words import (
    CONSOLE,
    PORT,
    START,
    START_OF_TASK,
    VALUE,
    meeting_words,
    split_flags,
)
from paddock.backends.types import PlanStep, Submission, SubmissionPlan
from paddock.contracts.paddle_ps import pod_env
from paddock.errors import UsageError
from paddock.kube.resource import Manifest, Resource
from paddock.local.runs.record import TERMINATION_LOG

# As they are sent and read here; those of paddock.kube.client need msgspec, which a plan does not.
SECRETS: Resource[dict[str, Any]] = Resource("", "v1", "secrets", "Secret", dict)
SERVICES: Resource[dict[str, Any]] = Resource("", "v1", "services", "Service", dict)
CONFIG_MAPS: Resource[dict[str, Any]] = Resource("", "v1", "configmaps", "ConfigMap", dict)
GROUPS: dict[str, Resource[dict[str, Any]]] = {
    "volcano": Resource("scheduling.volcano.sh", "v1beta1", "podgroups", "PodGroup", dict),
    "coscheduling": Resource("scheduling.x-k8s.io", "v1alpha1", "podgroups", "PodGroup", dict),
}
NAMESPACE = "$NAMESPACE"  # known only from the kubeconfig
MANAGED_BY = "app.kubernetes.io/managed-by"
MANAGER = "paddock-submit"
LABEL_RUN = "batch.paddlepaddle.org/run"
ANNOTATION = "batch.paddlepaddle.org/submission"
STOPPED = "batch.paddlepaddle.org/stopped"
TOKEN = "PADDOCK_TOKEN"
# Variables whose values a plan shows: ours.
SHOWN = (
    "PADDOCK_TASK", "PADDOCK_SERVICE", TERMINATION_LOG, *pod_env("worker", PORT, "a:1", "b:1"),
)  # fmt: skip
HIDDEN = "<set when it is submitted>"


@dataclass(frozen=True)
class PlannedObject:
    """An object to create: its resource and its manifest."""

    resource: Resource[Any]
    manifest: dict[str, Any]

    @property
    def name(self) -> str:
        return str(self.manifest["metadata"]["name"])

    @property
    def file(self) -> str:
        return f"{self.resource.kind.lower()}-{self.name}.yaml"


def objects_of(
    submission: Submission,
    options: KubernetesOptions,
    form: str,
    sent: Mapping[str, bytes],
    patch: Mapping[str, object],
) -> list[PlannedObject]:
    """Return the objects, the job first. Their namespace is the one they are made in.

    sent: the files that travel in ConfigMaps, by name; b"" for one that is not needed.
    """
    if not (options.image or is_file(submission, form)):
        raise UsageError(NO_IMAGE[0], hint=NO_IMAGE[1])
    name = object_name(submission.run_id)
    labels = {MANAGED_BY: MANAGER, LABEL_RUN: name}
    maps: list[PlannedObject] = []
    for key, data in sent.items():
        if data:
            coded = base64.b64encode(data).decode("ascii")
            meta: Manifest = {"name": f"{name}-{key.partition('.')[0]}", "labels": labels}
            content: Manifest = {"metadata": meta, "immutable": True, "binaryData": {key: coded}}
            maps.append(PlannedObject(CONFIG_MAPS, content))
    kept: Manifest = {"name": name, "labels": labels}
    secret: Manifest = {"metadata": kept, "immutable": True, "stringData": _secrets(submission)}
    spec = _spec(submission, options, form, name, labels, [one.name for one in maps], patch)
    noted = json.dumps(told(submission, options, form), ensure_ascii=False)
    document = json.loads(submission.file) if is_file(submission, form) else {}
    queue = {forms.KUEUE_QUEUE: options.queue} if options.scheduler == "kueue" else {}
    top: Manifest = {
        "name": name,
        "labels": forms.file_metadata(document, "labels") | labels | queue,
        "annotations": forms.file_metadata(document, "annotations") | {ANNOTATION: noted},
    }
    found = [PlannedObject(forms.RESOURCES[form], {"metadata": top, "spec": spec})]
    found += [PlannedObject(SECRETS, secret), *maps]
    if form == "job":
        found.append(PlannedObject(SERVICES, _service(name, labels)))
        if options.scheduler in GROUPS:
            group = forms.pod_group(options, name, submission.job.nnodes_max)
            found.append(
                PlannedObject(GROUPS[options.scheduler], {"metadata": dict(kept), "spec": group})
            )
    return found


def is_file(submission: Submission, form: str) -> bool:
    """Return True if the job is a PaddleJob as the user has written it."""
    return form == "paddlejob" and bool(submission.file)


def pod_names(submission: Submission, form: str) -> list[str]:
    name = object_name(submission.run_id)
    if is_file(submission, form):
        return forms.file_pod_names(json.loads(submission.file), name)
    return forms.pod_names(submission.job, form, name)


def owned(found: PlannedObject, owner: PlannedObject, uid: str) -> PlannedObject:
    """Return the object with an owner reference: Kubernetes removes it with its owner."""
    reference: Manifest = {
        "apiVersion": owner.resource.api_version, "kind": owner.resource.kind,
        "name": owner.name, "uid": uid, "blockOwnerDeletion": False,
    }  # fmt: skip
    metadata = {**found.manifest["metadata"], "ownerReferences": [reference]}
    return PlannedObject(found.resource, {**found.manifest, "metadata": metadata})


def is_held(options: KubernetesOptions, form: str) -> bool:
    """Return True if the job waits, suspended, for us.

    Kueue resumes a Job itself; Volcano's cannot.
    """
    return form == "paddlejob" or (form == "job" and options.scheduler != "kueue")


def told(submission: Submission, options: KubernetesOptions, form: str) -> dict[str, Any]:
    """Return the annotation that restores a lost registry entry.

    The pods have the launcher's flags.
    """
    job = submission.job
    # A pod for each process, or of a launcher of whose words we know nothing.
    is_split = form != "job" and (job.mode != "collective" or bool(submission.file))
    return {
        "name": submission.name, "run": submission.run_id, "program": job.command.program,
        "names": pod_names(submission, form),
        "roles": {} if is_split else forms.roles_of(job, list(options.devices.values())),
    }  # fmt: skip


def plan_of(
    submission: Submission, options: KubernetesOptions, form: str, found: list[PlannedObject]
) -> SubmissionPlan:
    namespace = options.namespace or NAMESPACE
    name = found[0].name
    ranks = forms.roles_shown(told(submission, options, form)["roles"])
    rows = tuple(
        (str(i), pod, ranks, _devices(options.of_servers if forms.serves(pod, name) else options))
        for i, pod in enumerate(pod_names(submission, form))
    )
    steps = [
        PlanStep(namespace, f"create {one.resource.kind} {one.name}",
                 ("POST", one.resource.path(namespace)))
        for one in found
    ]  # fmt: skip
    if is_held(options, form):
        path = found[0].resource.path(namespace, name)
        steps.append(PlanStep(namespace, f"start {name}: spec.suspend false", ("PATCH", path)))
    files: dict[str, str] = {}
    reasons: dict[str, set[str]] = {}
    for one in (found[0], *(owned(o, found[0], "<uid of the job>") for o in found[1:])):
        lines = yaml_lines(_visible(one))
        files[one.file] = "".join(f"{line}\n" for _, line in lines)
        for path, line in lines:
            reasons.setdefault(line.strip(), set()).add(reason_of(submission, path, line))
    # A line that stands in several places for several reasons is left without one.
    why = {line: told for line, (told, *others) in reasons.items() if told and not others}
    return SubmissionPlan(rows, tuple(steps), files, _cannot(submission, options, form), why)


def _devices(options: KubernetesOptions) -> str:
    return ", ".join(f"{n} {r}" for r, n in options.devices.items()) or "cpu"


def _spec(
    submission: Submission, options: KubernetesOptions, form: str, name: str, labels: Mapping[str,
    str],
    maps: list[str], patch: Mapping[str, object],
) -> Manifest:  # fmt: skip
    job = submission.job
    metadata = {"labels": {**labels}, "annotations": {DEFAULT_CONTAINER: CONTAINER}}
    if form == "job" and options.scheduler == "volcano":
        metadata["annotations"][forms.VOLCANO_GROUP] = name
    elif form == "job" and options.scheduler == "coscheduling":
        metadata["labels"][forms.COSCHEDULING_LABEL] = name

    def template(
        ours: Sequence[str], env: list[Manifest], start: str = START, *, serves: bool = False
    ) -> Manifest:
        return template_of(
            submission, options.of_servers if serves else options, metadata,
            secret=name, maps=maps, ours=ours, env=env, start=start, patch=patch,
        )  # fmt: skip

    if form == "job":
        words = meeting_words(submission, name, "$(JOB_COMPLETION_INDEX)")
        ip: Manifest = {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}
        return forms.job_spec(job, options, name, template([*words, *CONSOLE], [ip]))
    if is_file(submission, form):
        document = json.loads(submission.file)
        return forms.file_spec(document, image=options.image, secret=name, labels=labels)
    if form == "paddlejob":
        pods = {role: template(CONSOLE, [], serves=role == "ps")
                for role in forms.pods_of(job)}  # fmt: skip
        return forms.paddle_spec(job, options, pods)
    endpoints = [forms.endpoints(job, name, task) for task in (forms.TRAINER, forms.PSERVER)]
    templates = {}
    for task in forms.tasks_of(job):
        serves = task == forms.PSERVER
        env = {"PADDOCK_TASK": f"{name}-{task}", "PADDOCK_SERVICE": name}
        env |= pod_env("ps" if serves else "worker", PORT, *endpoints)
        entries: list[Manifest] = [{"name": key, "value": text} for key, text in env.items()]
        templates[task] = template(CONSOLE, entries, START_OF_TASK, serves=serves)
    return forms.volcano_spec(job, options, name, templates)


def _secrets(submission: Submission) -> dict[str, str]:
    """Return the job key and variables, which no plan or registry may show."""
    _, env = split_flags(submission.flags)
    found = {**submission.site.table("env"), **dict(submission.env), TOKEN: submission.token}
    found |= {f"{VALUE}{number}": text for number, (_, text) in enumerate(env)}
    if submission.job.rendezvous.kind == "etcd":
        found["PADDLE_MASTER"] = submission.job.rendezvous.etcd_url
    return found


def _service(name: str, labels: Mapping[str, str]) -> Manifest:
    """Return the Service that gives each pod of the Job a name: NAME-0.NAME."""
    return {
        "metadata": {"name": name, "labels": dict(labels)},
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": {LABEL_RUN: name},
            "ports": [{"name": "meeting", "port": PORT, "targetPort": PORT}],
        },
    }


def _visible(found: PlannedObject) -> Manifest:
    """Return the manifest as a plan may show it: no values of variables, no archives."""
    shown: dict[str, Any] = {
        "apiVersion": found.resource.api_version, "kind": found.resource.kind, **found.manifest,
    }  # fmt: skip
    if "spec" in shown:
        shown["spec"] = without_values(shown["spec"])
    if "stringData" in shown:
        shown["stringData"] = dict.fromkeys(shown["stringData"], HIDDEN)
    if "binaryData" in shown:
        sent = {key: base64.b64decode(text) for key, text in shown["binaryData"].items()}
        shown["binaryData"] = {
            key: f"<{len(data) / 1000:.0f} kB, sha256 {hashlib.sha256(data).hexdigest()}>"
            for key, data in sent.items()
        }
    return shown


def without_values(what: Any) -> Any:
    """Return a manifest without the values of variables that a file or a patch sets.

    >>> without_values([{"name": "KEY", "value": "x"}, {"name": "PADDLE_PORT", "value": "1"}])
    [{'name': 'KEY', 'value': '<not shown>'}, {'name': 'PADDLE_PORT', 'value': '1'}]
    """
    if isinstance(what, list):
        return [without_values(one) for one in what]
    if not isinstance(what, dict):
        return what
    found = {key: without_values(one) for key, one in what.items()}
    is_variable = set(what) == {"name", "value"} and what["name"] not in SHOWN
    return {**found, "value": "<not shown>"} if is_variable else found


def _cannot(submission: Submission, options: KubernetesOptions, form: str) -> tuple[str, ...]:
    """Return a sentence for each option that a cluster does not support."""
    found = [*foreign("kubernetes", submission.extra)]
    if is_file(submission, form):
        found.append("flags and the current directory: the file and its images say all")
    kept = "what the job writes stays on its volumes"
    if not options.volumes:
        kept = "output/ is gone with the pods: write to a volume (--volumes CLAIM:/path) to keep it"
    found.append(f"paddock fetch brings logs only; {kept}")
    if form == "job" and (options.server_cpu or options.server_memory or options.server_devices):
        found.append("server_cpu, server_memory, server_gpus: servers and trainers share their "
                     "pods, which have cpu, memory and gpus")  # fmt: skip
    if not submission.is_detached:
        found.append("the job goes on when this terminal is closed: end it with paddock stop")
    if form == "volcano-job" and submission.job.is_elastic:
        found.append("--nnodes MIN:MAX: Volcano starts all pods or none")
    if form == "volcano-job" and submission.job.role("heter") is not None:
        found.append("heter workers: the Volcano form has servers and trainers only")
    return tuple(found)
