"""Any job at any moment, for properties: specs, statuses and pods as they should be, and not so.

Most parts are right most of the time: a job whose spec is nonsense is looked at no further.
"""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from operator_world import NAMESPACE, START
from paddock.kube.objects import (
    ConfigMap,
    ContainerState,
    ContainerStateTerminated,
    ContainerStateWaiting,
    ContainerStatus,
    KubeCondition,
    Meta,
    Object,
    PaddleJob,
    Pod,
    PodGroup,
    PodGroupStatus,
    PodSpec,
    PodStatus,
    rfc3339,
)
from paddock.operator import names
from paddock.operator.decision import FailedCall, ObservedState
from paddock.operator.spec import ROLES

Fields = dict[str, st.SearchStrategy[Any]]
JOB, UID = "demo", "u-1"
TEMPLATE = {"spec": {"containers": [{"name": "c", "image": "i"}]}}

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=6,
)


@st.composite
def weighted(draw: st.DrawFn, *choices: tuple[int, st.SearchStrategy[Any]]) -> Any:
    """One of these, each so often; a plain union counts every kind that is inside it as one."""
    return draw(draw(st.sampled_from([choice for often, choice in choices for _ in range(often)])))


anything = weighted((1, json_values))
times = st.sampled_from(
    ["2025-12-31T23:00:00Z", rfc3339(START), "2027-01-01T00:00:00Z", "0001-01-01"]
)


