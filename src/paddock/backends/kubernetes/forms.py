"""The three kinds of jobs that a submission can become: the spec of each around its pods. Pure.

job           batch/v1 Job, completionMode Indexed: names and numbers without an operator
paddlejob     batch.paddlepaddle.org/v1 PaddleJob: Paddock's operator, or paddle-operator
volcano-job   batch.volcano.sh/v1alpha1 Job: a task per role, all at once, as PaddleRec had it
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

from paddock.backends.kubernetes.options import KubernetesOptions
from paddock.backends.kubernetes.pods import DEFAULT_CONTAINER, END_VARIABLE, without_empty
from paddock.backends.kubernetes.words import PORT
from paddock.backends.types import role_word
from paddock.core.job import Job, Role
from paddock.core.value import replace
from paddock.errors import UsageError
from paddock.kube.resource import GROUP, Manifest, Resource

JOBS: Resource[dict[str, Any]] = Resource("batch", "v1", "jobs", "Job", dict)
PADDLE: Resource[dict[str, Any]] = Resource(GROUP, "v1", "paddlejobs", "PaddleJob", dict)
VOLCANO: Resource[dict[str, Any]] = Resource("batch.volcano.sh", "v1alpha1", "jobs", "Job", dict)
RESOURCES = {"job": JOBS, "paddlejob": PADDLE, "volcano-job": VOLCANO}
KUEUE_QUEUE = "kueue.x-k8s.io/queue-name"
VOLCANO_GROUP = "scheduling.k8s.io/group-name"
COSCHEDULING_LABEL = "scheduling.x-k8s.io/pod-group"
# Processes of a ps job, as the launcher of a pod reads them (jobfile/environment.py).
TRAINER, PSERVER = "trainer", "pserver"
ORDER = ("ps", "worker", "heter")


def job_spec(job: Job, options: KubernetesOptions, name: str, template: dict[str, Any]) -> Manifest:
    """Return the spec of an Indexed Job. It waits, suspended, until all of its objects exist.

    An index fails alone: the launchers end one another, and every log stays. A pod that the
    cluster takes away comes back only where the others have gone on without it.
    """
    found: Manifest = {
        "suspend": True,
        "completionMode": "Indexed",
        "completions": job.nnodes_max,
        "parallelism": job.nnodes_max,
        "backoffLimitPerIndex": 0,
        "template": template,
    }
    if job.is_elastic:
        taken = {"type": "DisruptionTarget", "status": "True"}
        rule = {"action": "Ignore", "onPodConditions": [taken]}
        found["podFailurePolicy"] = {"rules": [rule]}
    template["spec"]["subdomain"] = name
    if options.scheduler == "volcano":
        template["spec"]["schedulerName"] = "volcano"
    return found


def pods_of(job: Job) -> dict[str, int]:
    """Return a PaddleJob's pods by role: one for each node; with servers, one for each process."""
    if job.mode == "collective":
        return {"worker": job.nnodes_max}
    roles = sorted(job.roles, key=lambda role: ORDER.index(role.name))
    return {role.name: processes(job, role.name) for role in roles}


def paddle_spec(
    job: Job, options: KubernetesOptions, templates: Mapping[str, Manifest]
) -> Manifest:
    roles = pods_of(job)
    found: Manifest = {"suspend": True, "cleanPodPolicy": "Never"}
    if options.scheduler in ("volcano", "coscheduling"):
        found["schedulingPolicy"] = without_empty({
            "scheduler": options.scheduler, "minAvailable": sum(roles.values()),
            "queue": options.queue, "priorityClass": options.priority_class,
        })  # fmt: skip
    if job.is_elastic:
        found["elastic"] = job.elastic.level
    for role, replicas in roles.items():
        one: Manifest = {"replicas": replicas}
        if role == "worker" and job.is_elastic:
            one |= {"requests": job.nnodes_min, "limits": job.nnodes_max}
        found[role] = one | {"template": templates[role]}
    return found


