"""The control plane without nodes does what tests of clients and controllers rely on."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cluster.control import sweep
from cluster.control.ground import ClusterError
from cluster.control.plane import ControlPlane

if TYPE_CHECKING:
    from collections.abc import Callable

TESTS = Path(__file__).resolve().parent.parent
POD: dict[str, object] = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "one"},
    "spec": {"containers": [{"name": "main", "image": "none"}]},
}


def with_owner(pod: dict[str, object], uid: str) -> dict[str, object]:
    """The same pod, owned by the config map `owner`."""
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": uid}
    return {**pod, "metadata": {"name": "one", "ownerReferences": [owner]}}


def test_objects_of_a_deleted_owner_are_collected(plane: ControlPlane, namespace: str) -> None:
    """Our objects carry owner references and nothing else, so the real collector must run."""
    plane.kubectl("create", "configmap", "owner", "-n", namespace)
    words = ("get", "configmap", "owner", "-n", namespace, "-o", "jsonpath={.metadata.uid}")
    uid = plane.kubectl(*words).stdout
    plane.kubectl("create", "-n", namespace, "-f", "-", stdin=json.dumps(with_owner(POD, uid)))
    plane.kubectl("delete", "configmap", "owner", "-n", namespace)
    gone = plane.kubectl("wait", "--for=delete", "pod/one", "-n", namespace, "--timeout=60s")
    assert gone.returncode == 0


def test_a_restarted_api_server_has_lost_nothing(plane: ControlPlane, namespace: str) -> None:
    """Tests restart it under a running operator and compare the state before and after."""
    plane.kubectl("create", "configmap", "kept", "-n", namespace)
    plane.restart_apiserver()
    assert plane.kubectl("get", "configmap", "kept", "-n", namespace).returncode == 0


def test_a_watch_from_before_a_compaction_is_gone(plane: ControlPlane, namespace: str) -> None:
    """410 makes a client list again; only a real API server says when it comes."""
    where = f"/api/v1/namespaces/{namespace}/configmaps"
    before = json.loads(plane.kubectl("get", "--raw", where).stdout)
    version = before["metadata"]["resourceVersion"]
    plane.kubectl("create", "configmap", "later", "-n", namespace)
    plane.compact()
    watch = f"{where}?watch=1&timeoutSeconds=5&resourceVersion={version}"
    event = json.loads(plane.kubectl("get", "--raw", watch).stdout.splitlines()[0])
    assert (event["type"], event["object"]["code"]) == ("ERROR", 410)


def test_the_next_page_of_a_list_expires_with_compaction(
    plane: ControlPlane, namespace: str
) -> None:
    """A long list that is read in pages meets this when it takes longer than five minutes."""
    for name in ("a", "b"):
        plane.kubectl("create", "configmap", name, "-n", namespace)
    where = f"/api/v1/namespaces/{namespace}/configmaps?limit=1"
    page = json.loads(plane.kubectl("get", "--raw", where).stdout)
    plane.kubectl("create", "configmap", "c", "-n", namespace)
    plane.compact()
    following = f"{where}&continue={page['metadata']['continue']}"
    said = plane.kubectl("get", "--raw", following, check=False)
    assert "continue parameter is too old" in said.stderr


@pytest.mark.parametrize(
    "fault", [ControlPlane.stop_apiserver, ControlPlane.stop_etcd, ControlPlane.pause_apiserver]
)
def test_every_fault_is_seen_and_mended(
    plane: ControlPlane, namespace: str, fault: Callable[[ControlPlane], None]
) -> None:
    """A fault that does nothing would make every test of recovery pass."""
    fault(plane)
    words = ("create", "configmap", "one", "-n", namespace, "--request-timeout=2s")
    assert plane.kubectl(*words, check=False).returncode != 0
    plane.mend()
    assert plane.kubectl("get", "namespace", namespace).returncode == 0


def test_a_service_account_may_do_nothing_by_itself(plane: ControlPlane, namespace: str) -> None:
    """Least privilege can be tested only where privileges are asked for."""
    plane.kubectl("create", "serviceaccount", "poor", "-n", namespace)
    poor = plane.kubeconfig_as(namespace, "poor")
    words = ("--kubeconfig", poor, "get", "pods", "-n", namespace)
    said = plane.kubectl(*words, check=False)
    assert f'User "system:serviceaccount:{namespace}:poor" cannot list' in said.stderr
    plane.kubectl(
        "create", "rolebinding", "poor", "--clusterrole=view",
        f"--serviceaccount={namespace}:poor", "-n", namespace,
    )  # fmt: skip
    assert plane.kubectl(*words).returncode == 0


def test_helm_speaks_with_this_kubernetes(plane: ControlPlane, namespace: str) -> None:
    """The chart is installed with it."""
    assert plane.helm("list", "-n", namespace).stdout.startswith("NAME")


def test_a_failed_command_is_told_in_full(plane: ControlPlane) -> None:
    """Who reads a failed test knows neither the command nor what the server said."""
    with pytest.raises(ClusterError, match=r'kubectl get pod none: exit 1: .*"none" not found'):
        plane.kubectl("get", "pod", "none")


def test_nothing_is_left_when_the_tests_are_killed() -> None:
    """kill -9 runs no fixture's end; the guard does its work."""
    with subprocess.Popen(
        [sys.executable, "-u", "-m", "cluster.control.plane"], cwd=TESTS,
        stdout=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        words = process.stdout.readline().split()
        process.kill()
    folder = Path(words[1].removeprefix("KUBECONFIG=")).parent
    stamps = [line for f in (folder / "pids").glob("*") for line in f.read_text().splitlines()]
    assert sweep.wait_until(lambda: not folder.exists() and not any(map(sweep.is_alive, stamps)))
