"""The first commands of README and guide, as they are typed, and what they say when it goes wrong.

There is no kind here: a program of that name loads the archive into both nodes, with ctr. Of the
two images of the quickstart the operator's is built; the examples', 900 MB, comes from the cache.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from cluster.conftest import lack
from cluster.control import built
from cluster.control.operators import NAMESPACE, ROOT
from cluster.jobs import Place
from pages import blocks_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from cluster.control.cluster import Cluster

DEPLOYMENT = "paddle-controller-manager"
IMAGES = "make operator-image demo-image LOAD=kind"
SECONDS_MAX = 240


def commands(page: str, at: int) -> list[str]:
    """Those of the block for a cluster that stands there in the page."""
    blocks = [block for block in blocks_of(ROOT / page) if block.asked == "a cluster"]
    lines = blocks[at].body.splitlines()
    return [line.partition(" #")[0].strip() for line in lines if not line.startswith("#")]


class Desk:
    """Somebody's shell in a clone: kubectl, paddock, and kind on PATH."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        sockets = " ".join(str(node.socket) for node in cluster.nodes)
        programs = {
            "kind": 'echo "$1 $2" && [ "$1 $2" = "load image-archive" ] || exit 9\n'
            f'for s in {sockets}; do ctr --address "$s" -n k8s.io images import "$3"; done',
            "paddock": f'exec {sys.executable} -m paddock "$@"',
        }
        for name, text in programs.items():
            (folder / name).write_text(f"#!/bin/sh\nset -e\n{text}\n")
            (folder / name).chmod(0o755)
        env = {**built.environment(), **cluster.plane.environment}
        path = f"{folder}:{env['PATH']}"
        self.env = {**env, "PATH": path, "PYTHONPATH": str(ROOT / "src")}

    def type(self, line: str, code: int = 0) -> str:
        """What is said, on both outputs."""
        done = subprocess.run(
            ["sh", "-c", line], cwd=ROOT, env=self.env, stdin=subprocess.DEVNULL, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=SECONDS_MAX, errors="replace",
        )  # fmt: skip
        assert done.returncode == code, f"{line}\n{done.stdout}"
        return done.stdout


@pytest.fixture
def desk(cluster: Cluster, tmp_path: Path) -> Iterator[Desk]:
    """On a cluster without an operator, before and after."""
    if problem := built.lacking():
        lack(problem)
    desk = Desk(cluster, tmp_path)
    yield desk
    desk.type("paddock operator uninstall --definition")


@pytest.fixture
def system(cluster: Cluster) -> Place:
    """The operator's namespace."""
    return Place(cluster.plane, NAMESPACE)


@pytest.mark.limit(600)
def test_the_quickstart_of_the_guide_ends_in_a_trained_model(
    desk: Desk, large_images: None
) -> None:
    """Five lines, the same on both pages."""
    lines = commands("docs/guide/kubernetes.md", 0)
    assert lines == commands("docs/guide/kubernetes.zh.md", 0)
    assert lines[0] == IMAGES
    assert len(lines) == 5
    desk.type("make operator-image LOAD=kind")
    said = [desk.type(line) for line in lines[1:]]
    assert said[0].splitlines()[-1] == "jobs: a PaddleJob is accepted"
    assert re.search(r"accuracy 0\.9", said[-1])


def test_what_the_readme_says_of_kubernetes_works(desk: Desk, system: Place) -> None:
    """kubectl apply, as typed, ends in an operator that works; its namespace has a level."""
    apply = "kubectl apply -f deploy/v1/"
    assert f"`{apply}`" in (ROOT / "README.md").read_text("utf-8")
    desk.type("make operator-image LOAD=kind")
    desk.type(apply)
    desk.type("kubectl apply -f examples/paddlejob.yaml")
    system.kubectl("rollout", "status", f"deployment/{DEPLOYMENT}", "--timeout=60s")
    words = ("wait", "pdj/digits", "--for=condition=Valid", "--timeout=60s")
    desk.type(f"kubectl {' '.join(words)}")
    label = "{.metadata.labels.pod-security\\.kubernetes\\.io/enforce}"
    said = system.kubectl("get", "namespace", NAMESPACE, "-o", f"jsonpath={label}")
    assert said == "baseline"