def volcano_spec(
    job: Job, options: KubernetesOptions, name: str, templates: Mapping[str, Manifest]
) -> Manifest:
    """Return the spec of a Job of Volcano: every pod or none; it ends with the first trainer."""
    tasks = []
    for task, template in templates.items():
        one: Manifest = {"name": task, "replicas": tasks_of(job)[task], "template": template}
        if task == TRAINER:
            one["policies"] = [{"event": "TaskCompleted", "action": "CompleteJob"}]
        tasks.append(one)
    found: Manifest = {
        "schedulerName": "volcano",
        "minAvailable": sum(tasks_of(job).values()),
        "policies": [
            {"event": event, "action": "RestartJob"} for event in ("PodEvicted", "PodFailed")
        ],
        "maxRetry": max(job.restart.max_restarts, 1),
        "plugins": {"svc": ["--publish-not-ready-addresses=true"], "env": []},
        "tasks": tasks,
    }
    more: Manifest = {"queue": options.queue, "priorityClassName": options.priority_class}
    return found | without_empty(more)


def with_roles(job: Job, form: str, servers: int, trainers: int) -> Job:
    """Return the job with the roles of its site if it names none, as PaddleRec had it.

    servers, trainers: numbers of pods; trainers is 0 where -n gives it. Raises UsageError for a
    form that has one kind of pod.

    >>> from paddock.core.job import Entrypoint, Job
    >>> tasks_of(with_roles(Job(Entrypoint("script", "t.py")), "volcano-job", 2, 3))
    {'pserver': 2, 'trainer': 3}
    """
    if job.role("ps") is not None or not (servers or trainers):
        return job
    if not servers:
        return replace(job, nnodes_min=trainers, nnodes_max=trainers)
    if form == "job":
        raise UsageError(
            f"server_num = {servers} of the site: in form job every pod has the same processes",
            hint="form=paddlejob or volcano-job; or -n N --server-num 1 --trainer-num 1: both in"
            " each pod",
        )
    roles = (Role("ps", servers), Role("worker", trainers or job.nnodes_max))
    return replace(job, mode="ps", roles=roles, nnodes_min=1, nnodes_max=1)


def tasks_of(job: Job) -> dict[str, int]:
    """Return the tasks of a Job of Volcano and their numbers of pods, servers first."""
    if job.role("ps") is None:
        return {TRAINER: job.nnodes_max}
    return {PSERVER: processes(job, "ps"), TRAINER: processes(job, "worker")}


def processes(job: Job, role: str) -> int:
    """Return the number of processes of a role in the whole job."""
    found = next((r for r in job.roles if r.name == role), None)
    if found is None:
        return 0
    return len(found.endpoints) or (found.count or 1) * job.nnodes_max


def endpoints(job: Job, name: str, task: str) -> str:
    """Return the addresses of a task's pods in a Job of Volcano (its plug-in svc).

    >>> from paddock.core.job import Entrypoint, Job
    >>> endpoints(Job(Entrypoint("script", "t.py"), nnodes_max=2), "a", "trainer")
    'a-trainer-0.a:36767,a-trainer-1.a:36767'
    """
    return ",".join(f"{name}-{task}-{i}.{name}:{PORT}" for i in range(tasks_of(job).get(task, 0)))


def pod_names(job: Job, form: str, name: str) -> list[str]:
    """Return the names of the pods, without the suffix of pods of an Indexed Job."""
    if form == "job":
        return [f"{name}-{index}" for index in range(job.nnodes_max)]
    if form == "volcano-job":
        return [f"{name}-{task}-{i}" for task, n in tasks_of(job).items() for i in range(n)]
    return [f"{name}-{role}-{i}" for role, n in pods_of(job).items() for i in range(n)]


