"""What holds for every job, whatever its spec, its status and its pods are, and whatever happens.

The rules of a single decision are in tests/operator_rules.py; World asks for them at every look.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from operator_rules import check_rules, check_same
from operator_world import NAMESPACE, START, World, full_spec
from paddock.kube.client import CONFIG_MAPS, PODS, SERVICES, KubeError
from paddock.kube.objects import (
    Condition,
    ConfigMap,
    ContainerState,
    ContainerStatus,
    Meta,
    Object,
    PaddleJob,
    Pod,
    PodGroup,
    PodGroupStatus,
    PodSpec,
    PodStatus,
    Terminated,
    Waiting,
    rfc3339,
)
from paddock.operator import names
from paddock.operator.decision import Fault, Observed, Settings
from paddock.operator.reconcile import reconcile
from paddock.operator.runtime.status import canonical
from paddock.operator.schema import TREE
from paddock.operator.spec import ROLES
from paddock.operator.status import TERMINAL, read_status

Fields = dict[str, st.SearchStrategy[Any]]
JOB, UID = "demo", "u-1"
TEMPLATE = {"spec": {"containers": [{"name": "c", "image": "i"}]}}
SLOW = (HealthCheck.too_slow, HealthCheck.data_too_large)

# ------------------------------------------------------------------- any job at any moment

anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=6,
)
times = st.sampled_from(
    ["2025-12-31T23:00:00Z", rfc3339(START), "2027-01-01T00:00:00Z", "0001-01-01"]
)


def some(fields: Fields) -> st.SearchStrategy[dict[str, Any]]:
    """Some of these fields, three times out of four as they should be, else any of them odd."""
    right = st.fixed_dictionaries({}, optional=fields)
    odd = {name: good | anything for name, good in fields.items()}
    return st.one_of(right, right, right, st.fixed_dictionaries({}, optional=odd))


right_role = st.builds(
    lambda replicas, extra: {"replicas": replicas, "template": TEMPLATE, **extra},
    st.integers(0, 3),
    st.sampled_from([{}, {}, {"restartScope": "Replica"}, {"requests": 1, "limits": 3}]),
)
role = some(
    {"replicas": st.integers(-1, 4), "limits": st.integers(0, 5), "template": st.just(TEMPLATE)}
)
rule = some(
    {
        "action": st.sampled_from(["Fail", "Restart", "RestartUncounted", "Ignore"]),
        "causes": st.lists(st.sampled_from(["Evicted", "ExitCode", "Signal"]), max_size=2),
    }
)
spec_fields: Fields = {
        "ps": right_role,
        "intranet": st.sampled_from(["PodIP", "Service", "Host", "DNS", "?"]),
        "cleanPodPolicy": st.sampled_from(["Always", "Never", "OnFailure", "OnCompletion", "?"]),
        "elastic": st.integers(-1, 2),
        "withGloo": st.integers(0, 2),
        "suspend": st.booleans(),
        "backoffLimit": st.integers(0, 3),
        "activeDeadlineSeconds": st.integers(1, 10**6),
        "ttlSecondsAfterFinished": st.integers(0, 10**6),
        "successPolicy": st.sampled_from(["Workers", "AllRoles", "Worker0"]),
        "failurePolicy": some({"rules": st.lists(rule, max_size=3)}),
        "schedulingPolicy": some({"scheduler": st.sampled_from(["volcano", "coscheduling"])}),
    }
)
statuses = anything | some(
    {
        "phase": st.sampled_from(["Pending", "Running", "Restarting", "Completed", "Failed"]),
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
        "conditions": st.lists(
            some(
                {
                    "type": st.sampled_from(["Running", "Suspended", "Restarting", "X"]),
                    "status": st.sampled_from(["True", "False"]),
                    "lastTransitionTime": times,
                }
            ),
            max_size=4,
        ),
        **dict.fromkeys(ROLES, some({"completedIndexes": st.sampled_from(["0", "0-1", "3,7"])})),
    }
)
ended = st.builds(
    Terminated,
    exitCode=st.sampled_from([0, 1, 2, 128, 137, 143]),
    reason=st.sampled_from([None, "Error", "OOMKilled", "Completed", "StartError"]),
    message=st.none() | st.text(max_size=20),
    finishedAt=st.sampled_from([None, rfc3339(START - 5), rfc3339(START - 1)]),
)
containers = st.builds(
    ContainerStatus,
    name=st.just("c"),
    ready=st.booleans(),
    restartCount=st.integers(0, 12),
    state=st.builds(
        ContainerState,
        waiting=st.none() | st.builds(
            Waiting,
            reason=st.sampled_from(["ErrImagePull", "CreateContainerConfigError", None]),
            message=st.none() | st.text(max_size=20),
        ),
        terminated=st.none() | ended,
    ),
    lastState=st.builds(ContainerState, terminated=st.none() | ended),
)  # fmt: skip
pod_statuses = st.builds(
    PodStatus,
    phase=st.sampled_from(["", "Pending", "Running", "Succeeded", "Failed", "Unknown"]),
    reason=st.sampled_from([None, "Evicted", "NodeLost", "OutOfcpu", "Odd"]),
    message=st.none() | st.text(max_size=20),
    podIP=st.sampled_from([None, "10.0.0.1", "10.0.0.2", "fd00::1"]),
    hostIP=st.sampled_from([None, "192.168.0.1"]),
    conditions=st.none() | st.tuples(
        st.builds(
            Condition,
            type=st.sampled_from(["DisruptionTarget", "PodScheduled"]),
            status=st.sampled_from(["True", "False"]),
            reason=st.sampled_from([None, "DeletionByTaintManager", "Unschedulable"]),
        )
    ),
    containerStatuses=st.none() | st.tuples(containers),
)  # fmt: skip


@st.composite
def pods(draw: st.DrawFn) -> tuple[Pod, ...]:
    """A few pods that the job controls, sorted by name as the cache gives them."""
    seats = st.tuples(st.sampled_from([*ROLES, "master"]), st.integers(0, 3))
    found = []
    for role_name, index in sorted(draw(st.lists(seats, unique=True, max_size=4))):
        name = f"{JOB}-{role_name}-{index}"
        meta = Meta(
            name=name,
            namespace=NAMESPACE,
            uid=f"p-{role_name}-{index}",
            deletionTimestamp=draw(st.sampled_from([None, None, rfc3339(START - 70)])),
            deletionGracePeriodSeconds=30,
            labels={names.LABEL_ATTEMPT: draw(st.sampled_from(["0", "0", "1", "2", "?"]))},
            annotations=draw(
                st.sampled_from([{}, {names.ANNOTATION_WORLD: "0.2.0"},
                                 {names.ANNOTATION_TEMPLATE: "?"}])
            ),
        )  # fmt: skip
        spec = PodSpec(nodeName=draw(st.sampled_from([None, "node-0", "node-1"])))
        found.append(Pod(meta, spec, draw(pod_statuses)))
    return tuple(found)


@st.composite
def moments(draw: st.DrawFn) -> Observed:
    """Everything of one job at one moment, as no story would have it."""
    job = PaddleJob(
        Meta(
            name=JOB, namespace=NAMESPACE, uid=UID, generation=1,
            deletionTimestamp=draw(st.sampled_from([None, None, None, rfc3339(START)])),
            labels=draw(st.sampled_from([None, {names.KUEUE_QUEUE: "q"}])),
            finalizers=draw(st.sampled_from([None, (names.OLD_FINALIZER, "other")])),
        ),
        spec=draw(specs), status=draw(statuses),
    )  # fmt: skip
    config_map = ConfigMap(
        Meta(name=JOB, uid="m-1", labels={names.LABEL_ATTEMPT: draw(st.sampled_from("012"))})
    )
    faults = st.builds(
        Fault, st.sampled_from(["create", "delete"]), st.sampled_from(["Pod", "ConfigMap"]),
        st.just(f"{JOB}-worker-0"), st.sampled_from(["Invalid", "Forbidden", "AlreadyExists"]),
        st.text(max_size=20), status=st.sampled_from([0, 400, 403, 409, 422]),
    )  # fmt: skip
    groups = st.builds(
        PodGroup, st.sampled_from(["scheduling.volcano.sh/v1beta1", "scheduling.x-k8s.io/v1alpha1"]),
        st.just(Meta(name=JOB, uid="g-1")), st.just({"minMember": 1}),
        st.builds(PodGroupStatus, st.sampled_from(["", "Pending", "Inqueue"])),
    )  # fmt: skip
    return Observed(
        job,
        pods=draw(pods()),
        services=draw(st.sampled_from([(), (Object(Meta(name=JOB, uid="s-1")),)])),
        config_maps=draw(st.sampled_from([(), (config_map,)])),
        pod_groups=draw(st.tuples() | st.tuples(groups)),
        faults=draw(st.tuples() | st.tuples(faults)),
        has_volcano=draw(st.booleans()),
    )


def with_status(observed: Observed, status: object) -> Observed:
    """The same moment after the status was written."""
    meta, spec = observed.job.metadata, observed.job.spec
    return Observed(
        PaddleJob(meta, spec, json.loads(json.dumps(canonical(status)))),
        observed.pods, observed.services, observed.config_maps, observed.pod_groups,
        observed.faults, observed.has_volcano,
    )  # fmt: skip


@settings(max_examples=250, deadline=None, suppress_health_check=SLOW)
@given(moments())
def test_any_job_gets_a_decision_and_a_status_that_stays(observed: Observed) -> None:
    """No user's job may end the operator, or make it write for ever.

    Killed after each status, the operator comes to the same attempt and the same counts again, and
    after two passes to the same status.
    """
    written = []
    for _ in range(4):
        decision = reconcile(observed, START, Settings())
        check_same(decision, reconcile(observed, START, Settings()))
        check_rules(observed, decision)
        if decision.status is not None:
            observed = with_status(observed, decision.status)
        written.append(observed.job.status)
    assert written[3] == written[2]
    first, *others = (read_status(status).memory for status in written)
    for memory in others:
        assert (memory.attempt, memory.restarts, memory.counted, memory.disruptions) == (
            first.attempt, first.restarts, first.counted, first.disruptions
        )  # fmt: skip


@pytest.mark.parametrize("path", ["spec.worker", "spec.schedulingPolicy", "spec.failurePolicy"])
def test_the_specs_that_are_tried_know_the_fields_of_the_schema(path: str) -> None:
    """Else the property above would try nothing but unknown fields."""
    assert path.removeprefix("spec.") in TREE["spec"].children


# ---------------------------------------------------------------------- whatever happens


def pod_at(world: World, number: int) -> str:
    """Some pod of the job; raises IndexError without one."""
    found = world.pods(JOB)
    return found[number % len(found)] if found else found[0]


def run_some(world: World, number: int) -> None:
    world.run(pod_at(world, number), f"node-{number % 3}")


def run_all(world: World, number: int) -> None:
    for pod in world.pods(JOB):
        world.run(pod, f"node-{number % 3}")


def end(world: World, number: int) -> None:
    pod = f"{NAMESPACE}/{pod_at(world, number)}"
    if number % 3:
        world.kubelet.fail(pod, (1, 2, 137, 139)[number % 4], message="ValueError: no")
    else:
        world.kubelet.succeed(pod)


def disrupt(world: World, number: int) -> None:
    pod = f"{NAMESPACE}/{pod_at(world, number)}"
    (world.kubelet.evict, world.kubelet.preempt)[number % 2](pod)


def remove(world: World, number: int) -> None:
    resource = (PODS, PODS, CONFIG_MAPS, SERVICES)[number % 4]
    world.delete(resource, pod_at(world, number) if resource is PODS else JOB)


def node(world: World, number: int) -> None:
    name = f"node-{number % 3}"
    if name in world.kubelet.lost:
        world.kubelet.return_node(name)
    else:
        world.kubelet.lose_node(name)
        world.kubelet.evict_lost(name)


def edit(world: World, number: int) -> None:
    changes: tuple[dict[str, Any], ...] = (
        {"worker": {"replicas": number % 5}}, {"suspend": True}, {"suspend": False},
        {"backoffLimit": -1}, {"backoffLimit": number % 4}, {"cleanPodPolicy": "Never"},
        {"worker": full_spec({"worker": {"replicas": 2, "image": f"i:{number % 2}"}})["worker"]},
    )  # fmt: skip
    world.edit(JOB, changes[number % len(changes)])


def trouble(world: World, number: int) -> None:
    if number % 4 == 0:
        world.killed_at = JOB
    elif number % 4 == 1:
        world.forget()
    else:
        world.server.set_quota(NAMESPACE, number % 4 - 1 if number % 3 else None)


def wait(world: World, number: int) -> None:
    world.pass_time((1, 5, 31, 100, 700)[number % 5])


def look(world: World, number: int) -> None:
    world.look(JOB)


HAPPENINGS = (run_some, run_all, run_all, end, disrupt, remove, node, edit, trouble, wait, look)
happenings = st.lists(
    st.tuples(st.sampled_from(HAPPENINGS), st.integers(0, 59)), min_size=1, max_size=14
)
JOBS = (
    {"worker": 3, "backoffLimit": 2},
    {"ps": {"replicas": 2, "image": "i", "restartScope": "Replica"}, "worker": 1,
     "intranet": "DNS"},
    {"worker": {"replicas": 2, "requests": 1, "limits": 4, "image": "i"}},
    {"ps": 1, "worker": 2, "intranet": "Service", "activeDeadlineSeconds": 500},
    {"worker": 2, "intranet": "Host", "schedulingPolicy": {"scheduler": "coscheduling"}},
)  # fmt: skip


def check_started(world: World) -> None:
    """A program that runs has been told where its own peers are, and nobody else's."""
    for name in world.pods(JOB):
        pod = world.pod(name)
        env = world.environment(name)
        if pod["status"].get("phase") != "Running" or not env or "PADDLE_ELASTIC_NP" in env:
            continue
        if pod["metadata"].get("deletionTimestamp"):
            continue
        assert env["PADDOCK_JOB_ATTEMPT"] == pod["metadata"]["labels"][names.LABEL_ATTEMPT]
        if env["POD_IP"][0].isdigit():
            assert env["POD_IP"] == pod["status"]["podIP"]


