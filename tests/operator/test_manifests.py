"""The files of deploy/: current, complete, with no right too many."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from reference_pages.paddlejob import reference_text

from paddock import __version__
from paddock.errors import UsageError
from paddock.kube.client import PADDLE_JOBS
from paddock.operator.manifests.__main__ import files, main
from paddock.operator.manifests.crd import crd_text
from paddock.operator.manifests.install import (
    DEPLOYMENT,
    GANGS,
    LABELS,
    POD_SECURITY,
    SELECTOR,
    Install,
    manifests_text,
    template,
)
from paddock.operator.names import LEASE, NAMESPACE
from paddock.operator.options import read_options
from paddock.operator.schema import rows
from paddock.watch.metrics import METRICS as RUN_METRICS

ROOT = Path(__file__).resolve().parents[2]
FILES = files()
# Written by hand, as the other files of deploy/ that are not in FILES.
ETCD = (ROOT / "deploy" / "elastic" / "etcd.yaml").read_text("utf-8")
PANELS = json.loads((ROOT / "deploy" / "grafana" / "paddock-operator.json").read_text("utf-8"))[
    "panels"
]
METRICS = {
    "paddock_jobs", "paddock_job_restarts_total", "paddock_reconcile_seconds_bucket",
    "paddock_reconcile_errors_total", "paddock_api_request_seconds_bucket",
    "paddock_api_requests_total", "paddock_queue_depth", "paddock_watch_restarts_total",
    "paddock_is_leader",
}  # fmt: skip


def objects(text: str) -> dict[tuple[str, str], dict[str, Any]]:
    """Every object of some YAML, by kind and name."""
    found = [d for d in yaml.safe_load_all(text) if d]
    return {(d["kind"], d["metadata"]["name"]): d for d in found}


def deployment(text: str) -> dict[str, Any]:
    """The operator's Deployment."""
    return objects(text)[("Deployment", "paddle-controller-manager")]


def args(text: str) -> list[str]:
    """What the operator is started with."""
    found: list[str] = deployment(text)["spec"]["template"]["spec"]["containers"][0]["args"]
    return found


@pytest.mark.parametrize("name", sorted(FILES))
def test_the_files_are_those_the_code_writes(name: str) -> None:
    """Run python -m paddock.operator.manifests --write deploy after a change."""
    assert (ROOT / "deploy" / name).read_text("utf-8") == FILES[name]


def test_no_generated_folder_has_a_file_that_nobody_writes() -> None:
    """A copy that came back by a merge is applied by nobody, and grows old."""
    folders = ("v1", "v1beta1", "kustomize", "gangs", "prometheus", "helm/paddock-operator/files")
    found = {path for folder in folders for path in (ROOT / "deploy" / folder).rglob("*")}
    written = {ROOT / "deploy" / name for name in FILES}
    assert {path for path in found if path.is_file()} <= written


def test_every_field_is_in_the_reference() -> None:
    """A field nobody can find is not there."""
    page = reference_text()
    last = [row.path.removeprefix("spec.<role>.template.spec.") for row in rows()]
    names = [path.removeprefix("spec.").removeprefix("status.") for path in last]
    assert [n for n in names if f"| `{n}` |" not in page and n not in ("spec", "status")] == []


def test_tables_of_the_reference_are_even() -> None:
    """A bar in a sentence would shift the columns."""
    lines = [line for line in reference_text().splitlines() if line.startswith("|")]
    assert {line.count("|") for line in lines} == {6}


def test_the_files_can_be_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """To a named folder, and not with other words."""
    assert main(["--write", str(tmp_path / "d")]) == 0
    assert (tmp_path / "d" / "v1" / "crd.yaml").read_text("utf-8") == crd_text()
    for words in ([], ["--write"], ["--out", "x"]):
        assert main(words) == 2
    assert "usage:" in capsys.readouterr().err


# -------------------------------------------------------------------------------- operator.yaml


