"""The documents' own jobs, as a user would write them. Read by tests here and in tests/cluster.

Sources: the users' documents (wide and deep, resnet) and deploy/examples of paddle-operator v0.3.5;
fields unchanged, images shortened.
"""

from __future__ import annotations

import copy
from typing import Any

Job = dict[str, Any]
IMAGE = "registry.example/demo-wide-and-deep:v1"


def pod(**fields: Any) -> Job:
    """A pod template with one container; fields of that container."""
    return {"spec": {"containers": [{"name": "paddle", "image": IMAGE, **fields}]}}


def job(name: str, **spec: Any) -> Job:
    """A PaddleJob."""
    return {
        "apiVersion": "batch.paddlepaddle.org/v1",
        "kind": "PaddleJob",
        "metadata": {"name": name},
        "spec": spec,
    }


def role(replicas: int, **fields: Any) -> Job:
    """A role; fields of its container."""
    return {"replicas": replicas, "template": pod(**fields)}


def with_pod_fields(found: Job, **fields: Any) -> Job:
    """A role whose pod has more fields than its containers."""
    found = copy.deepcopy(found)
    found["template"]["spec"].update(fields)
    return found


LAUNCH = {"command": ["python"], "args": ["-m", "paddle.distributed.launch", "train_fleet.py"]}
SHARED_MEMORY = {"volumeMounts": [{"mountPath": "/dev/shm", "name": "dshm"}]}
DSHM = [{"name": "dshm", "emptyDir": {"medium": "Memory"}}]
GPU = {"resources": {"limits": {"nvidia.com/gpu": 1}}}

DOCUMENTED: dict[str, Job] = {
    "demo": job(
        "wide-ande-deep", withGloo=1, intranet="PodIP", cleanPodPolicy="OnCompletion",
        worker=role(2), ps=role(2),
    ),
    "wide_and_deep": job(
        "wide-ande-deep", withGloo=1, cleanPodPolicy="Never", worker=role(2), ps=role(2)
    ),
    "wide_and_deep_podip": job(
        "wide-ande-deep-podip", cleanPodPolicy="Never", intranet="PodIP",
        worker=with_pod_fields(role(2), restartPolicy="Never"),
        ps=with_pod_fields(role(2), restartPolicy="Never"),
    ),
    "wide_and_deep_service": job(
        "wide-ande-deep-service", intranet="Service", cleanPodPolicy="Never", withGloo=1,
        worker=role(2), ps=role(2),
    ),
    "wide_and_deep_volcano": job(
        "wide-ande-deep", cleanPodPolicy="Never", withGloo=1, intranet="Service",
        schedulingPolicy={"queue": "default"},
        worker=with_pod_fields(
            role(2, resources={"requests": {"cpu": "500m", "memory": "1Gi"}}),
            restartPolicy="Never", schedulerName="volcano",
        ),
        ps=with_pod_fields(
            role(2, resources={"limits": {"cpu": 1, "memory": "1Gi"}}),
            restartPolicy="Never", schedulerName="volcano",
        ),
    ),
    "deepfm": job(
        "deepfm", cleanPodPolicy="OnFailed", withGloo=1,
        worker=role(2, imagePullPolicy="Always"), ps=role(2, imagePullPolicy="Always"),
    ),
    "resnet": job(
        "resnet", cleanPodPolicy="Never",
        worker=with_pod_fields(role(2, **LAUNCH, **SHARED_MEMORY, **GPU), volumes=DSHM),
    ),
    "simple": job(
        "simple", cleanPodPolicy="Never",
        worker=role(
            2, command=["python"], args=["-m", "paddle.distributed.launch", "run_check"]
        ),
    ),
    "elastic_resnet": job(
        "resnet", cleanPodPolicy="Never", elastic=1,
        worker=with_pod_fields(
            role(3, **LAUNCH, volumeMounts=[{"mountPath": "/ckpt", "name": "ckpt"}], **GPU),
            volumes=[{"name": "ckpt", "hostPath": {"path": "/tmp/ckpt"}}],
        ),
    ),
    "sample": job(
        "paddlejob-sample", cleanPodPolicy="OnFailure",
        worker=role(1), ps=role(1),
    ),
    "paddlecloud": job(
        "wide-ande-deep", withGloo=1, sampleSetRef={"name": "criteo", "mountPath": "/mnt/criteo"},
        worker=role(2), ps=role(2),
    ),
    "heter": job("heter", worker=role(1), ps=role(1), heter=role(1)),
}  # fmt: skip