@settings(max_examples=40, deadline=None, suppress_health_check=SLOW)
@given(st.sampled_from(JOBS), happenings)
def test_whatever_happens_every_rule_holds_and_the_job_settles(
    spec: dict[str, Any], happened: list[tuple[Any, int]]
) -> None:
    """Rules at every look; an end; and when the trouble is over the job comes to a rest or to one.

    A job that is over stays as it is, whatever happens to its pods and to its spec.
    """
    world = World(asks_twice=True)
    world.create_job(JOB, full_spec(spec))
    over = ""
    for what, number in happened:
        try:
            what(world, number)
        except (IndexError, KubeError):
            continue  # there was nothing that it could have happened to
        if what is not look:
            world.settle()
        check_started(world)
        status = read_status(world.job(JOB).status)
        assert not over or status.phase == over
        over = status.phase if status.is_over else ""
    assert heal(world) in (*TERMINAL, "Running")


def heal(world: World) -> str:
    """The trouble ends, and time passes; the phase that the job comes to."""
    world.server.set_quota(NAMESPACE, None)
    for name in sorted(world.kubelet.lost):
        world.kubelet.return_node(name)
    world.edit(JOB, {"suspend": False, "backoffLimit": 3, "worker": {"replicas": 2}})
    for _ in range(6):
        world.pass_time(400)
        world.settle()
        for pod in world.pods(JOB):
            if world.pod(pod)["status"].get("phase") == "Pending":
                world.run(pod)
        world.settle()
    return read_status(world.job(JOB).status).phase
