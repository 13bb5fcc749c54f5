"""All pods at once or none: jobs go to their end under each gang scheduler, whatever comes between.

Volcano is played after its sources (cluster/gangs.py); API server, garbage collector, kubelets and,
but for Volcano's pods, the scheduler that binds them are real. Kueue: test_operator_kueue.py.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from cluster.control.operators import Operator, install
from cluster.gangs import (
    CRDS,
    DEFINITIONS,
    PlayedVolcano,
    evict,
    finish,
    queue,
    suspend_and_resume,
)
from cluster.jobs import condition
from paddlejobs import job

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cluster.control.cluster import Cluster
    from cluster.jobs import Place, Probes

VOLCANO, PLUGINS = "scheduling.volcano.sh", "scheduling.x-k8s.io"
# Or the pods would wait for a scheduler that is not here.
PLACED = {"schedulerName": "default-scheduler"}


def group_of(place: Place, kind: str, name: str) -> dict[str, Any]:
    """The spec of a job's PodGroup; {} while there is none."""
    said = place.kubectl("get", f"podgroups.{kind}", name, "-o", "json", check=False)
    found: dict[str, Any] = json.loads(said)["spec"] if said.startswith("{") else {}
    return found


@pytest.fixture(scope="module")
def operator(cluster: Cluster) -> Iterator[Operator]:
    """An operator on a cluster where no test before this one has left a definition."""
    install(cluster.plane)
    cluster.kubectl("delete", *CRDS, "--ignore-not-found")
    with Operator(cluster.plane) as made:
        yield made
    assert made.bugs() == [], made.tail()


@pytest.fixture(scope="module")
def missing(shared_place: Place, probes: Probes) -> dict[str, Any]:
    """What two jobs say before anybody has installed their schedulers."""
    found: dict[str, Any] = {}
    for scheduler, pod in (("volcano", {}), ("coscheduling", PLACED)):
        policy = {"scheduler": scheduler, "queue": "research", "minAvailable": 2}
        role = probes.role(2, "sleep", pod=pod)
        shared_place.apply(job(scheduler, schedulingPolicy=policy, ps=role, worker=role))
    for scheduler in ("volcano", "coscheduling"):
        found[scheduler] = shared_place.wait(scheduler, reason="SchedulerMissing")
        assert not shared_place.pods(scheduler)
    return found


@pytest.fixture(scope="module")
def jobs(missing: dict[str, Any], shared_place: Place) -> Iterator[Place]:
    """The same jobs after the definitions were installed: the operator notices that by itself."""
    plane = shared_place.plane
    plane.apply(*DEFINITIONS)
    plane.kubectl("wait", "--for=condition=Established", *CRDS, "--timeout=60s")
    plane.apply(queue("research"), queue("small", cpu="25m"))
    yield shared_place
    plane.kubectl("delete", *CRDS)
    # It goes on without them.
    shared_place.make("after", suspend=True, worker={"replicas": 1, "template": {
        "spec": {"containers": [{"name": "a", "image": "b"}]}}})  # fmt: skip
    shared_place.wait("after", reason="Suspended")


@pytest.mark.parametrize("scheduler", ["volcano", "coscheduling"])
def test_a_scheduler_that_is_not_installed_is_said_to_be_missing(
    scheduler: str, missing: dict[str, Any]
) -> None:
    """paddle-operator did not even start without Volcano's definitions when told to use them."""
    status = missing[scheduler]
    assert status["phase"] == "Pending"
    found = condition(status, "GangScheduled")
    assert (found["status"], found["reason"]) == ("False", "SchedulerMissing")
    assert scheduler in found["message"] and found["message"] == status["message"]


def test_volcano_carries_a_job_through_an_eviction_to_its_end(
    jobs: Place, cluster: Cluster
) -> None:
    """The group first, pods when it is Inqueue, placed together, and no group at last."""
    jobs.wait("volcano", reason="WaitingForGang", seconds=10)  # the definition is noticed at once
    spec = jobs.soon("a group", lambda: group_of(jobs, VOLCANO, "volcano"), "volcano")
    assert (spec["minMember"], spec["queue"]) == (2, "research")
    # Limits of the two pods that must find a place: no request was given.
    assert spec["minResources"]["memory"] == "64Mi"
    assert not jobs.pods("volcano")
    with PlayedVolcano(cluster):
        status = jobs.wait("volcano", "Running")
        assert condition(status, "GangScheduled")["status"] == "True"
        annotations = jobs.pods("volcano")["volcano-ps-0"]["metadata"]["annotations"]
        assert annotations["scheduling.k8s.io/group-name"] == "volcano"
        assert annotations["volcano.sh/task-spec"] == "ps"
        evict(jobs, "volcano-worker-1")
        jobs.wait("volcano", "Running", until=lambda s: s["attempt"] == 1)
        suspend_and_resume(jobs, "volcano")
        finish(jobs, "volcano", 2)
    jobs.wait_gone(f"podgroups.{VOLCANO}", "volcano")