def test_names_are_those_of_the_documents() -> None:
    """`kubectl -n paddle-system get pods` shows paddle-controller-manager-..., as documented."""
    found = objects(manifests_text(Install()))
    assert {
        ("Namespace", "paddle-system"),
        ("ServiceAccount", "paddle-manager-sa"),
        ("Deployment", "paddle-controller-manager"),
        ("ClusterRole", "paddle-manager-role"),
        ("ClusterRoleBinding", "paddle-manager-rolebinding"),
        ("Role", "paddle-leader-election-role"),
        ("RoleBinding", "paddle-leader-election-rolebinding"),
    } <= set(found)


def test_the_old_deployment_can_be_upgraded_in_place() -> None:
    """A selector cannot be changed, and containers are merged by name."""
    spec = deployment(manifests_text(Install()))["spec"]
    assert spec["selector"] == {"matchLabels": {"control-plane": "controller-manager"}}
    assert [c["name"] for c in spec["template"]["spec"]["containers"]] == ["manager"]


def test_no_image_is_somebody_elses() -> None:
    """A name without a host is one on a public hub, where anybody may have taken it."""
    for path in (*(ROOT / "deploy").rglob("*.yaml"), ROOT / "examples" / "paddlejob.yaml"):
        for image in re.findall(r"^\s*(?:image|repository): (\S+)", path.read_text("utf-8"), re.M):
            host = image.partition("/")[0]
            assert host == "localhost" or "." in host or "{{" in image, f"{path}: {image}"


@pytest.mark.parametrize("role", ["manager", "leader", "view", "edit", *GANGS])
def test_no_right_is_given_too_many(role: str) -> None:
    """The old operator could run commands in every pod of the cluster."""
    for rule in template()["rules"][role]:
        resources, verbs = rule["resources"], rule["verbs"]
        for word in (*rule["apiGroups"], *resources, *verbs):
            assert "*" not in word
        assert not set(resources) & {"secrets", "nodes", "pods/exec", "pods/attach", "pods/log"}
        assert not set(verbs) & {"escalate", "bind", "impersonate"}


def test_the_operators_names_in_its_objects_are_those_of_the_code() -> None:
    """They stand in a file of YAML, where no constant reaches."""
    found = objects(manifests_text(Install(metrics_from=("monitoring",)), has_monitor=True))
    (lease,) = found[("Role", "paddle-leader-election-role")]["rules"][1]["resourceNames"]
    assert (lease, template()["labels"]) == (LEASE, LABELS)
    assert found[("Deployment", DEPLOYMENT)]["spec"]["selector"]["matchLabels"] == SELECTOR
    assert found[("Namespace", NAMESPACE)]["metadata"]["labels"] == LABELS | {
        POD_SECURITY: "baseline"
    }
    for (kind, _), one in found.items():
        assert one["metadata"]["labels"].items() >= LABELS.items(), kind
        if kind in ("Role", "ClusterRole"):
            assert {group for rule in one["rules"] for group in rule["apiGroups"]} <= {
                "", "events.k8s.io", "coordination.k8s.io", PADDLE_JOBS.group,
            }  # fmt: skip


def test_the_operator_is_within_the_restricted_standard() -> None:
    """https://kubernetes.io/docs/concepts/security/pod-security-standards/#restricted"""
    for text in (manifests_text(Install()), ETCD):
        (found,) = [d for (kind, _), d in objects(text).items() if kind == "Deployment"]
        pod = found["spec"]["template"]["spec"]
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert not {"hostNetwork", "hostPID", "hostIPC"} & set(pod)
        assert all(set(v) & {"emptyDir", "configMap"} for v in pod["volumes"])
        for container in pod["containers"]:
            security = container["securityContext"]
            assert security["allowPrivilegeEscalation"] is False
            assert security["capabilities"] == {"drop": ["ALL"]}
            assert security["readOnlyRootFilesystem"] is True


@pytest.mark.parametrize(
    ("asked", "is_labelled"),
    [
        ({}, True),
        ({"namespace": "ops", "watch_namespaces": ("a",)}, True),
        ({"namespace": "default"}, False),
        ({"namespace": "team", "watch_namespaces": ("team",)}, False),
    ],
)
def test_only_its_own_namespace_has_a_label(asked: dict[str, Any], is_labelled: bool) -> None:
    """In others' it would refuse their next pod that mounts a folder of the host."""
    found = objects(manifests_text(Install(**asked)))
    (labels,) = [d["metadata"]["labels"] for (kind, _), d in found.items() if kind == "Namespace"]
    assert (labels.get("pod-security.kubernetes.io/enforce") == "baseline") is is_labelled


