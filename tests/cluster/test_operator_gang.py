"""All pods at once or none: what the gang schedulers are given, and what the job waits for.

Volcano, scheduler-plugins and Kueue cannot be fetched as Go modules, so they are not here. Their
PodGroup definitions are minimal ones, written for these tests, and the schedulers' part (admitting
a group, lifting a gate) is played with kubectl. The pods are then placed by the real scheduler.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from cluster.control.operators import Operator, install
from cluster.jobs import condition
from paddlejobs import job

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cluster.control.cluster import Cluster
    from cluster.jobs import Place, Probes

VOLCANO, PLUGINS = "scheduling.volcano.sh", "scheduling.x-k8s.io"
# Or the pods would wait for a scheduler that is not here.
PLACED = {"schedulerName": "default-scheduler"}
GATE = "kueue.x-k8s.io/admission"


def definition(group: str, version: str) -> dict[str, Any]:
    """A stand-in for the definition of a PodGroup: any spec, any status."""
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    served = {
        "name": version, "served": True, "storage": True, "subresources": {"status": {}},
        "schema": {"openAPIV3Schema": {
            "type": "object", "properties": {"spec": anything, "status": anything}
        }},
    }  # fmt: skip
    names = {"plural": "podgroups", "singular": "podgroup", "kind": "PodGroup"}
    return {
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": f"podgroups.{group}"},
        "spec": {"group": group, "scope": "Namespaced", "names": names, "versions": [served]},
    }  # fmt: skip


DEFINITIONS = (definition(VOLCANO, "v1beta1"), definition(PLUGINS, "v1alpha1"))
CRDS = tuple(f"crd/{made['metadata']['name']}" for made in DEFINITIONS)


def group_of(place: Place, kind: str, name: str) -> dict[str, Any]:
    """The spec of a job's PodGroup; {} while there is none."""
    said = place.kubectl("get", f"podgroups.{kind}", name, "-o", "json", check=False)
    found: dict[str, Any] = json.loads(said)["spec"] if said.startswith("{") else {}
    return found


def admit(place: Place, kind: str, name: str, phase: str) -> None:
    """What the scheduler does when there is room."""
    change = json.dumps({"status": {"phase": phase}})
    words = ("--subresource=status", "--type=merge", "-p", change)
    place.kubectl("patch", f"podgroups.{kind}", name, *words)


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
    for scheduler in ("volcano", "coscheduling"):
        policy = {"scheduler": scheduler, "queue": "research", "minAvailable": 2}
        role = probes.role(2, "sleep", pod=PLACED)
        shared_place.apply(job(scheduler, schedulingPolicy=policy, ps=role, worker=role))
    for scheduler in ("volcano", "coscheduling"):
        found[scheduler] = shared_place.wait(scheduler, reason="SchedulerMissing")
        assert not shared_place.pods(scheduler)
    return found


@pytest.fixture(scope="module")
def jobs(missing: dict[str, Any], shared_place: Place, operator: Operator) -> Iterator[Place]:
    """The same jobs after the definitions were installed.

    An operator looks for them every 20 s; another one, started now, sees them at once.
    """
    plane = shared_place.plane
    plane.apply(*DEFINITIONS)
    plane.kubectl("wait", "--for=condition=Established", *CRDS, "--timeout=60s")
    operator.stop()
    operator.start()
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


def test_volcano_decides_when_the_pods_of_a_job_are_made(jobs: Place) -> None:
    """The documented way: the group first, pods when it is Inqueue, and no group in the end."""
    status = jobs.wait("volcano", reason="WaitingForGang")
    assert not jobs.pods("volcano")
    assert condition(status, "GangScheduled")["status"] == "False"
    spec = jobs.soon("a group", lambda: group_of(jobs, VOLCANO, "volcano"), "volcano")
    assert (spec["minMember"], spec["queue"]) == (2, "research")
    assert spec["minResources"]["memory"] == "128Mi"  # limits of 4 pods: no request was given
    admit(jobs, VOLCANO, "volcano", "Inqueue")
    status = jobs.wait("volcano", "Running")
    assert condition(status, "GangScheduled")["status"] == "True"
    annotations = jobs.pods("volcano")["volcano-ps-0"]["metadata"]["annotations"]
    assert annotations["scheduling.k8s.io/group-name"] == "volcano"
    assert annotations["volcano.sh/task-spec"] == "ps"
    for pod in ("volcano-worker-0", "volcano-worker-1"):
        jobs.probe(pod, "release")
    jobs.wait("volcano", "Completed")
    jobs.wait_gone(f"podgroups.{VOLCANO}", "volcano")


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


def test_kueue_is_told_the_group_and_its_size_and_lifts_the_gates(
    jobs: Place, probes: Probes
) -> None:
    """Plain pods of one group: with Kueue its webhook adds the gates that this template has.

    Not covered: that webhook itself, and Kueue's preemption.
    """
    queued = job(
        "queued", worker=probes.role(2, "sleep", pod={"schedulingGates": [{"name": GATE}]})
    )
    queued["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "research"}
    jobs.apply(queued)
    status = jobs.wait("queued", reason="SchedulingGated")
    assert status["phase"] == "Pending"
    pods = jobs.pods("queued")
    groups = {p["metadata"]["labels"]["kueue.x-k8s.io/pod-group-name"] for p in pods.values()}
    counts = {p["metadata"]["annotations"]["kueue.x-k8s.io/pod-group-total-count"]
              for p in pods.values()}  # fmt: skip
    assert (len(groups), counts) == (1, {"2"})
    for pod in pods:
        jobs.kubectl("patch", "pod", pod, "--type=merge", "-p", '{"spec":{"schedulingGates":null}}')
    jobs.wait("queued", "Running")
    # A queue that takes its quota back, and gives it again.
    jobs.patch("queued", {"suspend": True})
    jobs.soon("its pods are gone", lambda: not jobs.pods("queued"), "queued")
    jobs.patch("queued", {"suspend": False})
    jobs.wait("queued", reason="SchedulingGated")
    again = {p["metadata"]["labels"]["kueue.x-k8s.io/pod-group-name"]
             for p in jobs.pods("queued").values()}  # fmt: skip
    assert len(again) == 1 and not again & groups  # Kueue knows a group of that name as finished
