"""Calls to the API server: create, list, look up and end jobs; each over one connection."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from paddock.backends.kubernetes.forms import JOBS, RESOURCES, VOLCANO
from paddock.backends.kubernetes.objects import (
    LABEL_RUN,
    MANAGED_BY,
    MANAGER,
    STOPPED,
    PlannedObject,
    owned,
)
from paddock.backends.kubernetes.parse import (
    ObservedJob,
    container_of,
    hopeless,
    is_lost,
    newest_pods,
    note_of,
)
from paddock.backends.kubernetes.words import FOLDER
from paddock.errors import PaddockError, UsageError
from paddock.kube.client import PODS, KubeError, Query, Resource
from paddock.kube.connect import find_config
from paddock.kube.http_client import HttpClient
from paddock.kube.http_client import ask as ask
from paddock.kube.objects import Pod, rfc3339
from paddock.watch.folder import ANSWER, ANSWER_SECONDS, QUESTION
from paddock.watch.history import MOVES, STANDS, marks, row_of, standing

EVENTS: Resource[dict[str, Any]] = Resource("", "v1", "events", "Event", dict)
COMMANDS: Resource[dict[str, Any]] = Resource(
    "bus.volcano.sh", "v1alpha1", "commands", "Command", dict
)
LABEL_POD = "paddle-res-name"  # on every pod of a PaddleJob (operator/names.py)
AT_ONCE = 16
# For the container's Python, as an image may lack all else: prints the inode of the newest history,
# and what follows byte $2 if its inode is $1, else all.
NEWS = f"""
import glob, os, sys
found = glob.glob("{FOLDER}/log/**/history.jsonl", recursive=True)
with open(max(found, key=os.path.getmtime), "rb") as file:
    inode = os.fstat(file.fileno()).st_ino
    file.seek(int(sys.argv[2]) if inode == int(sys.argv[1]) else 0)
    sys.stdout.buffer.write(b"%d\\n" % inode + file.read())
"""
# The same for its latest rows: those about stalls of the latest attempt, and what the logs showed.
LATEST = f"""
import glob, os, sys
found = glob.glob("{FOLDER}/log/**/history.jsonl", recursive=True)
stood, seen = [], []
for line in open(max(found, key=os.path.getmtime), "rb"):
    if line.startswith({marks(*STANDS, *MOVES)}):
        stood = [] if line.startswith({marks("attempt")}) else stood
        stood.append(line)
    elif line.startswith({marks("seen")}):
        seen.append(line)
sys.stdout.buffer.writelines(seen + stood)
"""
# The same for the stacks that this pod's launcher takes (watch/folder.py): asks, prints the answer.
STACKS = f"""
import glob, json, os, sys, time
asked = json.loads(sys.argv[1])
named = f"{ANSWER}{{os.uname().nodename}}.*"
found = glob.glob(f"{FOLDER}/log/**/" + named, recursive=True)
own = max(found, key=os.path.getmtime)
with open(own.replace("{ANSWER}", "{QUESTION}"), "w") as file:
    json.dump(asked, file)
row, until = {{}}, time.monotonic() + {ANSWER_SECONDS}
while row.get("id") != asked["id"] and time.monotonic() < until:
    time.sleep(0.1)
    with open(own) as file:
        text = file.read()
    row = json.loads(text) if text.endswith("}}") else row