def test_nothing_has_a_finalizer() -> None:
    """`kubectl delete -f` ends in any order."""
    for name, text in FILES.items():
        assert "finalizers:" not in text, name


def test_the_arguments_say_what_was_asked() -> None:
    """Those of the old operator's command line."""
    assert args(manifests_text(Install())) == [
        "--leader-elect", "--metrics-bind-address=:8080", "--health-probe-bind-address=:8081",
    ]  # fmt: skip
    text = manifests_text(Install("ops", "here/op:2", "volcano", ("a", "b"), 2, "alpine:3.20"))
    assert args(text)[3:] == ["--scheduling=volcano", "--namespace=a,b", "--init-image=alpine:3.20"]
    options = read_options(args(text))
    assert (options.leader_elect, options.namespaces) == (True, ("a", "b"))
    assert (options.settings.scheduling, options.settings.init_image) == ("volcano", "alpine:3.20")
    assert options.warnings == ()
    assert deployment(text)["metadata"]["namespace"] == "ops"
    assert deployment(text)["spec"]["replicas"] == 2
    assert "paddle-system" not in text.partition("apiVersion")[2]


def test_a_few_namespaces_get_rights_there_only() -> None:
    """The right to make pods everywhere is not needed to serve two teams."""
    found = objects(manifests_text(Install(watch_namespaces=("a",))))
    assert ("ClusterRoleBinding", "paddle-manager-rolebinding") not in found
    binding = found[("RoleBinding", "paddle-manager-rolebinding")]
    assert binding["metadata"]["namespace"] == "a"
    assert binding["subjects"][0]["namespace"] == "paddle-system"


@pytest.mark.parametrize("served", [(), ("a", "b")])
def test_pod_groups_are_only_for_the_gang_schedulers_that_are_named(
    served: tuple[str, ...],
) -> None:
    """A right to what the cluster does not have is one that nobody watches."""
    assert "podgroups" not in str(template()["rules"]["manager"])
    assert "podgroups" not in manifests_text(Install())
    text = manifests_text(Install(scheduling="volcano", watch_namespaces=served))
    assert "scheduling.volcano.sh" in text
    assert "scheduling.x-k8s.io" not in text
    kind = "RoleBinding" if served else "ClusterRoleBinding"
    assert (kind, "paddle-manager-volcano") in objects(text)
    both = objects(manifests_text(Install(gangs=("volcano", "coscheduling"))))
    for name in GANGS:
        made = objects(FILES[f"gangs/{name}.yaml"])
        assert len(made) == 2
        assert made.items() <= both.items()


def test_the_policy_is_about_the_operators_account_alone() -> None:
    """It would refuse everybody's pods otherwise; the chart has the same rules."""
    found = objects(manifests_text(Install("ops")))
    spec = found[("ValidatingAdmissionPolicy", "paddle-manager-policy")]["spec"]
    (whose,) = spec["matchConditions"]
    account = "system:serviceaccount:ops:paddle-manager-sa"
    assert whose["expression"] == f"request.userInfo.username == '{account}'"
    rules = {name: what for name, what in spec.items() if name != "matchConditions"}
    assert yaml.safe_load(FILES["helm/paddock-operator/files/policy.yaml"]) == rules
    for name, has_policy in (("v1", True), ("v1beta1", False)):
        kinds = {kind for kind, _ in objects(FILES[f"{name}/operator.yaml"])}
        assert ("ValidatingAdmissionPolicy" in kinds) is has_policy
        assert ("ValidatingAdmissionPolicyBinding" in kinds) is has_policy