# Every field of ours at once.
FULL: Job = job(
    "full",
    cleanPodPolicy="Always",
    intranet="DNS",
    withGloo=2,
    elastic=1,
    schedulingPolicy={
        "minAvailable": 3, "queue": "q", "priorityClass": "high", "scheduler": "coscheduling",
        "minResources": {"cpu": 4, "memory": "8Gi", "nvidia.com/gpu": "2"}, "timeoutSeconds": 60,
    },
    sampleSetRef={"name": "set", "namespace": "other", "mountPath": "/mnt/set"},
    suspend=True,
    ttlSecondsAfterFinished=60,
    activeDeadlineSeconds=3600,
    backoffLimit=3,
    successPolicy="Worker0",
    failurePolicy={
        "rules": [
            {"action": "Restart", "roles": ["worker"], "causes": ["ExitCode"],
             "exitCodes": {"operator": "In", "values": [101, 102]}},
            {"action": "RestartUncounted", "causes": ["Evicted", "NodeLost"]},
            {"action": "Fail", "exitCodes": {"operator": "NotIn", "values": [1]}},
        ]
    },
    worker={**role(2), "requests": 1, "limits": 4, "restartScope": "Replica"},
    ps={**role(2, env=[{"name": "A", "value": "1"}], envFrom=[{"secretRef": {"name": "s"}}]),
        "restartScope": "Replica"},
    heter=role(1),
)  # fmt: skip
FULL["spec"]["worker"]["template"]["metadata"] = {"labels": {"a": "b"}, "annotations": {"c": "d"}}

