"""The operator as people run it: its image, its Deployment, the files of deploy/v1 as they are."""

from __future__ import annotations

import json
import urllib.request
from typing import TYPE_CHECKING

import pytest

from cluster.control.operators import NAMESPACE, ROOT
from cluster.jobs import Place
from paddock.operator.names import LEASE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cluster.control.cluster import Cluster
    from cluster.jobs import Probes

FOLDER = ROOT / "deploy" / "v1"
DEPLOYMENT = "deployment/paddle-controller-manager"


@pytest.fixture(scope="module")
def system(cluster: Cluster, operator_image: None) -> Iterator[Place]:
    """The operator's own namespace, after kubectl apply -f deploy/v1."""
    cluster.kubectl("apply", "-f", FOLDER)
    place = Place(cluster.plane, NAMESPACE)
    place.kubectl("rollout", "status", DEPLOYMENT, "--timeout=120s")
    yield place
    cluster.kubectl("delete", "-f", FOLDER / "operator.yaml", "--timeout=60s")


@pytest.fixture
def place(system: Place, cluster: Cluster, namespace: str) -> Place:
    """A user's namespace, which the deployed operator looks after."""
    return Place(cluster.plane, namespace)


def leader(system: Place) -> str:
    """Who holds the lease, by the pod's name."""
    words = ("get", "lease", LEASE, "-o", "jsonpath={.spec.holderIdentity}")
    return system.kubectl(*words, check=False).partition("_")[0]


def test_two_commands_run_a_job(place: Place, system: Place, probes: Probes) -> None:
    """kubectl apply -f deploy/v1, kubectl apply of a job: all that a new user has to type."""
    place.make("first", ps=probes.role(1, "sleep"), worker=probes.role(2, "say trained"))
    place.wait("first", "Completed")
    said = system.kubectl("logs", DEPLOYMENT)
    assert f"job={place.namespace}/first" in said
    assert "error" not in said
    (pod,) = system.pods().values()
    assert pod["status"]["containerStatuses"][0]["restartCount"] == 0


def test_its_pod_tells_prometheus_and_the_kubelet_how_it_does(
    system: Place, cluster: Cluster
) -> None:
    """By the ports of the Deployment, from another machine than its own."""
    (pod,) = system.pods().values()
    address = pod["status"]["podIP"]
    with urllib.request.urlopen(f"http://{cluster.forward(address, 8080)}/metrics") as answer:
        text = answer.read().decode()
    assert "paddock_is_leader 1" in text
    with urllib.request.urlopen(f"http://{cluster.forward(address, 8081)}/readyz") as answer:
        assert answer.read() == b"ok\n"


def test_after_the_loss_of_its_pod_another_takes_over(
    place: Place, system: Place, probes: Probes
) -> None:
    """By force, so that the lease is not given back; jobs run on meanwhile, and go on after."""
    place.make("long", worker=probes.role(2, "sleep"))
    place.wait("long", "Running")
    before, uids = leader(system), place.uids("long")
    system.kubectl("delete", "pod", before, "--force", "--grace-period=0")
    place.make("next", worker=probes.role(1, "say trained"))
    place.wait("next", "Completed")
    assert leader(system) not in ("", before)
    assert place.uids("long") == uids
    events = [e.partition(":")[0] for e in place.events("long")]
    assert events == ["CreatingPods", "Started"]


def test_its_pod_may_run_where_only_restricted_pods_may(system: Place, cluster: Cluster) -> None:
    """A namespace with the strictest of Kubernetes' standards takes the Deployment's pods."""
    (pod,) = system.pods().values()
    label = "pod-security.kubernetes.io/enforce=restricted"
    said = cluster.plane.kubectl(
        "label", "namespace", NAMESPACE, label, "--overwrite", "--dry-run=server"
    )
    assert "would violate" not in said.stdout + said.stderr
    context = pod["spec"]["containers"][0]["securityContext"]
    assert json.dumps(context["capabilities"]) == '{"drop": ["ALL"]}'
    assert context["readOnlyRootFilesystem"] is True
