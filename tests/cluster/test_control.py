"""The cluster with nodes is a real one: containers run, names resolve, nodes are lost and found."""

from __future__ import annotations

import json
import urllib.request
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cluster.control.cluster import Cluster

PATIENCE = "--timeout=90s"


def pod(name: str, image: str, *words: str, node: str = "", **more: object) -> dict[str, object]:
    """A pod with one container that runs probe with these words, once."""
    container = {
        "name": "main", "image": image, "imagePullPolicy": "Never", "args": list(words),
        "resources": {"limits": {"memory": "64Mi", "cpu": "200m"}},
    }  # fmt: skip
    placed = {"nodeName": node} if node else {}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": name}},
        "spec": {"restartPolicy": "Never", "containers": [container], **placed, **more},
    }


def create(cluster: Cluster, namespace: str, made: dict[str, object]) -> None:
    """Create one object."""
    cluster.kubectl("create", "-n", namespace, "-f", "-", stdin=json.dumps(made))


def wait_phase(cluster: Cluster, namespace: str, name: str, phase: str) -> None:
    """Come back when the pod is in this phase."""
    cluster.kubectl(
        "wait", f"--for=jsonpath={{.status.phase}}={phase}", f"pod/{name}", "-n", namespace,
        PATIENCE,
    )  # fmt: skip


def output_of(cluster: Cluster, namespace: str, name: str) -> str:
    """What a pod printed before it succeeded."""
    wait_phase(cluster, namespace, name, "Succeeded")
    return cluster.kubectl("logs", name, "-n", namespace).stdout


def field(cluster: Cluster, namespace: str, name: str, path: str) -> str:
    """A field of a pod, as a JSON path names it."""
    words = ("get", "pod", name, "-n", namespace, "-o", f"jsonpath={{{path}}}")
    return cluster.kubectl(*words).stdout


def test_both_nodes_are_ready(cluster: Cluster) -> None:
    """Everything else needs them."""
    assert [cluster.is_ready(0), cluster.is_ready(1)] == [True, True]


def test_a_pod_runs_and_its_logs_are_read(
    cluster: Cluster, namespace: str, probe_image: str
) -> None:
    """The way from kubectl through scheduler, kubelet and containerd, and back to the kubelet."""
    create(cluster, namespace, pod("one", probe_image, "say", "hello"))
    assert output_of(cluster, namespace, "one") == "hello\n"


def test_the_exit_code_of_a_container_is_told(
    cluster: Cluster, namespace: str, probe_image: str
) -> None:
    """Restart rules are decided by it."""
    create(cluster, namespace, pod("one", probe_image, "exit", "43"))
    wait_phase(cluster, namespace, "one", "Failed")
    path = ".status.containerStatuses[0].state.terminated.exitCode"
    assert field(cluster, namespace, "one", path) == "43"


def test_a_command_runs_in_a_running_container(
    cluster: Cluster, namespace: str, probe_image: str
) -> None:
    """Documents tell people to look around with kubectl exec."""
    create(cluster, namespace, pod("one", probe_image, "sleep"))
    wait_phase(cluster, namespace, "one", "Running")
    words = ("exec", "one", "-n", namespace, "--", "/bin/probe", "say", "inside")
    assert cluster.kubectl(*words).stdout == "inside\n"


def test_a_headless_service_names_pods_for_the_other_node(
    cluster: Cluster, namespace: str, probe_image: str
) -> None:
    """A gang's ranks find one another by these names."""
    service: dict[str, object] = {
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "gang"},
        "spec": {"clusterIP": "None", "selector": {"app": "a"},
                 "publishNotReadyAddresses": True},
    }  # fmt: skip
    create(cluster, namespace, service)
    more = {"hostname": "first", "subdomain": "gang"}
    create(cluster, namespace, pod("a", probe_image, "sleep", node="node0", **more))
    create(cluster, namespace, pod("b", probe_image, "lookup", "first.gang", node="node1"))
    found = output_of(cluster, namespace, "b").strip()
    assert found == field(cluster, namespace, "a", ".status.podIP")