def test_metrics_are_for_the_namespaces_that_are_named() -> None:
    """The probes are for the kubelet, wherever it connects from."""
    found = objects(manifests_text(Install(metrics_from=("monitoring",))))
    spec = found[("NetworkPolicy", "paddle-controller-manager-metrics")]["spec"]
    metrics, health = spec["ingress"]
    (source,) = metrics["from"]
    assert source["namespaceSelector"]["matchExpressions"][0]["values"] == ["monitoring"]
    assert [p["port"] for p in metrics["ports"]] == ["metrics"]
    assert ([p["port"] for p in health["ports"]], health.get("from")) == (["health"], None)
    assert spec["podSelector"]["matchLabels"].items() <= (
        deployment(manifests_text(Install()))["spec"]["template"]["metadata"]["labels"].items()
    )
    assert "NetworkPolicy" not in manifests_text(Install())


def test_the_definition_and_a_monitor_come_on_demand() -> None:
    """One stream for `kubectl apply -f -`."""
    found = objects(manifests_text(Install(), has_crd=True, has_monitor=True))
    assert next(iter(found)) == (
        "CustomResourceDefinition", "paddlejobs.batch.paddlepaddle.org",
    )  # fmt: skip
    assert ("ServiceMonitor", "paddle-controller-manager") in found


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"namespace": "My Space"}, "'My Space' is not the name of a namespace"),
        ({"watch_namespaces": ("a", "B")}, "'B' is not the name of a namespace"),
        ({"scheduling": "kueue"}, "scheduling 'kueue' is not one of volcano, coscheduling"),
        ({"gangs": ("kueue",)}, "gang scheduler 'kueue' is not one of volcano, coscheduling"),
        ({"replicas": 0}, "0 replicas are not in 1..9"),
        ({"image": ""}, "image '' is not the name of an image"),
    ],
)
def test_what_cannot_be_is_refused(wrong: dict[str, Any], message: str) -> None:
    """Before kubectl sees it."""
    with pytest.raises(UsageError) as caught:
        manifests_text(Install(**wrong))
    assert caught.value.problems[0].message == message


# -------------------------------------------------------------------------------------- the rest


def kustomized(folder: Path) -> str:
    """What kubectl's own kustomize makes of a folder, where there is a kubectl."""
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        pytest.skip("no kubectl here")
    done = subprocess.run(
        [kubectl, "kustomize", str(folder)],
        capture_output=True, text=True, timeout=60, env={"HOME": str(folder)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("folder", ["v1", "kustomize/base"])
def test_the_base_of_kustomize_builds(folder: str) -> None:
    """It refers to deploy/v1; a copy would be forgotten."""
    text = kustomized(ROOT / "deploy" / folder)
    assert objects(text) == objects(crd_text() + "---\n" + manifests_text(Install()))


def test_a_kustomization_names_another_image(tmp_path: Path) -> None:
    """As the comment in the base says."""
    (note,) = re.findall(r"#   (images: .*)", FILES["kustomize/base/kustomization.yaml"])
    base = os.path.relpath(ROOT / "deploy" / "kustomize" / "base", tmp_path.resolve())
    (tmp_path / "kustomization.yaml").write_text(f"resources: [{base}]\n{note}\n")
    (container,) = deployment(kustomized(tmp_path))["spec"]["template"]["spec"]["containers"]
    assert container["image"] == f"registry.example/paddock-operator:{__version__}"


def test_the_dashboard_asks_for_metrics_that_exist() -> None:
    """A panel without data looks like a quiet cluster."""
    targets = [t for panel in PANELS if panel["type"] != "row" for t in panel["targets"]]
    asked = {m for t in targets for m in re.findall(r"paddock_\w+", t["expr"])}
    of_runs = {m for m in asked if m.startswith(("paddock_run_", "paddock_rank_", "paddock_ps_"))}
    assert asked - of_runs == METRICS
    assert of_runs <= set(RUN_METRICS)


def test_the_dashboards_panels_do_not_overlap() -> None:
    """Grafana would move them."""
    cells = [
        (x, y)
        for place in (panel["gridPos"] for panel in PANELS)
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(cells) == len(set(cells))
    assert all(x < 24 for x, _ in cells)


def test_etcd_is_found_under_the_documented_name() -> None:
    """Paddle's elastic manager reads PADDLE_ELASTIC_ETCD_SERVICE_HOST and _PORT."""
    service = objects(ETCD)[("Service", "paddle-elastic-etcd")]
    assert service["spec"]["ports"][0]["port"] == 2379
    assert "namespace" not in service["metadata"]