def some(fields: Fields, **always: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Some of these fields: mostly as they should be, else any of them may be anything."""
    right = st.fixed_dictionaries(always, optional=fields)
    odd = {name: st.one_of(good, anything) for name, good in {**fields, **always}.items()}
    return weighted((15, right), (1, st.fixed_dictionaries({}, optional=odd)))


def some_role(replicas: st.SearchStrategy[int]) -> st.SearchStrategy[dict[str, Any]]:
    """One role."""
    scope = st.sampled_from(["Job", "Replica"])
    return some({"restartScope": scope}, replicas=replicas, template=st.just(TEMPLATE))


rules = some(
    {
        "causes": st.lists(st.sampled_from(["Evicted", "ExitCode", "Signal"]), max_size=2),
        "exitCodes": st.just({"operator": "In", "values": [1, 2]}),
    },
    action=st.sampled_from(["Fail", "Restart", "RestartUncounted", "Ignore"]),
)
common: Fields = {
    "intranet": st.sampled_from(["PodIP", "Service", "Host", "DNS", "?"]),
    "cleanPodPolicy": st.sampled_from(["Always", "Never", "OnFailure", "OnCompletion", "?"]),
    "suspend": st.sampled_from([False, False, False, True]),
    "backoffLimit": st.integers(0, 3),
    "activeDeadlineSeconds": st.integers(1, 10**6),
    "ttlSecondsAfterFinished": st.integers(0, 10**6),
    "successPolicy": st.sampled_from(["Workers", "AllRoles", "Worker0"]),
    "failurePolicy": some({}, rules=st.lists(rules, max_size=3)),
    "schedulingPolicy": some({"scheduler": st.sampled_from(["none", "volcano", "coscheduling"])}),
}
with_servers = some(
    {**common, "withGloo": st.integers(0, 2), "heter": some_role(st.just(1))},
    ps=some_role(st.integers(1, 2)),
    worker=some_role(st.integers(1, 3)),
)
workers_only = some(
    {**common, "elastic": st.sampled_from([-1, 0, 1])}, worker=some_role(st.integers(1, 4))
)
specs = weighted((4, with_servers), (5, workers_only), (1, anything))
conditions = some(
    {
        "type": st.sampled_from(["Running", "Suspended", "Restarting", "X"]),
        "status": st.sampled_from(["True", "False"]),
        "lastTransitionTime": times,
    }
)
written = some(
    {
        "phase": st.sampled_from(["Pending", "Pending", "Running", "Running", "Restarting",
                                  "Completed", "Failed"]),
        "reason": st.sampled_from(["InvalidSpec", "InvalidTemplate", "Suspended", "PodFailed"]),
        "attempt": st.integers(0, 2),
        "startedAttempt": st.integers(-1, 2),
        "observedGeneration": st.integers(0, 2),
        "countedFailures": st.integers(0, 4),
        "hostPort": st.integers(0, 30000),
        "startTime": times,
        "nextAttemptTime": times,
        "attemptStartTime": times,
        "completionTime": times,
        "lastFailure": some({"finishedAt": times}),
        "replacing": st.lists(st.sampled_from(["p-worker-0", "p-ps-0", "x"])),
        "conditions": st.lists(conditions, max_size=4),
        **dict.fromkeys(ROLES, some({"completedIndexes": st.sampled_from(["0", "0-1", "3,7"])})),
    }
)  # fmt: skip
statuses = weighted((1, st.none()), (8, written), (1, anything))

ended = st.builds(
    ContainerStateTerminated,
    exitCode=st.sampled_from([0, 1, 2, 128, 137, 143]),
    reason=st.sampled_from([None, "Error", "OOMKilled", "Completed", "StartError"]),
    message=st.none() | st.text(max_size=20),
    finishedAt=st.sampled_from([None, rfc3339(START - 5), rfc3339(START - 1)]),
)
waiting = st.builds(
    ContainerStateWaiting,
    reason=st.sampled_from(["ErrImagePull", "CreateContainerConfigError", None]),
    message=st.none() | st.text(max_size=20),
)
containers = st.builds(
    ContainerStatus,
    name=st.just("c"),
    ready=st.booleans(),
    restartCount=st.sampled_from([0, 0, 0, 1, 12]),
    state=st.builds(ContainerState, waiting=st.none() | waiting, terminated=st.none() | ended),
    lastState=st.builds(ContainerState, terminated=st.none() | ended),
)
pod_conditions = st.builds(
    KubeCondition,
    type=st.sampled_from(["DisruptionTarget", "PodScheduled"]),
    status=st.sampled_from(["True", "False"]),
    reason=st.sampled_from([None, "DeletionByTaintManager", "Unschedulable"]),
)
pod_statuses = st.builds(
    PodStatus,
    phase=st.sampled_from(["", "Pending", "Running", "Running", "Succeeded", "Failed", "Unknown"]),
    reason=st.sampled_from([None, None, "Evicted", "NodeLost", "OutOfcpu", "Odd"]),
    message=st.none() | st.text(max_size=20),
    podIP=st.sampled_from([None, "10.0.0.1", "10.0.0.2", "fd00::1"]),
    hostIP=st.sampled_from([None, "192.168.0.1"]),
    conditions=st.none() | st.tuples(pod_conditions),
    containerStatuses=st.none() | st.tuples(containers),
)


@st.composite
def pods(draw: st.DrawFn) -> tuple[Pod, ...]:
    """A few pods that the job controls, sorted by name as the cache gives them."""
    roles = st.sampled_from(["worker", "worker", "ps", "heter", "master"])
    seats = st.tuples(roles, st.sampled_from([0, 0, 1, 2, 3]))
    labels = st.sampled_from([{names.LABEL_ATTEMPT: n} for n in ("0", "0", "0", "1", "2", "?")])
    notes = st.sampled_from(
        [{}, {names.ANNOTATION_WORLD: "0.2.0"}, {names.ANNOTATION_TEMPLATE: "?"}]
    )
    found = []
    for role, index in sorted(draw(st.lists(seats, unique=True, max_size=5))):
        meta = Meta(
            name=f"{JOB}-{role}-{index}",
            namespace=NAMESPACE,
            uid=f"p-{role}-{index}",
            deletionTimestamp=draw(st.sampled_from([None, None, None, rfc3339(START - 70)])),
            deletionGracePeriodSeconds=30,
            labels=draw(labels),
            annotations=draw(notes),
        )
        spec = PodSpec(nodeName=draw(st.sampled_from([None, "node-0", "node-1"])))
        found.append(Pod(meta, spec, draw(pod_statuses)))
    return tuple(found)


@st.composite
def moments(draw: st.DrawFn) -> ObservedState:
    """Everything of one job at one moment, as no story would have it."""
    meta = Meta(
        name=JOB,
        namespace=NAMESPACE,
        uid=UID,
        generation=1,
        deletionTimestamp=draw(st.sampled_from([*[None] * 9, rfc3339(START)])),
        labels=draw(st.sampled_from([None, None, {names.KUEUE_QUEUE: "q"}])),
        finalizers=draw(st.sampled_from([None, (names.OLD_FINALIZER, "other")])),
    )
    labels = {names.LABEL_ATTEMPT: draw(st.sampled_from("012"))}
    config_map = ConfigMap(Meta(name=JOB, uid="m-1", labels=labels))
    faults = st.builds(
        FailedCall, st.sampled_from(["create", "delete"]), st.sampled_from(["Pod", "ConfigMap"]),
        st.just(f"{JOB}-worker-0"), st.sampled_from(["Invalid", "Forbidden", "AlreadyExists"]),
        st.text(max_size=20), status=st.sampled_from([0, 400, 403, 409, 422]),
    )  # fmt: skip
    versions = st.sampled_from(["scheduling.volcano.sh/v1beta1", "scheduling.x-k8s.io/v1alpha1"])
    groups = st.builds(
        PodGroup, versions, st.just(Meta(name=JOB, uid="g-1")), st.just({"minMember": 1}),
        st.builds(PodGroupStatus, st.sampled_from(["", "Pending", "Inqueue"])),
    )  # fmt: skip
    return ObservedState(
        PaddleJob(meta, spec=draw(specs), status=draw(statuses)),
        pods=draw(pods()),
        services=draw(st.sampled_from([(), (Object(Meta(name=JOB, uid="s-1")),)])),
        config_maps=draw(st.sampled_from([(), (config_map,)])),
        pod_groups=draw(st.just(()) | st.tuples(groups)),
        failed_calls=draw(weighted((5, st.just(())), (1, st.tuples(faults)))),
        has_volcano=draw(st.booleans()),
    )
