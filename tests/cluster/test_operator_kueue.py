"""Jobs in a queue of Kueue itself are admitted whole and come to their end, whatever happens.

Kueue is the real one (cluster/kueue.py), and so are API server, scheduler and kubelets.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from cluster.gangs import evict, finish, suspend_and_resume
from cluster.kueue import VERSION, InstalledKueue, add_queue
from paddlejobs import job

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cluster.control.cluster import Cluster
    from cluster.jobs import Place, Probes

QUEUE, PRIORITY = "kueue.x-k8s.io/queue-name", "kueue.x-k8s.io/priority-class"
WORKLOADS = "workloads.kueue.x-k8s.io"
URGENT = {
    "apiVersion": VERSION, "kind": "WorkloadPriorityClass", "metadata": {"name": "urgent"},
    "value": 1000,
}  # fmt: skip


@pytest.fixture(scope="module")
def jobs(
    cluster: Cluster, shared_place: Place, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Place]:
    """A namespace of a cluster that has Kueue for the tests of this module."""
    with InstalledKueue(cluster, tmp_path_factory.mktemp("kueue")):
        yield shared_place
        shared_place.kubectl("delete", "pdj", "--all")  # a queue stays as long as somebody is in it


def queued(name: str, queue: str, *, priority: str = "", **spec: Any) -> dict[str, Any]:
    """A job for Kueue."""
    made = job(name, **spec)
    made["metadata"]["labels"] = {QUEUE: queue, **({PRIORITY: priority} if priority else {})}
    return made


def test_kueue_carries_a_job_through_all_that_ends_pods_to_its_end(
    jobs: Place, probes: Probes
) -> None:
    """Eviction, preemption, suspension: each time Kueue's finalizer goes, and the gang comes again.

    Its servers are told to end when its workers have; another job waits behind it meanwhile.
    """
    role = probes.role(2, "sleep")
    add_queue(jobs, "three", pods=3)
    jobs.apply(URGENT, queued("queued", "three", worker=role, ps=probes.role(1, "sleep")))
    jobs.wait("queued", "Running")
    evict(jobs, "queued-worker-1")
    jobs.wait("queued", "Running", until=lambda s: s["attempt"] == 1)
    jobs.apply(queued("urgent", "three", priority="urgent", worker=role))
    jobs.wait("queued", until=lambda s: s["attempt"] == 2)
    jobs.wait("urgent", "Running")
    finish(jobs, "urgent", 2)
    jobs.wait("queued", "Running")
    suspend_and_resume(jobs, "queued")
    jobs.apply(queued("second", "three", worker=role))
    assert jobs.wait("second", reason="SchedulingGated")["phase"] == "Pending"
    finish(jobs, "queued", 2)
    jobs.wait("second", "Running")
    finish(jobs, "second", 2)
    jobs.wait_gone(WORKLOADS)
    assert jobs.status("queued")["disruptions"] == 2


def test_a_job_that_is_deleted_leaves_nothing_to_kueue(jobs: Place, probes: Probes) -> None:
    """While it runs, and while it waits: the pod garbage collector helps with the latter, in 20 s.

    Nobody of ours looks any more: Kueue itself has to know that those pods do not come again.
    """
    add_queue(jobs, "two", pods=2)
    jobs.apply(queued("runs", "two", worker=probes.role(2, "sleep")))
    jobs.wait("runs", "Running")
    jobs.apply(queued("waits", "two", worker=probes.role(2, "sleep")))
    jobs.wait("waits", reason="SchedulingGated")
    jobs.kubectl("delete", "pdj", "waits", "runs", "--wait=false")
    jobs.soon("no pods", lambda: not jobs.pods("runs") and not jobs.pods("waits"))
    jobs.wait_gone(WORKLOADS)
    assert not jobs.job("runs") and not jobs.job("waits")


def test_elastic_pods_queue_each_by_itself(jobs: Place, probes: Probes) -> None:
    """As many train as the quota has room for; one that is evicted comes again under its name."""
    worker = probes.role(2, "sleep", requests=1, limits=4)
    add_queue(jobs, "elastic", pods=3)
    jobs.apply(queued("stretch", "elastic", elastic=1, worker=worker))
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
