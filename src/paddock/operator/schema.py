"""The PaddleJob custom resource: one table of every field.

From it come the definitions in deploy/ (manifests/crd.py), docs/reference/paddlejob.md
(docs/reference_pages) and what the reader of a job accepts (read_spec.py). No I/O.

Sources: paddle-operator v0.3.5 (api/v1/paddlejob_types.go), PaddleCloud (sampleSetRef),
https://kubernetes.io/docs/reference/kubernetes-api/workload-resources/pod-v1/.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, get_args

from paddock.operator.spec import ROLES, Cause

if TYPE_CHECKING:
    from collections.abc import Mapping

# "open" keeps fields that are not in the table, "object" does not. Lists end in s.
Type = Literal[
    "object", "objects", "open", "opens", "string", "strings", "integer", "integers", "boolean",
    "texts", "quantities", "time",
]  # fmt: skip
Since = Literal["paddle-operator", "PaddleCloud", "Kubernetes", "Paddock"]
ROLE = "<role>"  # in a path: one row for each of ps, worker and heter
CAUSES: tuple[str, ...] = get_args(Cause)
# The addresses of more would not fit into a ConfigMap (1 MiB, at 87 bytes a pod): they could never
# start. And a job of 100,000 would keep the operator busy for seconds at each look.
REPLICAS_MAX = 10_000
INT32_MAX = 2**31 - 1
RULES_MAX = 20
CODES_MAX = 255
# RFC 1123 and RFC 1035 labels. A Service's name must begin with a letter.
LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
JOB_NAME = "[a-z]([-a-z0-9]*[a-z0-9])?"
NAME_MAX = 63
# resource.Quantity, as controller-gen writes it.
QUANTITY = (
    r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|"
    r"([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$"
)


@dataclass(frozen=True, slots=True)
class Field:
    """A field. text: what it means. absent: what holds without it.

    values: the words it knows; others are refused, or only warned about where ``only`` is False.
    least, most: of a number (and of each number of "integers"), of a text's length, of a list's
    length.
    """

    path: str
    type: Type
    text: str
    absent: str = ""
    values: tuple[str, ...] = ()
    least: int | None = None
    most: int | None = None
    pattern: str = ""
    required: bool = False
    only: bool = True
    since: Since = "Paddock"

    @property
    def name(self) -> str:
        """The last part of the path, without brackets."""
        return self.path.rpartition(".")[2].removesuffix("[]")


@dataclass(frozen=True, slots=True)
class Node:
    """A field and those inside it, by name."""

    field: Field
    children: Mapping[str, Node]


_SPEC = (
    Field("spec", "object", "What the job is. At least one role has replicas above 0.",
          since="paddle-operator"),
    Field("spec.<role>", "object", "The <role> pods: servers (ps), trainers (worker) or the middle"
          " of a heterogeneous pipeline (heter).", "the job has no such role",
          since="paddle-operator"),
    Field("spec.<role>.replicas", "integer", "Pods of this role; 0 is the same as leaving the role"
          " out.", required=True, least=0, most=REPLICAS_MAX, since="paddle-operator"),
    Field("spec.<role>.requests", "integer", "Fewest pods of an elastic role. Only workers are"
          " elastic.", "1", least=0, most=REPLICAS_MAX, since="paddle-operator"),
    Field("spec.<role>.limits", "integer", "Most pods of an elastic role; above 0 it makes the job"
          " elastic. Only workers are elastic.", "replicas", least=0, most=REPLICAS_MAX,
          since="paddle-operator"),
    Field("spec.<role>.restartScope", "string", "What a failed pod of this role takes with it: the"
          " whole Job, or only that Replica, which is made again alone.", "Job",
          ("Job", "Replica")),
    Field("spec.<role>.template", "open", "The pod template. Every field of the cluster's own pods"
          " is kept.", since="paddle-operator"),
    Field("spec.<role>.template.metadata", "open", "Labels and annotations of the pods.",
          since="paddle-operator"),
    Field("spec.<role>.template.metadata.labels", "texts", "Labels of the pods.",
          since="paddle-operator"),
    Field("spec.<role>.template.metadata.annotations", "texts", "Annotations of the pods.",
          since="paddle-operator"),
    Field("spec.<role>.template.spec", "open", "The pod's spec. The job's variables go to the"
          " first container.", since="paddle-operator"),
)  # fmt: skip
# The parts of a pod's spec that the operator itself reads or adds to; the cluster checks the rest.
_POD = (
    Field("containers[]", "opens", "Containers. The first one is the trainer or the server.",
          required=True, least=1),
    Field("containers[].name", "string", "Name of the container, unique in its pod.",
          required=True, pattern=f"^{LABEL}$", most=NAME_MAX),
    Field("containers[].image", "string", "Image of the container."),
    Field("containers[].command[]", "strings", "Program, in place of the image's own."),
    Field("containers[].args[]", "strings", "Arguments of the program."),
    Field("containers[].env[]", "opens", "Variables. They win over the job's, but for those that"
          " say which pod it is."),
    Field("containers[].env[].name", "string", "Name of the variable.", required=True, least=1),
    Field("containers[].env[].value", "string", "Its value; numbers need quotes."),
    Field("containers[].env[].valueFrom", "open", "Where its value comes from."),
    Field("containers[].envFrom[]", "opens", "ConfigMaps and Secrets that become variables."),
    Field("containers[].ports[]", "opens", "Ports that the container listens on."),
    Field("containers[].ports[].containerPort", "integer", "Number of the port.", least=1,
          most=65535),
    Field("containers[].volumeMounts[]", "opens", "Volumes seen by the container."),
    Field("containers[].resources", "open", "Processors, memory and devices."),
    Field("containers[].resources.limits", "quantities", "Most that the container may use."),
    Field("containers[].resources.requests", "quantities", "What the scheduler sets aside."),
    Field("initContainers[]", "opens", "Containers that run before the others."),
    Field("volumes[]", "opens", "Volumes of the pod."),
    Field("restartPolicy", "string", "Whether the kubelet starts a container again.",
          "Never; OnFailure for elastic workers, and with intranet Service and a backoffLimit for"
          " workers",
          ("Always", "OnFailure", "Never")),
    Field("hostNetwork", "boolean", "Use the node's network.", "true with intranet Host"),
    Field("dnsPolicy", "string", "How names are resolved.", "ClusterFirst; ClusterFirstWithHostNet"
          " on the host's network"),
    Field("schedulerName", "string", "Scheduler of the pod.",
          "the gang scheduler's, if there is one"),
    Field("terminationGracePeriodSeconds", "integer", "Time between SIGTERM and SIGKILL.", "30",
          least=0),
    Field("tolerations[]", "opens", "Taints that the pod accepts."),
    Field("affinity", "open", "Where the pod would rather, or must, run."),
    Field("nodeSelector", "texts", "Labels that its node has."),
)  # fmt: skip
_JOB = (
    Field("spec.cleanPodPolicy", "string", "When the pods of a finished job are removed:"
          " OnCompletion after success, OnFailure after failure, Always, Never. OnFailed is read"
          " as OnFailure, other words as Never.", "OnCompletion",
          ("Always", "Never", "OnFailure", "OnCompletion"), only=False, since="paddle-operator"),
    Field("spec.cleanPolicy", "string", "Read as cleanPodPolicy, which is its name, and warned"
          " about: paddle-operator's user guide writes it so.", since="paddle-operator"),
    Field("spec.intranet", "string", "How pods find one another: by address (PodIP), by one"
          " Service each (Service), by the addresses of the nodes, whose network they use (Host),"
          " or by names that are known before the pods are (DNS).", "DNS",
          ("", "PodIP", "Service", "Host", "DNS"), since="paddle-operator"),
    Field("spec.withGloo", "integer", "Gloo's rendezvous of a job with servers: 0 off, 1 workers,"
          " 2 workers and servers.", "0", least=0, most=2, since="paddle-operator"),
    Field("spec.elastic", "integer", "The number of workers may change while they run. 0: they"
          " wait for the missing ones, 1: they start again among themselves, -1: not elastic"
          " whatever limits says.", "1 where worker.limits or worker.requests is given, else not"
          " elastic", least=-1, most=INT32_MAX, since="paddle-operator"),
    Field("spec.schedulingPolicy", "object", "All pods at once or none: gang scheduling.",
          since="paddle-operator"),
    Field("spec.schedulingPolicy.minAvailable", "integer", "Pods that must find a place together.",
          "all of them", least=1, most=3 * REPLICAS_MAX, since="paddle-operator"),
    Field("spec.schedulingPolicy.queue", "string", "Volcano's queue.", most=253,
          since="paddle-operator"),
    Field("spec.schedulingPolicy.priorityClass", "string", "Priority class of the gang.", most=253,
          since="paddle-operator"),
    Field("spec.schedulingPolicy.minResources", "quantities", "Resources that must be free before"
          " pods are made.", "the sum over minAvailable pods", since="paddle-operator"),
    Field("spec.schedulingPolicy.scheduler", "string", "The gang scheduler: none, volcano, or"
          " coscheduling of scheduler-plugins.", "the operator's --scheduling",
          ("", "none", "volcano", "coscheduling")),
    Field("spec.schedulingPolicy.timeoutSeconds", "integer", "How long coscheduling waits for the"
          " whole gang.", "the scheduler's own", least=1, most=INT32_MAX),
    Field("spec.sampleSetRef", "object", "Training data of PaddleCloud: a volume claim seen by the"
          " first container of every pod.", since="PaddleCloud"),
    Field("spec.sampleSetRef.name", "string", "Name of the claim.", required=True,
          pattern=r"^[a-z0-9][-.a-z0-9]*$", most=253, since="PaddleCloud"),
    Field("spec.sampleSetRef.namespace", "string", "Has no effect: claims are mounted from the"
          " job's namespace.", most=NAME_MAX, since="PaddleCloud"),
    Field("spec.sampleSetRef.mountPath", "string", "Where the data is seen, an absolute path.",
          required=True, pattern="^/.*$", most=4096, since="PaddleCloud"),
    Field("spec.suspend", "boolean", "True removes the pods and keeps the job; false starts it"
          " again. Kueue uses it.", "false"),
    Field("spec.ttlSecondsAfterFinished", "integer", "The job removes itself so long after its"
          " end.", "it stays", least=0, most=INT32_MAX),
    Field("spec.activeDeadlineSeconds", "integer", "The job fails when it is not complete so long"
          " after its start.", "no limit", least=1, most=INT32_MAX),
    Field("spec.backoffLimit", "integer", "Restarts of the job that failures of its program may"
          " cost.", "0; pods that the cluster took away are replaced either way", least=0,
          most=INT32_MAX),
    Field("spec.successPolicy", "string", "What completes the job: all Workers ended with 0"
          " (servers are stopped then, unless cleanPodPolicy is Never), the pods of AllRoles did,"
          " or Worker0 did.", "Workers",
          ("Workers", "AllRoles", "Worker0")),
    Field("spec.failurePolicy", "object", "What a failed pod means, by rules."),
    Field("spec.failurePolicy.rules[]", "objects", "The first rule that fits decides; backoffLimit"
          " where none does.", most=RULES_MAX),
    Field("spec.failurePolicy.rules[].action", "string", "Fail the job, Restart it (backoffLimit"
          " counts it), RestartUncounted, or Ignore the pod.", required=True,
          values=("Fail", "Restart", "RestartUncounted", "Ignore")),
    Field("spec.failurePolicy.rules[].roles[]", "strings", "Roles that the rule is for.", "all",
          ROLES, most=3),
    Field("spec.failurePolicy.rules[].causes[]", "strings", "Causes that the rule is for.", "all",
          CAUSES, most=8),
    Field("spec.failurePolicy.rules[].exitCodes", "object", "Exit codes that the rule is for.",
          "all"),
    Field("spec.failurePolicy.rules[].exitCodes.operator", "string", "Whether the code is one of"
          " values, or none of them.", required=True, values=("In", "NotIn")),
    Field("spec.failurePolicy.rules[].exitCodes.values[]", "integers",
          "Exit codes of the first container.", required=True, least=1, most=255),
)  # fmt: skip
PHASES = ("Pending", "Starting", "Running", "Restarting", "Completed", "Failed", "Terminating")
_STATUS = (
    Field("status", "open", "What became of the job. Written by the operator.",
          since="paddle-operator"),
    Field("status.phase", "string", "One of " + ", ".join(PHASES) + ".", since="paddle-operator"),
    Field("status.mode", "string", "PS, Collective or Single.", since="paddle-operator"),
    Field("status.<role>", "open", "The <role> pods, counted.", since="paddle-operator"),
    Field("status.<role>.pending", "integer", "Not scheduled, or waiting for an image.",
          since="paddle-operator"),
    Field("status.<role>.starting", "integer", "Scheduled, not all containers ready.",
          since="paddle-operator"),
    Field("status.<role>.running", "integer", "All containers ready.", since="paddle-operator"),
    Field("status.<role>.failed", "integer", "Ended with another code than 0.",
          since="paddle-operator"),
    Field("status.<role>.succeeded", "integer", "Ended with 0.", since="paddle-operator"),
    Field("status.<role>.unknown", "integer", "Their node does not answer.",
          since="paddle-operator"),
    Field("status.<role>.completedIndexes", "string", "Numbers of the pods that ended with 0, as"
          " 0-3,7."),
    Field("status.<role>.refs[]", "opens", "The first pods, by index.", since="paddle-operator"),
    Field("status.elastic", "string", "State of a change of size: NONE, DOING, DONE or ERROR.",
          since="paddle-operator"),
    Field("status.startTime", "time", "When the job's pods were first made.",
          since="paddle-operator"),
    Field("status.completionTime", "time", "When the job completed or failed.",
          since="paddle-operator"),
    Field("status.observedGeneration", "integer", "The metadata.generation that this status is"
          " about.", since="paddle-operator"),
    Field("status.conditions[]", "objects", "What is true of the job, in Kubernetes' common"
          " form."),
    Field("status.conditions[].type", "string", "Name of the condition.", required=True),
    Field("status.conditions[].status", "string", "True, False or Unknown.", required=True),
    Field("status.conditions[].reason", "string", "One word."),
    Field("status.conditions[].message", "string", "One sentence."),
    Field("status.conditions[].lastTransitionTime", "time", "When its status last changed."),
    Field("status.conditions[].observedGeneration", "integer", "The generation it is about."),
    Field("status.message", "string", "One sentence: what happens, or who is to blame."),
    Field("status.reason", "string", "The same in one word."),
    Field("status.attempt", "integer", "Number of the present attempt, from 0."),
    Field("status.startedAttempt", "integer", "Last attempt whose pods were made."),
    Field("status.restarts", "integer", "Restarts so far, of the whole job or of single pods."),
    Field("status.disruptions", "integer", "Restarts because the cluster took pods away."),
    Field("status.nextAttemptTime", "time", "When the next attempt starts, after a failure."),
    Field("status.attemptStartTime", "time", "When all pods of the present attempt could start."),
    Field("status.restartReason", "string", "Why the present attempt follows the one before it."),
    Field("status.countedFailures", "integer", "Failures since the job last ran well; backoffLimit"
          " is their limit."),
    Field("status.replacing[]", "strings", "Uids of failed pods that are made again alone, until"
          " they are gone."),
    Field("status.rendezvous", "string", "PADDLE_MASTER of an elastic job's pods, as long as one of"
          " them is there."),
    Field("status.unknownFields[]", "strings", "Fields of templates that the API server did not"
          " know, and left out of the pods."),
    Field("status.ready", "string", "Ready pods of all pods, as 3/4."),
    Field("status.replicas", "integer", "Worker pods, for `kubectl scale`."),
    Field("status.selector", "string", "Labels of the worker pods, for autoscalers."),
    Field("status.hostPort", "integer", "First port on the nodes, with intranet Host."),
    Field("status.lastFailure", "open", "The pod that failed first, of the last failure."),
    Field("status.lastFailure.pod", "string", "Its name."),
    Field("status.lastFailure.role", "string", "Its role."),
    Field("status.lastFailure.index", "integer", "Its number within the role."),
    Field("status.lastFailure.node", "string", "Where it ran."),
    Field("status.lastFailure.cause", "string", "A cause as in spec.failurePolicy."),
    Field("status.lastFailure.exitCode", "integer", "Exit code of its first container."),
    Field("status.lastFailure.message", "string", "The end of its log, or the kubelet's words."),
    Field("status.lastFailure.finishedAt", "time", "When it ended."),
)  # fmt: skip


def rows() -> tuple[Field, ...]:
    """The table, parents before children; <role> in a path stands for each of the three."""
    template = f"spec.{ROLE}.template.spec"
    pod = [replace(f, path=f"{template}.{f.path}", since="Kubernetes") for f in _POD]
    return (_SPEC[0], *_JOB, *_SPEC[1:], *pod, *_STATUS)


def fields() -> tuple[Field, ...]:
    """Every field with its full path, parents before children."""
    found: list[Field] = []
    for row in rows():
        for role in ROLES if ROLE in row.path else ROLES[:1]:
            path, text = row.path.replace(ROLE, role), row.text.replace(ROLE, role)
            found.append(replace(row, path=path, text=text))
    return tuple(found)


def tree() -> Mapping[str, Node]:
    """The table as it nests: {"spec": ..., "status": ...}.

    >>> tree()["spec"].children["worker"].children["replicas"].field.most
    10000
    """
    top: dict[str, Node] = {}
    inside: dict[str, dict[str, Node]] = {"": top}
    for row in fields():
        parent = row.path.rpartition(".")[0]
        children: dict[str, Node] = {}
        inside[row.path] = children
        inside[parent][row.name] = Node(row, children)
    return top


TREE = tree()
