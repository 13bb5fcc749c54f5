"""All pods at once or none: jobs go to their end under each gang scheduler, whatever comes between.

The schedulers are played after their sources (cluster/gangs.py); API server, garbage collector,
kubelets and, but for Volcano's pods, the scheduler that binds them are real.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from cluster.control.operators import Operator, install
from cluster.gangs import CRDS, DEFINITIONS, Hook, kueue, volcano
from cluster.jobs import condition
from paddlejobs import job

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cluster.control.cluster import Cluster
    from cluster.jobs import Place, Probes

VOLCANO, PLUGINS = "scheduling.volcano.sh", "scheduling.x-k8s.io"
# Or the pods would wait for a scheduler that is not here.
PLACED = {"schedulerName": "default-scheduler"}
QUEUE = {"kueue.x-k8s.io/queue-name": "research"}
WORKLOADS = "workloads.kueue.x-k8s.io"
GROUP_LABEL = "kueue.x-k8s.io/pod-group-name"


def group_of(place: Place, kind: str, name: str) -> dict[str, Any]:
    """The spec of a job's PodGroup; {} while there is none."""
    said = place.kubectl("get", f"podgroups.{kind}", name, "-o", "json", check=False)
    found: dict[str, Any] = json.loads(said)["spec"] if said.startswith("{") else {}
    return found


def evict(place: Place, pod: str) -> None:
    """As a drain does."""
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod}}
    path = f"/api/v1/namespaces/{place.namespace}/pods/{pod}/eviction"
    place.kubectl("create", "--raw", path, "-f", "-", stdin=json.dumps(eviction))


def suspend_and_resume(place: Place, name: str) -> None:
    """Nothing of it is left in between, and it runs again."""
    place.patch(name, {"suspend": True})
    place.soon("its pods are gone", lambda: not place.pods(name), name)
    place.patch(name, {"suspend": False})
    place.wait(name, "Running")


def finish(place: Place, name: str, workers: int) -> None:
    """The workers succeed; the job is Completed, and no pod of it is left, Terminating or not."""
    for number in range(workers):
        place.probe(f"{name}-worker-{number}", "release")
    place.wait(name, "Completed")
    place.soon("its pods are gone", lambda: not place.pods(name), name)


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
    assert spec["minResources"]["memory"] == "128Mi"  # limits of 4 pods: no request was given
    assert not jobs.pods("volcano")
    with volcano(cluster, jobs.namespace, places=4):
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
    with volcano(cluster, jobs.namespace, places=3):
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


def queued(name: str, **spec: Any) -> dict[str, Any]:
    """A job for Kueue."""
    made = job(name, **spec)
    made["metadata"]["labels"] = QUEUE
    return made


def test_kueue_carries_a_job_through_all_that_ends_pods_to_its_end(
    jobs: Place, cluster: Cluster, probes: Probes
) -> None:
    """Eviction, preemption, suspension: each time Kueue's finalizer goes, and the gang comes again.

    Its servers are told to end when its workers have; another job waits behind it meanwhile.
    """
    role = probes.role(2, "sleep")
    with Hook(cluster, jobs.namespace), kueue(cluster, jobs.namespace, 3) as played:
        jobs.apply(queued("queued", worker=role, ps=probes.role(1, "sleep")))
        jobs.wait("queued", "Running")
        evict(jobs, "queued-worker-1")
        jobs.wait("queued", "Running", until=lambda s: s["attempt"] == 1)
        labels = jobs.pods("queued")["queued-ps-0"]["metadata"]["labels"]
        played.order(played.scheduler.evict(labels[GROUP_LABEL]))
        jobs.wait("queued", "Running", until=lambda s: s["attempt"] == 2)
        suspend_and_resume(jobs, "queued")
        jobs.apply(queued("second", worker=role))
        assert jobs.wait("second", reason="SchedulingGated")["phase"] == "Pending"
        finish(jobs, "queued", 2)
        jobs.wait("second", "Running")
        finish(jobs, "second", 2)
        jobs.wait_gone(WORKLOADS)
        assert jobs.status("queued")["disruptions"] == 2


def test_a_job_that_is_deleted_leaves_nothing_to_kueue(
    jobs: Place, cluster: Cluster, probes: Probes
) -> None:
    """While it runs, and while it waits: the pod garbage collector helps with the latter, in 20 s.

    Nobody of ours looks any more: Kueue itself has to know that those pods do not come again.
    """
    with Hook(cluster, jobs.namespace), kueue(cluster, jobs.namespace, 2):
        jobs.apply(queued("runs", worker=probes.role(2, "sleep")))
        jobs.wait("runs", "Running")
        jobs.apply(queued("waits", worker=probes.role(2, "sleep")))
        jobs.wait("waits", reason="SchedulingGated")
        jobs.kubectl("delete", "pdj", "waits", "runs", "--wait=false")
        jobs.soon("no pods", lambda: not jobs.pods("runs") and not jobs.pods("waits"))
        jobs.wait_gone(WORKLOADS)
        assert not jobs.job("runs") and not jobs.job("waits")


def test_elastic_pods_queue_each_by_itself(jobs: Place, cluster: Cluster, probes: Probes) -> None:
    """As many train as the quota has room for; one that is evicted comes again under its name."""
    worker = probes.role(2, "sleep", requests=1, limits=4)
    with Hook(cluster, jobs.namespace), kueue(cluster, jobs.namespace, 3):
        jobs.apply(queued("stretch", elastic=1, worker=worker))
        jobs.wait("stretch", "Running")
        jobs.patch("stretch", {"worker": {"replicas": 4}})
        jobs.wait("stretch", reason="SchedulingGated", until=lambda s: s["ready"] == "3/4")
        jobs.patch("stretch", {"worker": {"replicas": 3}})
        jobs.wait("stretch", "Running", until=lambda s: s["ready"] == "3/3")
        evict(jobs, "stretch-worker-0")
        jobs.wait("stretch", until=lambda s: s["ready"] != "3/3")
        jobs.wait("stretch", "Running", until=lambda s: s["ready"] == "3/3")
        finish(jobs, "stretch", 3)
        assert jobs.status("stretch")["attempt"] == 0
        jobs.wait_gone(WORKLOADS)