@pytest.mark.limit(600)
def test_the_first_commands_of_paddles_documents_run_as_typed(
    desk: Desk, system: Place, operator_image: None, large_images: None
) -> None:
    """The job, in the operator's namespace, was refused by the label that we had put there."""
    lines = commands("docs/guide/kubernetes.md", 3)
    assert lines == commands("docs/guide/kubernetes.zh.md", 3)
    definition, operator, job, get, delete = lines
    for line in (definition, operator, job):
        assert line.endswith(".yaml") and "create -f deploy/" in line
        desk.type(line)
    words = ("wait", "pdj/wide-ande-deep", "--for=condition=Completed", "--timeout=300s")
    system.kubectl(*words)
    assert re.search(r"wide-ande-deep +Completed +PS", desk.type(get))
    assert "AUC 0." in system.kubectl("logs", "wide-ande-deep-worker-0")

    # What would lead from a job to the operator beside it is refused: the node, and the account.
    spec: dict[str, Any] = {"containers": [{"name": "a", "image": "i"}]}
    role = {"replicas": 1, "template": {"spec": spec}}
    system.make("host", intranet="Host", worker=role)
    status = system.wait("host", reason="Forbidden")
    assert 'violates PodSecurity "baseline:latest": host namespaces' in status["message"]
    assert "create the job in another namespace" in status["message"]
    spec["serviceAccountName"] = "paddle-manager-sa"
    system.make("thief", worker=role)
    status = system.wait("thief", reason="PolicyRefused")
    assert "may not run as the operator's account" in status["message"]
    assert not system.all("pods", "host") + system.all("pods", "thief")

    said = desk.type(delete)
    assert 'namespace "paddle-system" deleted' in said
    assert "validatingadmissionpolicy" in said


def limits(system: Place) -> Any:
    """Of the operator's container."""
    words = ("get", "deployment", DEPLOYMENT, "-o", "json")
    template = json.loads(system.kubectl(*words))["spec"]["template"]
    return template["spec"]["containers"][0]["resources"]["limits"]


def test_install_takes_over_what_kubectl_had_applied(
    desk: Desk, system: Place, operator_image: None, tmp_path: Path
) -> None:
    """Else paddle-operator's limit of a tenth of a processor would stay."""
    shutil.copytree(ROOT / "deploy" / "v1", tmp_path / "old")
    old = tmp_path / "old" / "operator.yaml"
    text = old.read_text("utf-8")
    assert text.count("limits:\n") == 1
    old.write_text(text.replace("limits:\n", "limits:\n              cpu: 100m\n"))
    desk.type(f"kubectl apply -f {tmp_path / 'old'}")
    assert limits(system)["cpu"] == "100m"
    said = desk.type("paddock operator install")
    assert f"deployment {DEPLOYMENT}: changed" in said
    assert "cpu" not in limits(system)
    again = desk.type("paddock operator install").splitlines()
    assert f"deployment {DEPLOYMENT}: unchanged" in again
    assert "rights (10 objects): 10 unchanged" in again


def test_an_image_that_nobody_has_is_named_and_the_next_try_is_at_once(
    desk: Desk, operator_image: None
) -> None:
    """In the pod's words, before the deadline; with the image there it goes on."""
    began = desk.type("paddock operator install --image localhost/nobody/has:1", code=1)
    wrong = began.splitlines()[-2:]
    assert wrong[0].startswith(f"paddock: error: deployment: pod {DEPLOYMENT}-")
    assert "ImagePullBackOff" in wrong[0] and "localhost/nobody/has:1" in wrong[0]
    assert "deploy/images/build.sh operator --load kind" in wrong[1]
    assert "jobs: a PaddleJob is accepted" in desk.type("paddock operator install --timeout 60")


def test_uninstall_removes_the_operator_and_leaves_the_jobs(
    desk: Desk, cluster: Cluster, namespace: str, operator_image: None
) -> None:
    """With the definition, everything."""
    desk.type("paddock operator install")
    desk.type(f"kubectl -n {namespace} apply -f examples/paddlejob.yaml")
    said = desk.type("paddock operator uninstall").splitlines()
    assert said == ["operator: 11 objects removed", "namespace: removed"]
    assert "digits" in desk.type(f"kubectl -n {namespace} get pdj")
    said = desk.type("paddock operator uninstall --definition").splitlines()
    assert said[0] == "operator: not there"
    assert said[-1] == "definition: removed"
    kinds = "clusterroles,clusterrolebindings,validatingadmissionpolicies"
    kinds += ",validatingadmissionpolicybindings"
    left = cluster.kubectl("get", kinds, "-o", "name").stdout
    assert "paddle" not in left
