"""The pod template of a job: image, command line, environment, resources and mounts. Pure."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

from paddock.backends.kubernetes.options import KubernetesOptions
from paddock.backends.kubernetes.words import FOLDER, SENT, launch_words
from paddock.backends.types import Submission
from paddock.kube.resource import Manifest
from paddock.local.runs.record import TERMINATION_LOG

CONTAINER = "paddock"
# Which container `kubectl logs` means, and we: an annotation of pods.
DEFAULT_CONTAINER = "kubectl.kubernetes.io/default-container"
SHARED_MEMORY = "/dev/shm"
# Where the kubelet reads why a container has ended (core/v1 Container, terminationMessagePath).
END_VARIABLE = {"name": TERMINATION_LOG, "value": "/dev/termination-log"}
# The launcher ends its processes within --grace, says why, and then goes.
GRACE_MORE_SECONDS = 5


def template_of(
    submission: Submission,
    options: KubernetesOptions,
    metadata: Mapping[str, Mapping[str, str]],
    *,
    secret: str,
    maps: Sequence[str],
    ours: Sequence[str],
    env: Sequence[Manifest],
    start: str,
    patch: Mapping[str, object],
) -> dict[str, Any]:
    """Return a PodTemplateSpec. env, secrets: the environment of the pod's container.

    metadata: labels and annotations. maps: ConfigMaps with sent files. ours: flags of the launcher.
    """
    container: Manifest = {
        "name": CONTAINER,
        "image": options.image,
        "command": ["/bin/sh", "-c", start, CONTAINER],
        "args": launch_words(submission, options, ours),
        "env": [*env, dict(END_VARIABLE)],
        "envFrom": [{"secretRef": {"name": name}} for name in (*options.secrets, secret)],
        "resources": _resources(options),
        # For launchers that are killed; others write how they end, see END_VARIABLE.
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": _mounts(options, bool(maps)),
        "workingDir": submission.workspace,
    }
    spec: Manifest = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": int(submission.job.grace_seconds) + GRACE_MORE_SECONDS,
        "enableServiceLinks": False,
        "containers": [without_empty(container)],
        "volumes": _volumes(options, maps),
    }
    more: Manifest = {
        "nodeSelector": dict(options.node_selector),
        "tolerations": list(options.tolerations),
        "serviceAccountName": options.service_account,
        "priorityClassName": options.priority_class,
        "imagePullSecrets": [{"name": name} for name in options.pull_secrets],
    }
    spec |= without_empty(more)
    if not options.service_account:
        spec["automountServiceAccountToken"] = False
    return merged({"metadata": metadata, "spec": spec}, patch)


def merged(base: Mapping[str, Any], patch: Mapping[str, Any]) -> dict[str, Any]:
    """Return the pod with the user's patch merged in.

    Tables are merged and null removes; of lists, those whose entries have names are merged by
    name (containers, volumes, env, ...), others replace ours.

    >>> merged({"a": {"b": 1, "c": 2}, "l": [{"name": "x", "v": 1}]},
    ...        {"a": {"b": None}, "l": [{"name": "x", "w": 2}, {"name": "y"}]})
    {'a': {'c': 2}, 'l': [{'name': 'x', 'v': 1, 'w': 2}, {'name': 'y'}]}
    """
    found = copy.deepcopy(dict(base))
    for key, change in patch.items():
        before = found.get(key)
        if change is None:
            found.pop(key, None)
        elif isinstance(change, dict):
            found[key] = merged(before if isinstance(before, dict) else {}, change)
        elif isinstance(change, list) and isinstance(before, list) and _is_named(before, change):
            found[key] = _merged_by_name(before, change)
        else:
            found[key] = copy.deepcopy(change)
    return found


def _is_named(*lists: list[Any]) -> bool:
    return all(isinstance(one, dict) and "name" in one for each in lists for one in each)


def _merged_by_name(before: list[Any], change: list[Any]) -> list[Any]:
    found = {one["name"]: one for one in before}
    for one in change:
        found[one["name"]] = merged(found.get(one["name"], {}), one)
    return list(found.values())


def _resources(options: KubernetesOptions) -> Manifest:
    """Return the requests, which are also the limits.

    Processors have no limit: a throttled launcher misses its lease, and slow ranks delay all
    others.
    """
    amounts = {"cpu": options.cpu, "memory": options.memory, "ephemeral-storage": options.storage}
    wanted = {name: text for name, text in {**amounts, **options.devices}.items() if text}
    limits = {name: text for name, text in wanted.items() if name != "cpu"}
    return without_empty({"requests": wanted, "limits": limits})


def _mounts(options: KubernetesOptions, is_sent: bool) -> list[Manifest]:
    found: list[Manifest] = [
        {"name": "paddock", "mountPath": FOLDER},
        {"name": "shared-memory", "mountPath": SHARED_MEMORY},
    ]
    if is_sent:
        found.append({"name": "sent", "mountPath": SENT, "readOnly": True})
    for number, volume in enumerate(options.volumes):
        mount: Manifest = {"name": f"volume-{number}", "mountPath": volume.path}
        found.append(mount | ({"readOnly": True} if volume.is_read_only else {}))
    return found


def _volumes(options: KubernetesOptions, maps: Sequence[str]) -> list[Manifest]:
    found: list[Manifest] = [
        {"name": "paddock", "emptyDir": {}},
        {"name": "shared-memory", "emptyDir": {"medium": "Memory"}},
    ]
    if maps:
        sources = [{"configMap": {"name": name}} for name in maps]
        found.append({"name": "sent", "projected": {"sources": sources}})
    for number, volume in enumerate(options.volumes):
        claim: Manifest = {"claimName": volume.claim}
        claim |= {"readOnly": True} if volume.is_read_only else {}
        found.append({"name": f"volume-{number}", "persistentVolumeClaim": claim})
    return found


def without_empty(found: Manifest) -> Manifest:
    """Return a table without the keys whose value says nothing."""
    return {key: what for key, what in found.items() if what not in ("", [], {}, None)}