def serves(pod: str, name: str) -> bool:
    """Return True if a pod of the job NAME runs servers only.

    >>> serves("a-ps-0", "a"), serves("a-pserver-1", "a"), serves("ps-0", "ps")
    (True, True, False)
    """
    return pod.startswith((f"{name}-ps-", f"{name}-{PSERVER}-"))


def pod_group(options: KubernetesOptions, name: str, members: int) -> Manifest:
    more: Manifest = {}
    if options.scheduler == "volcano":
        more = {"queue": options.queue, "priorityClassName": options.priority_class}
    return {"minMember": members, **without_empty(more)}


def roles_of(job: Job, devices: Sequence[str]) -> dict[str, int]:
    """Return the processes of a pod that has several, by role, servers first; workers one a device.

    >>> from paddock.core.job import Entrypoint, Job
    >>> roles_of(Job(Entrypoint("script", "t.py"), roles=(Role("worker"), Role("ps", 1))), ["4"])
    {'server': 1, 'worker': 4}
    """
    each = int(devices[0]) if devices else 0
    roles = sorted(job.roles, key=lambda role: ORDER.index(role.name))
    return {role_word(role.name): role.count or each or role.on_cpu for role in roles}


def roles_shown(roles: Mapping[str, int]) -> str:
    """Return the processes of a pod as text for the plan's table.

    >>> roles_shown({"worker": 2}), roles_shown({"server": 1, "worker": 2}), roles_shown({})
    ('2', '1 server, 2 worker', '1')
    """
    if len(roles) > 1:
        return ", ".join(f"{count} {role}" for role, count in roles.items())
    return str(*roles.values()) or "1"


def file_metadata(document: Mapping[str, Any], name: str) -> dict[str, str]:
    """Return the labels or annotations that the file gives the job."""
    return dict(_table(_table(document, "metadata"), name))


def file_pod_names(document: Mapping[str, Any], name: str) -> list[str]:
    """Return the names that the operator gives the pods of a PaddleJob from -f.

    >>> file_pod_names({"spec": {"ps": {"replicas": 1}, "worker": {"replicas": 2}}}, "a")
    ['a-ps-0', 'a-worker-0', 'a-worker-1']
    """
    spec = _table(document, "spec")
    counts = {role: _table(spec, role).get("replicas", 1) for role in ORDER if role in spec}
    return [f"{name}-{role}-{i}" for role, count in counts.items() for i in range(int(count or 0))]


def file_spec(
    document: Mapping[str, Any], *, image: str, secret: str, labels: Mapping[str, str]
) -> Manifest:
    """Return the spec of a PaddleJob that -f names, for its operator: as it is written.

    Added are only labels that find its pods, suspension until all objects exist, the variables of
    --env, and the place for the launcher's last sentence. Its image has its code; --image replaces
    it. Pods stay when they have ended, unless the file says otherwise.
    """
    spec: dict[str, Any] = {"cleanPodPolicy": "Never", **copy.deepcopy(_table(document, "spec"))}
    spec["suspend"] = True
    for role in ORDER:
        template = _table(_table(spec, role), "template")
        if not template:
            continue
        metadata = template.setdefault("metadata", {})
        metadata["labels"] = {**_table(metadata, "labels"), **labels}
        first = next(iter(_table(template, "spec").get("containers") or [{}]))
        metadata["annotations"] = {
            DEFAULT_CONTAINER: first.get("name", ""), **_table(metadata, "annotations"),
        }  # fmt: skip
        path = first.get("terminationMessagePath") or END_VARIABLE["value"]
        first["env"] = [*(first.get("env") or ()), {**END_VARIABLE, "value": path}]
        first["envFrom"] = [*(first.get("envFrom") or ()), {"secretRef": {"name": secret}}]
        if image:
            first["image"] = image
    return spec


def _table(what: Mapping[str, Any], name: str) -> dict[str, Any]:
    found = what.get(name)
    return found if isinstance(found, dict) else {}