def test_a_service_address_leads_to_its_pod_from_either_node(
    cluster: Cluster, namespace: str, probe_image: str
) -> None:
    """Jobs with `intranet: Service` speak through such addresses, on the same node, too."""
    service: dict[str, object] = {
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "one"},
        "spec": {"selector": {"app": "server"}, "ports": [{"port": 80, "targetPort": 8080}]},
    }  # fmt: skip
    create(cluster, namespace, service)
    words = ("serve", "8080", "hello")
    create(cluster, namespace, pod("server", probe_image, *words, node="node0"))
    for node in ("node0", "node1"):
        create(cluster, namespace, pod(node, probe_image, "fetch", "http://one", node=node))
        assert output_of(cluster, namespace, node) == "hello\n"


def test_a_pod_is_reached_from_outside_of_the_cluster(
    cluster: Cluster, namespace: str, probe_image: str
) -> None:
    """Tests read the operator's metrics this way."""
    create(cluster, namespace, pod("server", probe_image, "serve", "8080", "hello"))
    wait_phase(cluster, namespace, "server", "Running")
    where = cluster.forward(field(cluster, namespace, "server", ".status.podIP"), 8080)
    cluster.kubectl("wait", "--for=condition=Ready", "pod/server", "-n", namespace, PATIENCE)
    with urllib.request.urlopen(f"http://{where}", timeout=20) as answer:
        assert answer.read() == b"hello\n"


def test_a_container_that_eats_too_much_is_killed_for_it(
    cluster: Cluster, namespace: str, probe_image: str
) -> None:
    """The cause of a restart is told apart by this reason."""
    create(cluster, namespace, pod("one", probe_image, "eat", "200"))
    wait_phase(cluster, namespace, "one", "Failed")
    path = ".status.containerStatuses[0].state.terminated"
    assert field(cluster, namespace, "one", f"{path}.reason") == "OOMKilled"
    assert field(cluster, namespace, "one", f"{path}.exitCode") == "137"


def test_an_image_that_nobody_has_is_reported_at_once(cluster: Cluster, namespace: str) -> None:
    """There is no way out of the cluster, so a pull fails rather than waits."""
    made = pod("one", "registry.invalid/none:1")
    create(cluster, namespace, made)
    path = ".status.containerStatuses[0].state.waiting.reason"
    cluster.kubectl("wait", f"--for=jsonpath={{{path}}}=ErrImageNeverPull", "pod/one",
                    "-n", namespace, PATIENCE)  # fmt: skip
    cluster.kubectl("run", "two", "--image=registry.invalid/none:1", "-n", namespace)
    said = cluster.kubectl("wait", f"--for=jsonpath={{{path}}}=ErrImagePull", "pod/two",
                           "-n", namespace, PATIENCE)  # fmt: skip
    assert "condition met" in said.stdout


def test_the_api_server_is_reached_from_inside_a_pod(
    cluster: Cluster, namespace: str, probe_image: str
) -> None:
    """The operator itself is such a pod: service address, DNS name, certificate and token."""
    for node in ("node0", "node1"):
        create(cluster, namespace, pod(node, probe_image, "api", "/version", node=node))
        assert output_of(cluster, namespace, node).startswith("200 ")


def test_a_pod_may_not_do_what_its_account_may_not(
    cluster: Cluster, namespace: str, probe_image: str
) -> None:
    """Tests of least privilege need a cluster that refuses."""
    create(cluster, namespace, pod("one", probe_image, "api", "/api/v1/nodes"))
    assert output_of(cluster, namespace, "one").startswith("403 ")


def test_a_killed_node_becomes_not_ready_and_comes_back(
    cluster: Cluster, namespace: str, probe_image: str
) -> None:
    """Node loss is a row of the failure table; here it is a real one."""
    soon = {"effect": "NoExecute", "operator": "Exists", "tolerationSeconds": 1}
    made = pod("one", probe_image, "sleep", node="node1", tolerations=[soon])
    create(cluster, namespace, made)
    wait_phase(cluster, namespace, "one", "Running")
    cluster.kill_node(1, containers=True)
    cluster.wait_node(1, ready=False)
    assert cluster.is_ready(0)
    cluster.kubectl(
        "wait", "--for=jsonpath={.metadata.deletionTimestamp}", "pod/one", "-n", namespace, PATIENCE
    )
    cluster.revive_node(1)
    assert cluster.is_ready(1)


def test_a_node_with_a_cut_cable_is_not_ready(cluster: Cluster) -> None:
    """Its containers go on and nobody hears of them: what fencing is for."""
    cluster.cut_cable(1)
    cluster.wait_node(1, ready=False)
    cluster.mend_cable(1)
    cluster.wait_node(1)
    assert cluster.is_ready(1)