print(text)
"""
ITS_PYTHON = "/proc/1/exe"  # the launcher's
SETTLE_SECONDS_MAX = 10.0
SETTLE_POLL_SECONDS = 0.25
RETRY_PAUSES = (0.1, 0.5, 2.0)


def namespace_of(kubeconfig: str, context: str) -> str:
    """Return the namespace of the context. Raises UsageError without a kubeconfig."""
    return find_config(kubeconfig, context).namespace or "default"


async def make(
    client: HttpClient,
    namespace: str,
    objects: Sequence[PlannedObject],
    *,
    is_held: bool,
    keep: Callable[[str], None],
) -> str:
    """Create a job and the objects that it owns; start it. Returns its uid; keep() gets it at once.

    Raises PaddockError, and then leaves no objects.
    """
    top, *others = objects
    what = f"{top.resource.kind} {top.name}"
    uid = ""
    try:
        made = await client.create(top.resource, namespace, top.manifest)
        uid = str(made["metadata"]["uid"])
        keep(uid)
        for one in others:
            what = f"{one.resource.kind} {one.name}"
            await client.create(one.resource, namespace, owned(one, top, uid).manifest)
        if is_held:
            what = f"{top.resource.kind} {top.name}"
            await client.patch(top.resource, namespace, top.name, {"spec": {"suspend": False}})
            await settle(client, namespace, top, uid)
    except BaseException as error:
        if uid:  # Kubernetes removes what the job owned
            with contextlib.suppress(KubeError):
                await client.delete(top.resource, namespace, top.name, uid=uid)
        if isinstance(error, KubeError):
            raise explained(error, what, namespace) from error
        raise
    return uid


async def settle(client: HttpClient, namespace: str, top: PlannedObject, uid: str) -> None:
    """Wait until the pods have begun, for early failures.

    Raises UsageError if they can never start.
    """
    deadline = time.monotonic() + SETTLE_SECONDS_MAX
    while time.monotonic() < deadline:
        pods = await pods_of(client, namespace, top.name)
        if problem := hopeless(pods):
            raise UsageError(
                f"{top.name} cannot start: {problem}",
                hint="look at --image, pull_secrets and secrets",
            )
        refused = [] if pods else await refusals_of(client, namespace, uid)
        if refused:
            error = KubeError(refused[-1], status=403, reason="Forbidden")
            raise explained(error, "create pods", namespace)
        begun = [pod for pod in pods if pod.status.phase not in ("", "Pending") or note_of(pod)]
        if pods and len(begun) == len(pods):
            return
        # sleep: a look at the pods four times a second costs less than a watch
        await asyncio.sleep(SETTLE_POLL_SECONDS)


async def pods_of(client: HttpClient, namespace: str, name: str) -> tuple[Pod, ...]:
    return (await client.page(PODS, Query(namespace, f"{LABEL_RUN}={name}"))).items


async def pods_of_others(client: HttpClient, namespace: str, uid: str = "") -> tuple[Pod, ...]:
    """Return the pods of PaddleJobs that somebody has made: of the one with that uid, or of all."""
    pods = (await client.page(PODS, Query(namespace, LABEL_POD, limit=5000))).items
    return tuple(pod for pod in pods if uid in ("", pod.metadata.controller_uid))


async def histories(
    client: HttpClient, namespace: str, asked: Sequence[tuple[Pod | None, Mapping[str, Any]]]
) -> list[dict[str, Any] | PaddockError]:
    """Return what is new of each pod's history (backends/common/histories.py)."""
    some = asyncio.Semaphore(AT_ONCE)

    async def news(pod: Pod | None, known: Mapping[str, Any]) -> dict[str, Any] | PaddockError:
        if pod is None or pod.status.phase != "Running":
            return {"files": [], "is_whole": True}
        before, size = known.get(pod.metadata.uid) or (0, 0)
        command = (ITS_PYTHON, "-Ec", NEWS, str(before), str(size))
        try:
            async with some:
                found = await client.exec(namespace, pod.metadata.name, container_of(pod), command)
        except KubeError as error:
            return error
        inode, _, data = found[: found.rfind(b"\n") + 1].partition(b"\n")
        text, at = data.decode("utf-8", "replace"), size if int(inode) == before else 0
        row = {"name": pod.metadata.uid, "inode": int(inode), "text": text, "at": at}
        return {"files": [row], "is_whole": True}

    return list(await asyncio.gather(*(news(pod, row["known"]) for pod, row in asked)))


