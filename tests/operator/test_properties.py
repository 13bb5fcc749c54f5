"""What holds for every job, whatever its spec, its status and its pods are, and whatever happens.

The rules of a single decision are in tests/operator_rules.py; World asks for them at every look.
"""

from __future__ import annotations

import json
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from operator_moments import JOB, moments
from operator_rules import check_rules, check_same
from operator_world import NAMESPACE, START, World, full_spec
from paddock.kube.client import CONFIG_MAPS, PODS, SERVICES, KubeError
from paddock.kube.objects import PaddleJob
from paddock.operator import names
from paddock.operator.decision import ObservedState, OperatorSettings
from paddock.operator.reconcile import reconcile
from paddock.operator.runtime.executor import canonical
from paddock.operator.status import TERMINAL, ControllerState, has_ended, read_status

SLOW = (HealthCheck.too_slow, HealthCheck.data_too_large)


def with_status(observed: ObservedState, status: object) -> ObservedState:
    """The same moment after the status was written."""
    meta, spec = observed.job.metadata, observed.job.spec
    return ObservedState(
        PaddleJob(meta, spec, json.loads(json.dumps(canonical(status)))),
        observed.pods, observed.services, observed.config_maps, observed.pod_groups,
        observed.failed_calls, observed.has_volcano,
    )  # fmt: skip


@settings(max_examples=60, suppress_health_check=SLOW)
@given(moments())
def test_any_job_gets_a_decision_and_a_status_that_stays(observed: ObservedState) -> None:
    """No user's job may end the operator, or make it write for ever.

    Killed after each status, it counts nothing twice, and comes to a status that stays.
    """
    written = []
    check_same(*(reconcile(observed, START, OperatorSettings()) for _ in range(2)))
    for _ in range(4):
        decision = reconcile(observed, START, OperatorSettings())
        check_rules(observed, decision)
        if decision.status is not None:
            observed = with_status(observed, decision.status)
        written.append(observed.job.status)
    assert written[3] == written[2]
    first, *others = (read_status(status).state for status in written)
    for state in others:
        assert counts_of(state) == counts_of(first)
        assert state.attempt - first.attempt in (0, 1)  # 1: its size had changed besides


def counts_of(state: ControllerState) -> tuple[int, int, int]:
    """What failures have cost."""
    return state.restarts, state.counted_failures, state.disruptions


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
    world.schedule(pod_at(world, number))
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


@settings(max_examples=20, suppress_health_check=SLOW)
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
        over = status.phase if has_ended(status.phase, status.reason) else ""
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
