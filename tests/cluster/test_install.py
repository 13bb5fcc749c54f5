"""Installing and removing the operator: its files and its rights; on a real API server.

Has a control plane of its own: it removes the definition, under which other tests have jobs.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
import yaml

from cluster.conftest import need_binaries
from cluster.control.plane import ControlPlane
from cluster.deployed import CRD, DEPLOY, V1, create, expect_soon, install, make
from paddlejobs import job, role
from paddock.operator.manifests.install import Install, manifests_text
from paddock.operator.names import LEASE

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ACCOUNT = "system:serviceaccount:paddle-system:paddle-manager-sa"


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    """A control plane that no other module uses."""
    need_binaries()
    with ControlPlane() as made:
        yield made


@pytest.fixture
def installed(plane: ControlPlane) -> ControlPlane:
    """The control plane with deploy/v1, as the documents install it."""
    install(plane)
    return plane


# --------------------------------------------------------------------- installing and removing


def test_installing_again_changes_nothing(installed: ControlPlane) -> None:
    """Pipelines apply the same files at every run."""
    said = installed.kubectl("apply", "-f", V1).stdout
    assert said
    assert all(line.endswith(" unchanged") for line in said.splitlines()), said


def test_all_options_together_are_accepted(installed: ControlPlane) -> None:
    """What `paddock operator manifests` prints with every flag."""
    install = Install("default", "here/op:2", "volcano", ("default",), 2, "alpine:3.20")
    text = manifests_text(install, has_crd=True)
    done = installed.kubectl("apply", "--dry-run=server", "-f", "-", stdin=text)
    assert all(line.endswith("(server dry run)") for line in done.stdout.splitlines())


@pytest.mark.parametrize("path", ["elastic/etcd.yaml", "kustomize/base"])
def test_the_other_files_are_accepted(installed: ControlPlane, path: str) -> None:
    """Without a warning."""
    flag = "-k" if path.startswith("kustomize") else "-f"
    done = installed.kubectl("apply", "--dry-run=server", flag, DEPLOY / path)
    assert "Warning" not in done.stderr


@pytest.mark.parametrize("name", ["v1/operator.yaml", "elastic/etcd.yaml"])
def test_pods_of_ours_meet_the_restricted_standard(
    installed: ControlPlane, namespace: str, name: str
) -> None:
    """Judged by the API server's own admission."""
    words = ("label", "ns", namespace, "pod-security.kubernetes.io/enforce=restricted")
    installed.kubectl(*words)
    documents = yaml.safe_load_all((DEPLOY / name).read_text("utf-8"))
    (template,) = [d["spec"]["template"] for d in documents if d["kind"] == "Deployment"]
    template["spec"].pop("serviceAccountName", None)
    found = {"apiVersion": "v1", "kind": "Pod", **template}
    found["metadata"] = {**found["metadata"], "name": "ours"}
    code, said = create(installed, namespace, found, "--dry-run=server")
    assert code == 0, said


ORDERS = (
    (V1 / "crd.yaml", V1 / "operator.yaml"),
    (V1 / "operator.yaml", V1 / "crd.yaml"),
)


@pytest.mark.parametrize("order", ORDERS, ids=["crd first", "operator first"])
def test_removing_ends_in_any_order(
    installed: ControlPlane, namespace: str, order: tuple[Path, Path]
) -> None:
    """The old operator's finalizer made the documented command hang."""
    make(installed, namespace, job("mnist", worker=role(2)))
    for path in order:
        installed.kubectl("delete", "-f", path, "--timeout=60s")
    assert installed.kubectl("get", f"crd/{CRD}", check=False).returncode != 0
    assert installed.kubectl("get", "ns/paddle-system", check=False).returncode != 0


def test_the_documented_removal_in_one_command_ends(installed: ControlPlane) -> None:
    """kubectl delete -f deploy/v1/crd.yaml -f deploy/v1/operator.yaml, from the documents."""
    words = ("delete", "-f", V1 / "crd.yaml", "-f", V1 / "operator.yaml", "--timeout=60s")
    said = installed.kubectl(*words).stdout
    assert 'namespace "paddle-system" deleted' in said


# ----------------------------------------------------------------------------------- permissions


Ask = tuple[str, str, str, str]  # verb, API group, kind with subresource or "", name or ""


def may(plane: ControlPlane, namespace: str, *asked: Ask, who: str = ACCOUNT) -> list[Ask]:
    """Those of the actions that somebody may do, in one call. Kinds need not be served."""
    reviews = []
    for verb, group, resource, name in asked:
        kind, _, part = resource.partition("/")
        attributes = {
            "verb": verb, "group": group, "resource": kind, "subresource": part, "name": name,
            "namespace": namespace,
        }  # fmt: skip
        reviews.append(
            {
                "apiVersion": "authorization.k8s.io/v1",
                "kind": "SubjectAccessReview",
                "spec": {"user": who, "resourceAttributes": attributes},
            }
        )
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": reviews})
    words = ("create", "-f", "-", "-o", 'jsonpath={.status.allowed}{"\\n"}')
    answers = plane.kubectl(*words, stdin=text).stdout.split()
    return [ask for ask, answer in zip(asked, answers, strict=True) if answer == "true"]