def test_a_replica_comes_again_though_volcano_says_unknown(
    jobs: Place, cluster: Cluster, probes: Probes
) -> None:
    """Its group runs and is short of a pod: what Volcano says of it must not keep that pod away.

    The group was made by the user, as in paddle-operator's guide: it is used, and stays.
    """
    theirs = {"apiVersion": f"{VOLCANO}/v1beta1", "kind": "PodGroup",
              "metadata": {"name": "alone"}, "spec": {"minMember": 3}}  # fmt: skip
    worker = probes.role(2, "sleep", restartScope="Replica")
    policy = {"scheduler": "volcano"}
    ours = job(
        "alone", intranet="DNS", schedulingPolicy=policy, worker=worker, ps=probes.role(1, "sleep")
    )
    with PlayedVolcano(cluster):
        jobs.apply(theirs, ours)
        jobs.wait("alone", "Running")
        uids = jobs.uids("alone")
        evict(jobs, "alone-worker-1")
        jobs.soon("another pod", lambda: jobs.uids("alone").get("alone-worker-1", "") not in
                  ("", uids["alone-worker-1"]), "alone")  # fmt: skip
        status = jobs.wait("alone", "Running")
        assert status["attempt"] == 0
        finish(jobs, "alone", 2)
    assert group_of(jobs, VOLCANO, "alone") == {"minMember": 3}


def test_an_elastic_job_under_volcano_is_admitted_when_its_minimum_fits(
    jobs: Place, cluster: Cluster, probes: Probes
) -> None:
    """The enqueue action asks for minResources: with those of all replicas it waited for ever."""
    worker = probes.role(4, "sleep", requests=2, limits=4, container=asking(cpu="10m"))
    policy = {"scheduler": "volcano", "queue": "small"}
    with PlayedVolcano(cluster):
        jobs.apply(job("stretch", schedulingPolicy=policy, elastic=1, worker=worker))
        status = jobs.wait("stretch", until=lambda s: s.get("ready") == "2/4")
        assert condition(status, "GangScheduled")["status"] == "True"
        jobs.kubectl("delete", "pdj", "stretch")


def test_a_gang_that_waits_says_why_in_volcanos_words_and_its_group_is_left_alone(
    jobs: Place, cluster: Cluster, probes: Probes
) -> None:
    """Each wrote its own form of the quantities over the other's, as long as a gang waited."""
    worker = probes.role(2, "sleep", container=asking(cpu="20m", memory="33554432"))
    policy = {"scheduler": "volcano", "queue": "small",
              "minResources": {"cpu": "0.040", "memory": "64000000"}}  # fmt: skip
    with PlayedVolcano(cluster):
        jobs.apply(job("waits", schedulingPolicy=policy, worker=worker))
        words = "queue resource quota insufficient: insufficient cpu"
        jobs.wait("waits", reason="WaitingForGang", until=lambda s: words in s["message"])
        spec = group_of(jobs, VOLCANO, "waits")
        assert spec["minResources"] == {"cpu": "40m", "memory": "64M"}
        group = ("get", f"podgroups.{VOLCANO}", "waits", "-o", "jsonpath={.metadata.generation}")
        before = jobs.kubectl(*group)
        jobs.patch("waits", {"ttlSecondsAfterFinished": 60})
        generation = jobs.job("waits")["metadata"]["generation"]
        jobs.wait("waits", until=lambda s: s["observedGeneration"] == generation)
        assert jobs.kubectl(*group) == before
        jobs.kubectl("delete", "pdj", "waits")


def test_the_pod_that_does_not_fit_is_the_reason_and_not_those_that_would(
    jobs: Place, cluster: Cluster, probes: Probes
) -> None:
    """Volcano calls those Schedulable: they wait for the other one."""
    policy = {"scheduler": "volcano", "minResources": {"cpu": "1m"}}
    fits = probes.role(1, "sleep")
    large = probes.role(1, "sleep", container=asking(cpu="1000"))
    with PlayedVolcano(cluster):
        jobs.apply(job("large", schedulingPolicy=policy, ps=fits, worker=large))
        status = jobs.wait("large", reason="Unschedulable")
        assert "worker-0 waits: Unschedulable: 0/2 nodes are unavailable" in status["message"]
        jobs.kubectl("delete", "pdj", "large")


def test_a_queue_that_does_not_exist_is_said_in_volcanos_words(
    jobs: Place, cluster: Cluster, probes: Probes
) -> None:
    """Its webhook refuses the PodGroup."""
    policy = {"scheduler": "volcano", "queue": "nosuch"}
    with PlayedVolcano(cluster):
        jobs.apply(job("lost", schedulingPolicy=policy, worker=probes.role(1, "sleep")))
        status = jobs.wait("lost", reason="WebhookRefused")
        assert "unable to find queue" in status["message"]
        jobs.kubectl("delete", "pdj", "lost")


def asking(**requests: str) -> dict[str, Any]:
    """A container's fields with these requests."""
    return {"resources": {"limits": {"memory": "64Mi"}, "requests": requests}}


def test_coscheduling_holds_pods_that_carry_its_label(jobs: Place) -> None:
    """scheduler-plugins reads the group of a pod from its label; the pods are made at once."""
    jobs.wait("coscheduling", "Running")
    spec = group_of(jobs, PLUGINS, "coscheduling")
    assert spec["minMember"] == 2
    labels = jobs.pods("coscheduling")["coscheduling-worker-1"]["metadata"]["labels"]
    assert labels["scheduling.x-k8s.io/pod-group"] == "coscheduling"
    jobs.patch("coscheduling", {"suspend": True})
    jobs.wait_gone(f"podgroups.{PLUGINS}", "coscheduling")
    assert jobs.wait("coscheduling", reason="Suspended")["phase"] == "Pending"