async def latest(
    client: HttpClient, namespace: str, pods: Iterable[tuple[str, Pod]]
) -> list[tuple[str, list[Mapping[str, Any]]]]:
    """Return the latest rows of each pod's history; none of a pod that cannot be asked.

    pods: with their names, without the suffix that an Indexed Job adds.
    """
    some = asyncio.Semaphore(AT_ONCE)

    async def ask_one(name: str, pod: Pod) -> tuple[str, list[Mapping[str, Any]]]:
        command = (ITS_PYTHON, "-Ec", LATEST)
        try:
            async with some:
                found = await client.exec(namespace, pod.metadata.name, container_of(pod), command)
        except KubeError:
            return name, []
        rows = [row for line in found.splitlines() if (row := row_of(line)) is not None]
        return name, [*standing(rows), *(row for row in rows if row["kind"] == "seen")]

    return list(await asyncio.gather(*(ask_one(*each) for each in pods)))


async def stacks(
    client: HttpClient, namespace: str, pods: Iterable[Pod], *, native: bool
) -> list[dict[str, Any]]:
    """Return the answers of the launchers in these pods; one without has its host and problem."""
    some, asked = asyncio.Semaphore(AT_ONCE), f"{os.getpid()}.{time.time_ns()}"
    words = json.dumps({"id": asked, "native": native})

    async def ask_one(pod: Pod) -> dict[str, Any]:
        name, problem = pod.metadata.name, f"no answer within {ANSWER_SECONDS:g} s"
        try:
            async with some:
                command = (ITS_PYTHON, "-Ec", STACKS, words)
                row = json.loads(await client.exec(namespace, name, container_of(pod), command))
                if row.get("id") == asked:
                    return dict(row)
        except (KubeError, ValueError) as error:
            problem = str(error)
        return {"host": name, "stacks": [], "problem": problem}

    return list(await asyncio.gather(*map(ask_one, pods)))


async def refusals_of(client: HttpClient, namespace: str, uid: str) -> list[str]:
    """Return why pods of a Job could not be made, the newest last; [] if events may not be read."""
    fields = f"involvedObject.uid={uid},reason=FailedCreate"
    try:
        page = await client.page(EVENTS, Query(namespace, fields=fields))
    except KubeError as error:
        if error.status == 403:
            return []
        raise
    found = sorted(page.items, key=lambda event: str(event.get("lastTimestamp") or ""))
    return [str(event.get("message", "")).removeprefix("Error creating: ") for event in found]


async def top_of(
    client: HttpClient, form: str, namespace: str, name: str, uid: str
) -> dict[str, Any] | None:
    """Return the job object; None if it is gone, or another one has its name."""
    try:
        found = await client.get(RESOURCES[form], namespace, name)
    except KubeError as error:
        if error.status == 404:
            return None
        raise
    return found if uid in ("", found["metadata"]["uid"]) else None


async def listed(client: HttpClient, namespace: str) -> list[tuple[str, dict[str, Any]]]:
    """Return (form, job) of every job of ours in a namespace."""
    found = []
    for form, resource in RESOURCES.items():
        try:
            page = await client.page(resource, Query(namespace, f"{MANAGED_BY}={MANAGER}"))
        except KubeError as error:
            if error.status == 404 and resource is not JOBS:
                continue  # not installed
            raise
        found += [(form, job) for job in page.items]
    return found


