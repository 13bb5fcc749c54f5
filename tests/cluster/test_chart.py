"""The Helm chart, by helm itself: what it renders, refuses, installs, upgrades and removes.

Its files without helm: tests/operator/test_chart.py.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from cluster.conftest import need_binaries
from cluster.control.build import binaries
from cluster.deployed import DEPLOY
from paddock.operator.manifests import crd_text, manifests_text
from paddock.operator.manifests.permissions import EDIT, LEADER, MANAGER, VIEW, rules

if TYPE_CHECKING:
    from collections.abc import Callable

CHART = DEPLOY / "helm" / "paddock-operator"
GOLDEN = Path(__file__).parent / "golden"
Objects = dict[tuple[str, str], dict[str, Any]]
# Every value that has an effect, but for those that switch something off.
EVERYTHING: dict[str, Any] = {
    "nameOverride": "op", "fullnameOverride": "trainer", "commonLabels": {"team": "ml"},
    "image": {"repository": "here/op", "digest": f"sha256:{'0' * 64}", "pullPolicy": "Always"},
    "imagePullSecrets": [{"name": "pull"}], "replicas": 2, "watchNamespaces": ["a", "b"],
    "scheduling": "volcano", "initImage": "alpine:3.20", "extraArgs": ["--log-format=json"],
    "extraEnv": [{"name": "TZ", "value": "UTC"}], "crds": {"install": False},
    "serviceAccount": {"annotations": {"note": "account"}},
    "metrics": {
        "port": 9443, "certSecret": "from-cert-manager",
        "readers": [{"name": "prometheus", "namespace": "monitoring"}],
        "serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}, "interval": "1m"},
    },
    "podDisruptionBudget": {"enabled": True, "maxUnavailable": "50%"},
    "podAnnotations": {"note": "pod"}, "podLabels": {"tier": "control"},
    "resources": {"limits": {"memory": "1Gi"}}, "priorityClassName": "system-cluster-critical",
    "nodeSelector": {"pool": "system"}, "tolerations": [{"key": "system", "operator": "Exists"}],
    "affinity": {"nodeAffinity": {}},
    "topologySpreadConstraints": [
        {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"}
    ],
}  # fmt: skip


def helm(folder: Path, *words: object) -> subprocess.CompletedProcess[str]:
    """Run helm, without a cluster."""
    need_binaries()
    return subprocess.run(
        [binaries().helm, *map(str, words)], env={**os.environ, "HOME": str(folder)},
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip


def rendered(folder: Path, given: dict[str, Any], release: str = "paddock") -> str:
    """What helm makes of the chart with these values, keys and certificates left out."""
    file = folder / "values.json"
    file.write_text(json.dumps(given))
    # A helm that was not built by its own Makefile takes every cluster for a 1.20.
    words = ("--kube-version", "v1.34.0", "--namespace", "paddle-system", "-f", file)
    done = helm(folder, "template", release, CHART, *words)
    assert done.returncode == 0, done.stderr
    return re.sub(r"^(  (?:ca|tls)\.(?:crt|key): ).+$", r"\1TUFERQ==", done.stdout, flags=re.M)


def objects(text: str) -> Objects:
    """By kind and name."""
    found = [d for d in yaml.safe_load_all(text) if d]
    return {(d["kind"], d["metadata"]["name"]): d for d in found}


# ------------------------------------------------------------------------------------- rendering


@pytest.mark.parametrize(
    ("name", "given"),
    [("chart_default", {"crds": {"install": False}}), ("chart_everything", EVERYTHING)],
)
def test_the_chart_renders_as_it_was_reviewed(
    tmp_path: Path, same_as_golden: Callable[[Path, str], None], name: str, given: dict[str, Any]
) -> None:
    """With its own values, and with all that have an effect."""
    text = rendered(tmp_path, given)
    assert "nil" not in text and "<no value>" not in text
    same_as_golden(GOLDEN / f"{name}.yaml", text)


def test_the_chart_installs_what_the_files_do(tmp_path: Path) -> None:
    """One truth: rights, definition and container are those of deploy/v1."""
    made = objects(rendered(tmp_path, {}, release="paddock-operator"))
    name, cluster = "paddock-operator", "paddle-system-paddock-operator"
    found = {
        "manager": made[("ClusterRole", cluster)], "leader": made[("Role", name)],
        "view": made[("ClusterRole", f"{cluster}-view")],
        "edit": made[("ClusterRole", f"{cluster}-edit")],
    }  # fmt: skip
    ours = {"manager": MANAGER, "leader": LEADER, "view": VIEW, "edit": EDIT}
    for role, grants in ours.items():
        expected = json.dumps(rules(grants)).replace("paddock-operator.paddlepaddle.org", name)
        assert found[role]["rules"] == json.loads(expected), role
    definition = yaml.safe_load(crd_text())
    definition["metadata"]["annotations"] = {"helm.sh/resource-policy": "keep"}
    assert made[("CustomResourceDefinition", definition["metadata"]["name"])] == definition
    files = objects(manifests_text())
    theirs, pod = (
        d["spec"]["template"]["spec"]
        for d in (
            files[("Deployment", "paddle-controller-manager")], made[("Deployment", name)]
        )
    )  # fmt: skip
    (container,), (expected_container,) = pod.pop("containers"), theirs.pop("containers")
    only_here = {
        "--leader-election-id=paddock-operator",
        "--metrics-cert-path=/etc/paddock/metrics",
    }
    assert set(container["args"]) - set(expected_container["args"]) == {
        *only_here, "--metrics-bind-address=:8443"
    }  # fmt: skip
    for spec, other in ((container, expected_container), (pod, theirs)):
        for key in ("args", "ports", "volumeMounts", "serviceAccountName", "volumes"):
            spec.pop(key, None), other.pop(key, None)
        assert spec == other


def test_names_stay_within_what_kubernetes_allows(tmp_path: Path) -> None:
    """The longest name that helm gives a release."""
    made = objects(rendered(tmp_path, {"metrics": {"readers": []}}, release="r" * 53))
    names = [d["metadata"]["name"] for d in made.values() if "namespace" in d["metadata"]]
    assert max(map(len, names)) <= 63
    (_, name) = next(key for key in made if key[0] == "Deployment")
    assert len(name) == 52


def test_without_roles_and_account_nothing_of_the_cluster_is_made(tmp_path: Path) -> None:
    """For people who may install into their own namespace only."""
    given = {
        "rbac": {"create": False}, "serviceAccount": {"create": False, "name": "mine"},
        "crds": {"install": False}, "metrics": {"enabled": False},
    }  # fmt: skip
    made = objects(rendered(tmp_path, given))
    assert sorted(kind for kind, _ in made) == ["Deployment", "Pod"]
    pod = made[("Deployment", "paddock-paddock-operator")]["spec"]["template"]["spec"]
    assert pod["serviceAccountName"] == "mine"
    assert "--metrics-bind-address=0" in pod["containers"][0]["args"]


def test_the_test_is_none_of_the_operators_pods(tmp_path: Path) -> None:
    """Else the metrics' Service and the budget would count it in."""
    made = objects(rendered(tmp_path, {}))
    selector = made[("Service", "paddock-paddock-operator-metrics")]["spec"]["selector"]
    operator = made[("Deployment", "paddock-paddock-operator")]["spec"]["template"]["metadata"]
    test = made[("Pod", "paddock-paddock-operator-test")]["metadata"]
    assert selector.items() <= operator["labels"].items()
    assert not selector.items() <= test["labels"].items()


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("schedulin=volcano", "schedulin"),
        ("scheduling=kueue", "scheduling"),
        ("replicas=0", "replicas"),
        ("image.pullPolicy=Often", "pullPolicy"),
        ("image.repository=", "repository"),
        ("image.digest=sha256:12", "digest"),
        ("metrics.port=8081", "port"),
        ("metrics.secured=false", "secured"),
        ("watchNamespaces={A}", "watchNamespaces"),
        ("extraArgs={x}", "extraArgs"),
        ("affinity.nodeAfinity.x=y", "nodeAfinity"),
    ],
)
def test_a_wrong_value_is_refused_by_helm(tmp_path: Path, value: str, message: str) -> None:
    """Rather than left out in silence."""
    done = helm(tmp_path, "template", "paddock", CHART, "--kube-version=v1.34.0", "--set", value)
    assert done.returncode != 0
    assert message in done.stderr


def test_the_chart_passes_helms_own_check(tmp_path: Path) -> None:
    """helm lint --strict."""
    done = helm(tmp_path, "lint", "--strict", "--kube-version=v1.34.0", CHART)
    assert done.returncode == 0 and "0 chart(s) failed" in done.stdout, done.stdout