# What the API server refuses: name -> (change of the demo's spec, part of the sentence).
REFUSED: dict[str, tuple[Job, str]] = {
    "no_spec": ({"spec": None}, "spec is missing: write spec.worker"),
    "empty_spec": ({"spec": {}}, "spec has no role with replicas above 0"),
    "all_roles_zero": (
        {"spec": {"worker": role(0), "ps": role(0)}}, "spec has no role with replicas above 0"
    ),
    "negative": ({"worker": role(-1)}, "spec.worker.replicas"),
    "too_many": ({"worker": role(10_001)}, "less than or equal to 10000"),
    "replicas_text": ({"worker": {**role(1), "replicas": "2"}}, "spec.worker.replicas"),
    "replicas_fraction": ({"worker": {**role(1), "replicas": 1.5}}, "spec.worker.replicas"),
    "no_replicas": ({"worker": {"template": pod()}}, "spec.worker.replicas: Required value"),
    "no_template": ({"ps": {"replicas": 1}}, "spec.ps.template.spec is missing"),
    "empty_template": (
        {"worker": {"replicas": 1, "template": {}}}, "spec.worker.template.spec is missing"
    ),
    "no_containers": (
        {"worker": {"replicas": 1, "template": {"spec": {}}}},
        "spec.worker.template.spec.containers: Required value",
    ),
    "empty_containers": (
        {"worker": {"replicas": 1, "template": {"spec": {"containers": []}}}},
        "spec.worker.template.spec.containers",
    ),
    "container_text": (
        {"worker": {"replicas": 1, "template": {"spec": {"containers": ["paddle"]}}}},
        "spec.worker.template.spec.containers[0]",
    ),
    "container_unnamed": (
        {"worker": {"replicas": 1, "template": {"spec": {"containers": [{"image": "i"}]}}}},
        "spec.worker.template.spec.containers[0].name: Required value",
    ),
    "same_container_twice": (
        {"worker": {"replicas": 1, "template": {"spec": {"containers": [
            {"name": "a", "image": "i"}, {"name": "a", "image": "i"}]}}}},
        "spec.worker.template.spec.containers[1]: Duplicate value",
    ),
    "env_mapping": (
        {"worker": role(1, env={"A": "1"})}, "spec.worker.template.spec.containers[0].env"
    ),
    "env_number": (
        {"worker": role(1, env=[{"name": "A", "value": 1}])},
        "spec.worker.template.spec.containers[0].env[0].value",
    ),
    "command_text": (
        {"worker": role(1, command="python")}, "spec.worker.template.spec.containers[0].command"
    ),
    "intranet": ({"intranet": "podip"}, 'supported values: "", "PodIP", "Service", "Host", "DNS"'),
    "gloo": ({"withGloo": 3}, "spec.withGloo"),
    "elastic_without_workers": (
        {"elastic": 1, "worker": None}, "spec.elastic needs spec.worker with replicas above 0"
    ),
    "range": (
        {"worker": {**role(2), "requests": 3, "limits": 2}},
        "spec.worker.requests is above spec.worker.limits",
    ),
    "min_available": (
        {"schedulingPolicy": {"minAvailable": 9}},
        "spec.schedulingPolicy.minAvailable is above the number of pods",
    ),
    "scheduler": (
        {"schedulingPolicy": {"scheduler": "kueue"}}, "spec.schedulingPolicy.scheduler"
    ),
    "min_resources": (
        {"schedulingPolicy": {"minResources": {"cpu": "much"}}},
        "spec.schedulingPolicy.minResources.cpu",
    ),
    "rule_without_action": (
        {"failurePolicy": {"rules": [{"causes": ["Evicted"]}]}},
        "spec.failurePolicy.rules[0].action: Required value",
    ),
    "rule_action": (
        {"failurePolicy": {"rules": [{"action": "Retry"}]}}, "spec.failurePolicy.rules[0].action"
    ),
    "rule_code": (
        {"failurePolicy": {"rules": [
            {"action": "Fail", "exitCodes": {"operator": "In", "values": [0]}}]}},
        "spec.failurePolicy.rules[0].exitCodes.values[0]",
    ),
    "success": ({"successPolicy": "Any"}, "spec.successPolicy"),
    "scope": ({"worker": {**role(1), "restartScope": "Pod"}}, "spec.worker.restartScope"),
    "ttl": ({"ttlSecondsAfterFinished": -1}, "spec.ttlSecondsAfterFinished"),
    "deadline": ({"activeDeadlineSeconds": 0}, "spec.activeDeadlineSeconds"),
    "backoff": ({"backoffLimit": 10**12}, "spec.backoffLimit"),
    "mount": ({"sampleSetRef": {"name": "a", "mountPath": "rel"}}, "spec.sampleSetRef.mountPath"),
    "suspend_text": ({"suspend": "yes"}, "spec.suspend"),
    "dotted_name": ({"metadata": {"name": "a.b"}}, "metadata.name must begin with a letter"),
    "digit_name": ({"metadata": {"name": "1-job"}}, "metadata.name must begin with a letter"),
    "long_name": (
        {"metadata": {"name": "n" * 55}},
        "metadata.name is too long: the pods NAME-worker-N may have 63 characters",
    ),
    "long_name_at_limits": (
        {"metadata": {"name": "n" * 53}, "worker": {**role(2), "limits": 101}},
        "metadata.name is too long",
    ),
}  # fmt: skip
# Of these the reader says nothing, or something else than the API server.
ONLY_REFUSED_BY_SERVER = frozenset({"intranet"})


def refused(name: str) -> Job:
    """The whole job of a row of REFUSED: one worker and one server, with the row's change."""
    change = REFUSED[name][0]
    found = job("refused", worker=role(1), ps=role(1))
    for key, value in change.items():
        if key in ("spec", "metadata"):
            found[key] = value
        elif value is None:
            del found["spec"][key]
        else:
            found["spec"][key] = value
    return {key: value for key, value in found.items() if value is not None}