BATCH = "batch.paddlepaddle.org"
WORK: tuple[Ask, ...] = (
    *(
        (verb, group, kind, "")
        for group, kind in (("", "pods"), ("", "services"), ("", "configmaps"))
        for verb in ("get", "list", "watch", "create", "delete", "patch")
    ),
    *((verb, BATCH, "paddlejobs", "") for verb in ("get", "list", "watch", "patch", "delete")),
    ("patch", BATCH, "paddlejobs/status", ""),
    ("create", "events.k8s.io", "events", ""),
    ("patch", "events.k8s.io", "events", ""),
)  # fmt: skip
GANGS: tuple[Ask, ...] = tuple(
    (verb, group, "podgroups", "")
    for group in ("scheduling.volcano.sh", "scheduling.x-k8s.io")
    for verb in ("get", "list", "watch", "create", "delete", "patch")
)
TOO_MUCH: tuple[Ask, ...] = (
    ("get", "", "secrets", ""), ("list", "", "secrets", ""), ("create", "", "pods/exec", ""),
    ("get", "", "pods/log", ""), ("create", "", "serviceaccounts", ""),
    ("delete", "", "events", ""),
    ("create", BATCH, "paddlejobs", ""), ("patch", "coordination.k8s.io", "leases", LEASE),
    ("update", "", "pods", ""), ("create", "rbac.authorization.k8s.io", "rolebindings", ""),
)  # fmt: skip
OF_CLUSTER: tuple[Ask, ...] = (
    ("get", "", "nodes", ""), ("delete", "", "namespaces", ""),
    ("get", "apiextensions.k8s.io", "customresourcedefinitions", CRD),
    ("create", "rbac.authorization.k8s.io", "clusterrolebindings", ""),
)  # fmt: skip


def test_the_operator_may_do_its_work_and_no_more(installed: ControlPlane, namespace: str) -> None:
    """The old one could run commands in every pod of the cluster (defect 21)."""
    assert may(installed, namespace, *WORK, *GANGS, *TOO_MUCH) == list(WORK)
    assert may(installed, "", *OF_CLUSTER) == []


def test_rights_to_podgroups_come_with_their_own_files(
    installed: ControlPlane, namespace: str
) -> None:
    """A cluster without a gang scheduler gives none."""
    made = ("-f", DEPLOY / "gangs" / "volcano.yaml", "-f", DEPLOY / "gangs" / "coscheduling.yaml")
    installed.kubectl("apply", *made)
    try:
        assert may(installed, namespace, *GANGS) == list(GANGS)
    finally:
        installed.kubectl("delete", *made)


def test_the_operator_may_lead_in_its_own_namespace_only(
    installed: ControlPlane, namespace: str
) -> None:
    """And with its own Lease only."""
    asked: tuple[Ask, ...] = tuple(
        (verb, "coordination.k8s.io", "leases", LEASE)
        for verb in ("create", "get", "list", "watch", "patch")
    )
    other = ("patch", "coordination.k8s.io", "leases", "kube-scheduler")
    assert may(installed, "paddle-system", *asked, other) == list(asked)
    assert may(installed, namespace, *asked) == []


def test_the_operators_account_can_list_jobs(installed: ControlPlane, namespace: str) -> None:
    """With a real token, not only in theory."""
    make(installed, namespace, job("mnist", worker=role(1)))
    account = installed.kubeconfig_as("paddle-system", "paddle-manager-sa")
    words = ("--kubeconfig", account, "get", "pdj", "-n", namespace, "-o", "name")
    assert "mnist" in installed.kubectl(*words).stdout


def test_users_of_a_namespace_may_use_jobs(installed: ControlPlane, namespace: str) -> None:
    """Whoever has the cluster's role edit or view gets jobs with it, without an administrator."""
    for person, name in (("ann", "edit"), ("bob", "view")):
        words = ("create", "rolebinding", name, f"--clusterrole={name}", f"--user={person}")
        installed.kubectl(*words, "-n", namespace)
    see: Ask = ("list", BATCH, "paddlejobs", "")
    use: tuple[Ask, ...] = (
        ("create", BATCH, "paddlejobs", ""), ("delete", BATCH, "paddlejobs", ""),
        ("patch", BATCH, "paddlejobs/scale", ""),
    )  # fmt: skip
    write: Ask = ("patch", BATCH, "paddlejobs/status", "")

    def are_aggregated() -> bool:
        return may(installed, namespace, see, *use, write, who="ann") == [see, *use]

    expect_soon("aggregated roles", are_aggregated)
    assert may(installed, namespace, see, *use, write, who="bob") == [see]


# ---------------------------------------------------------------------------------- old clusters


def test_the_file_for_old_clusters_is_not_for_this_one(plane: ControlPlane) -> None:
    """Its first lines say so, and so does the server."""
    path = DEPLOY / "v1beta1" / "crd.yaml"
    assert "No cluster since 1.22 takes this file" in path.read_text("utf-8")
    done = plane.kubectl("apply", "--dry-run=server", "-f", path, check=False)
    assert 'no matches for kind "CustomResourceDefinition" in version' in done.stderr
