"""Names of labels, annotations, objects and ports. Users' files rely on them.

Source: paddle-operator v0.3.5 for the paddle-* names, pod names and ports.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from paddock.operator.spec import ROLES

if TYPE_CHECKING:
    from paddock.kube.objects import ConfigMap, Meta, Pod
    from paddock.operator.spec import RoleName

GROUP = "batch.paddlepaddle.org"
# The operator's own.
NAMESPACE = "paddle-system"
LEASE = "paddock-operator.paddlepaddle.org"
OLD_FINALIZER = "finalizers.paddlepaddle.org"  # of paddle-operator; it did nothing but block

LABEL_POD = "paddle-res-name"
LABEL_ROLE = "paddle-res-type"
ANNOTATION_ROLE = "paddle-resource"
LABEL_JOB = f"{GROUP}/job-name"
LABEL_UID = f"{GROUP}/job-uid"
LABEL_ATTEMPT = f"{GROUP}/attempt"
LABEL_INDEX = f"{GROUP}/replica-index"
# On a PodGroup that a user has made for a job: the uid of that job.
LABEL_GROUP_OF = f"{GROUP}/group-of"
# "ps.worker.heter" replicas that the pod was made for: another number means another world.
ANNOTATION_WORLD = f"{GROUP}/world"
ANNOTATION_TEMPLATE = f"{GROUP}/template-hash"
# Written when the ConfigMap is there: a changed pod makes its kubelet look again at once.
ANNOTATION_GO = f"{GROUP}/go"
# How the pods of the attempt find one another: a default may change with the operator.
ANNOTATION_INTRANET = f"{GROUP}/intranet"
# The first container of the template, whatever webhooks put in front of it.
ANNOTATION_CONTAINER = f"{GROUP}/container"
# On a pod that was made when all had had addresses: it could know every other.
ANNOTATION_AGAIN = f"{GROUP}/again"
KUEUE_QUEUE = "kueue.x-k8s.io/queue-name"
KUEUE_PRIORITY = "kueue.x-k8s.io/priority-class"
KUEUE_GROUP = "kueue.x-k8s.io/pod-group-name"
KUEUE_COUNT = "kueue.x-k8s.io/pod-group-total-count"
KUEUE_RETRIABLE = "kueue.x-k8s.io/retriable-in-group"
KUEUE_MANAGED = "kueue.x-k8s.io/managed"  # a label, and the finalizer

PORT = 36000  # first of a pod's ports; the documents' number
PORTS_NUM = 20
# Offsets in a pod's block of ports.
PADDLE_MASTER_OFFSET, TORCH_OFFSET, JAX_OFFSET, GLOO_OFFSET = 1, 2, 3, 18
ELASTIC_ETCD = "paddle-elastic-etcd"
ELASTIC_ETCD_PORT = 2379


def pod_name(job: str, role: RoleName, index: int) -> str:
    """The name of a replica's pod.

    >>> pod_name("demo", "ps", 0)
    'demo-ps-0'
    """
    return f"{job}-{role}-{index}"


def replica_of(job: str, name: str) -> tuple[RoleName, int] | None:
    """The role and index of a pod of that name; None when the name is not one of the job's.

    >>> replica_of("a-worker-1", "a-worker-1-ps-12")
    ('ps', 12)
    >>> replica_of("a", "a-worker-01"), replica_of("a", "b-worker-1")
    (None, None)
    """
    head, _, number = name.rpartition("-")
    for role in ROLES:
        if head == f"{job}-{role}" and number.isascii() and number.isdigit():
            return (role, int(number)) if number == str(int(number)) else None
    return None


def job_uid(meta: Meta) -> str:
    """The uid of the job that an object belongs to; "" of one that no job has."""
    return meta.controller_uid or meta.label(LABEL_GROUP_OF)


def attempt_of(one: Pod | ConfigMap) -> int:
    """The attempt that a pod or a ConfigMap was made for, by its label.

    0 without one: paddle-operator made it, and knew no attempts. -1 for what is no number.
    """
    text = one.metadata.label(LABEL_ATTEMPT)
    if not text:
        return 0
    return int(text) if text.isascii() and text.isdigit() else -1
