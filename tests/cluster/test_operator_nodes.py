"""Pods that the cluster or its people take away: deleted, drained, lost with their node."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from cluster.jobs import LEAVE_SOON, WAIT_SECONDS_MAX
from paddlejobs import job

if TYPE_CHECKING:
    from cluster.control.cluster import Cluster
    from cluster.jobs import Place, Probes

OPERATOR_FLAGS = ("--force-delete-after", "1")


def prefer(node: str) -> dict[str, Any]:
    """Fields of a pod that is put there when it can be, and leaves when the node is lost."""
    wish = {"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}
    rule = {"weight": 100, "preference": {"matchExpressions": [wish]}}
    return {
        "affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [rule]}},
        "tolerations": LEAVE_SOON,
    }


def nodes(place: Place, name: str) -> dict[str, str]:
    """On which node each pod of a job is."""
    return {pod: found["spec"].get("nodeName", "") for pod, found in place.pods(name).items()}


@pytest.fixture(scope="module")
def jobs(shared_place: Place, probes: Probes) -> Place:
    """Jobs that run until they are told otherwise."""
    here, there = {"pod": prefer("node0")}, {"pod": prefer("node1")}
    sleeps = probes.role(2, "sleep", **there)
    alone = {
        "intranet": "Service", "backoffLimit": 3,
        "ps": probes.role(1, "sleep", restartScope="Replica", **there),
        "worker": probes.role(2, "sleep", **here),
    }  # fmt: skip
    shared_place.apply(
        job("deleted", worker=sleeps), job("drained", worker=sleeps), job("server", **alone),
        job("lost", worker=sleeps), job("lost-server", **alone),
        job("lost-elastic", elastic=1, worker=probes.role(2, "sleep", limits=3, **there)),
        # Pods that do not leave their node so soon.
        job("patient", worker=probes.role(1, "sleep",
                                          pod={**prefer("node1"), "tolerations": []})),
    )  # fmt: skip
    for name in ("deleted", "drained", "server", "lost", "lost-server", "lost-elastic", "patient"):
        shared_place.wait(name, "Running")
    return shared_place


def test_a_deleted_pod_starts_the_gang_again(jobs: Place) -> None:
    """Its companions would wait for it for ever, and a new one would not know them."""
    before = jobs.uids("deleted")
    jobs.kubectl("delete", "pod", "deleted-worker-1", "--wait=false")
    status = jobs.wait("deleted", "Running", until=lambda s: s["attempt"] == 1)
    assert (status["restarts"], status["disruptions"]) == (1, 1)
    failure = status["lastFailure"]
    assert (failure["pod"], failure["cause"]) == ("deleted-worker-1", "Deleted")
    assert not set(before.values()) & set(jobs.uids("deleted").values())
    (said,) = (e for e in jobs.events("deleted") if e.startswith("Restarting"))
    assert "worker-1" in said and "its pod was deleted" in said
    assert said.endswith("restarting all 2 pods, restart 1 of 3")


def test_a_drained_node_is_left_by_the_whole_gang(jobs: Place) -> None:
    """What administrators do before they work on a machine; without losing the job."""
    label = "batch.paddlepaddle.org/job-name=drained"
    jobs.plane.kubectl(
        "drain", "node1", "--force", "--ignore-daemonsets", "--pod-selector", label, "--timeout=60s"
    )
    status = jobs.wait("drained", "Running", until=lambda s: s["attempt"] == 1)
    jobs.plane.kubectl("uncordon", "node1")
    assert set(nodes(jobs, "drained").values()) == {"node0"}
    assert (status["lastFailure"]["cause"], status["disruptions"]) == ("Evicted", 1)
    (said,) = (e for e in jobs.events("drained") if e.startswith("Restarting"))
    assert "EvictionByEvictionAPI" in said


def test_a_server_comes_back_alone_under_its_name(jobs: Place) -> None:
    """restartScope Replica: the workers go on, and find the new server where the old one was."""
    before = jobs.uids("server")
    jobs.probe("server-ps-0", "shoot")
    jobs.soon("there is a new server", lambda: is_replaced(jobs, "server", before), "server")
    status = jobs.wait("server", "Running")
    after = jobs.uids("server")
    assert (before.pop("server-ps-0") != after.pop("server-ps-0")) and before == after
    assert (status["attempt"], status["restarts"]) == (0, 1)
    failure = status["lastFailure"]
    assert (failure["pod"], failure["exitCode"]) == ("server-ps-0", 9)
    address = jobs.pods("server")["server-ps-0"]["status"]["podIP"]
    name = f"server-ps-0.{jobs.namespace}"
    seen = lambda: jobs.probe("server-worker-0", "lookup", name) == address  # noqa: E731
    jobs.soon("the name leads to it", seen, "server")


def is_replaced(jobs: Place, name: str, before: dict[str, str]) -> bool:
    """Whether the server's pod is another one."""
    pod = f"{name}-ps-0"
    return jobs.uids(name).get(pod, before[pod]) != before[pod]


def test_jobs_leave_a_lost_node_and_nothing_else_happens(jobs: Place, cluster: Cluster) -> None:
    """Nobody is there to confirm that a pod has ended: its record is removed by force.

    The gang starts again elsewhere; a server and an elastic worker are replaced alone; pods that
    may wait for their node do; and when it comes back, nothing is done twice.
    """
    names = ("lost", "lost-server", "lost-elastic", "patient")
    before = {name: jobs.uids(name) for name in names}
    for name in ("lost", "lost-elastic", "patient"):
        assert set(nodes(jobs, name).values()) == {"node1"}
    assert nodes(jobs, "lost-server")["lost-server-ps-0"] == "node1"
    cluster.kill_node(1)

    def is_away(name: str) -> bool:
        where = nodes(jobs, name)
        return set(where) == set(before[name]) and set(where.values()) == {"node0"}

    for name in names[:3]:
        jobs.soon(f"{name} is on node0", lambda name=name: is_away(name), name)  # type: ignore[misc]
        jobs.wait(name, "Running", seconds=WAIT_SECONDS_MAX)
    status = jobs.status("lost")
    assert (status["attempt"], status["lastFailure"]["cause"]) == (1, "NodeLost")
    assert "on node1" in next(e for e in jobs.events("lost") if e.startswith("Restarting"))
    for name, others in (("lost-server", ["worker-0", "worker-1"]), ("lost-elastic", [])):
        assert jobs.status(name)["attempt"] == 0
        kept = {pod: uid for pod, uid in jobs.uids(name).items() if before[name][pod] == uid}
        assert sorted(kept) == [f"{name}-{other}" for other in others]
    assert (jobs.status("patient")["phase"], jobs.uids("patient")) == ("Running", before["patient"])
    after = {name: jobs.uids(name) for name in names}
    cluster.revive_node(1)
    jobs.wait("patient", "Running")
    assert {name: jobs.uids(name) for name in names} == after
    assert {jobs.status(name)["phase"] for name in names} == {"Running"}