async def end(client: HttpClient, seen: ObservedJob, namespace: str, *, now: bool) -> None:
    """Ask a job to end, and note on it that it was asked.

    Kueue would resume a suspended job: it is deleted. now: pods of an Indexed Job are deleted
    before it is suspended. Its controller gives them all of their grace, and a kubelet that has
    begun with that ignores a shorter one (SyncTerminatingPod, 1.34, does not use the context that
    is cancelled); for deleted pods the controller takes a second.
    """
    assert seen.top is not None
    resource, meta = RESOURCES[seen.form], seen.top["metadata"]
    name, uid = meta["name"], meta["uid"]
    change: dict[str, Any] = {"metadata": {"annotations": {STOPPED: rfc3339(time.time())}}}
    pods = newest_pods(seen).values() if now else ()
    refused: list[BaseException] = []
    if resource is JOBS and pods:
        await client.patch(resource, namespace, name, change)  # without this right no pod is ended
        refused = await _end_pods(client, namespace, pods)
    if resource is not VOLCANO:
        change["spec"] = {"suspend": True}
    await client.patch(resource, namespace, name, change)
    if resource is VOLCANO:
        target = {"apiVersion": resource.api_version, "kind": "Job", "name": name, "uid": uid}
        order: dict[str, Any] = {
            "metadata": {"generateName": f"{name}-stop-", "ownerReferences": [target]},
            "action": "AbortJob", "target": target | {"controller": True},
        }  # fmt: skip
        await client.create(COMMANDS, namespace, order)
    elif any(label.startswith("kueue.x-k8s.io/") for label in meta.get("labels") or {}):
        await client.delete(resource, namespace, name, uid=uid)
    if resource is not JOBS:
        refused = await _end_pods(client, namespace, pods)
    if refused:
        raise refused[0]


async def _end_pods(client: HttpClient, namespace: str, pods: Iterable[Pod]) -> list[BaseException]:
    """Delete pods all at once, before their controller makes others; return the failures."""
    asked = (_end_pod(client, namespace, pod) for pod in pods)
    found = await asyncio.gather(*asked, return_exceptions=True)
    return [failure for failure in found if failure is not None]


async def _end_pod(client: HttpClient, namespace: str, pod: Pod) -> None:
    """Delete a pod; retry when that is refused for now, as others delete it, too.

    With grace 0 the pod is gone from the list at once, while its processes go on for their whole
    grace: that is for nodes which do not answer.
    """
    one, grace_seconds = pod.metadata, 0 if is_lost(pod) else 1
    for pause in (*RETRY_PAUSES, None):
        try:
            await client.delete(PODS, namespace, one.name, uid=one.uid, grace_seconds=grace_seconds)
            return
        except KubeError as error:
            if error.status == 404 or "UID in precondition" in error.message:
                return  # it has gone meanwhile
            if pause is None or not error.retryable:
                raise
        await asyncio.sleep(pause)


def explained(error: KubeError, what: str, namespace: str) -> PaddockError:
    """Return the error as people can act on it; it begins with the refused action.

    >>> from paddock.kube.client import KubeError
    >>> explained(KubeError('namespaces "x" not found', status=404, reason="NotFound"),
    ...           "create Job a", "x").message
    "namespace 'x' does not exist"
    """
    status, said = error.status, error.message
    rows = (
        (status == 0, f"{what}: {said}", "is this the right context, and the cluster up?"),
        (status == 401, f"{what}: the cluster does not accept your credentials ({said})",
         "log in again, or look at --context and --kubeconfig"),
        (error.is_of_ending_namespace, f"namespace '{namespace}' is being deleted",
         "take another one"),
        (status == 403 and "exceeded quota" in said,
         f"{what}: the quota of namespace '{namespace}' does not allow it: {said}",
         "ask for less with --cpu, --memory or -n"),
        (status == 403, f"{what}: you may not do this in namespace '{namespace}': {said}",
         f"see: kubectl auth can-i --list -n {namespace}"),
        (status == 404 and "namespaces" in said, f"namespace '{namespace}' does not exist",
         "write --namespace NAME"),
        (status == 404, f"{what}: the cluster has no such thing ({said})",
         "it is not installed: another form=, or --scheduler"),
        (error.reason == "AlreadyExists", f"{what}: the name is in use",
         "--replace stops the old one first"),
        (status in (400, 422), f"{what}: refused: {said}", ""),
    )  # fmt: skip
    found = (UsageError(message, hint=hint) for is_it, message, hint in rows if is_it)
    return next(found, error)
