"""The Helm chart, by helm itself: what it renders, refuses, installs, upgrades and removes.

Its files without helm: tests/operator/test_chart.py.
"""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import socket
import ssl
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from cluster.conftest import need_binaries, new_namespace
from cluster.control.build import binaries
from cluster.deployed import CRD, DEPLOY, V1
from cluster.jobs import Place
from paddock.operator.manifests.crd import crd_text
from paddock.operator.manifests.install import Install, manifests_text, template

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from cluster.control.cluster import Cluster
    from cluster.jobs import Probes

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
    for role in found:
        ours = json.dumps(template()["rules"][role])
        expected = ours.replace("paddock-operator.paddlepaddle.org", name)
        assert found[role]["rules"] == json.loads(expected), role
    definition = yaml.safe_load(crd_text())
    definition["metadata"]["annotations"] = {"helm.sh/resource-policy": "keep"}
    assert made[("CustomResourceDefinition", definition["metadata"]["name"])] == definition
    files = objects(manifests_text(Install()))
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


# ------------------------------------------------------------------------------------ on a cluster


@dataclass
class Release:
    """A release that serves its own namespace only."""

    name: str
    place: Place

    @property
    def deployment(self) -> str:
        """As kubectl takes it."""
        return f"deployment/{self.name}-paddock-operator"

    def helm(self, *words: object, check: bool = True) -> subprocess.CompletedProcess[str]:
        """helm, in its namespace."""
        return self.place.plane.helm("-n", self.place.namespace, *words, check=check)

    def values(self) -> tuple[str, ...]:
        """Those that it is installed with."""
        space = self.place.namespace
        reader = f"metrics.readers[0].namespace={space},metrics.readers[0].name=prometheus"
        return ("--set", f"watchNamespaces={{{space}}}", "--set", reader)


@pytest.fixture(scope="module")
def releases(cluster: Cluster, operator_image: None) -> Iterator[tuple[Release, Release]]:
    """Two releases beside one another, as the chart's page installs them."""
    plane = cluster.plane
    plane.kubectl("delete", "-f", V1, "--ignore-not-found", "--timeout=60s")
    with new_namespace(plane) as a, new_namespace(plane) as b:
        made = (Release("team-a", Place(plane, a)), Release("team-b", Place(plane, b)))
        for one in made:
            one.helm("install", one.name, CHART, *one.values(), "--wait", "--timeout=90s")
        yield made
        for one in made:
            one.helm("uninstall", one.name, "--ignore-not-found")
    plane.kubectl("delete", "crd", CRD, "--ignore-not-found", "--timeout=60s")


def test_each_of_two_releases_runs_the_jobs_of_its_namespace(
    releases: tuple[Release, Release], probes: Probes
) -> None:
    """And knows nothing of the other's."""
    for one in releases:
        one.place.make("first", worker=probes.role(2, "say trained"))
    for one in releases:
        one.place.wait("first", "Completed")
    for one, other in (releases, releases[::-1]):
        said = one.place.kubectl("logs", one.deployment)
        assert f"job={one.place.namespace}/first" in said
        assert other.place.namespace not in said and " error " not in said


def test_helms_test_says_who_leads_or_that_nobody_does(
    releases: tuple[Release, Release],
) -> None:
    """It runs the operator's image with the operator's rights; its pod is left when it failed."""
    one, other = releases
    assert "Phase:          Succeeded" in one.helm("test", one.name, "--timeout=60s").stdout
    assert "paddock-operator-test" not in one.place.kubectl("get", "pods", "-o", "name")
    other.place.kubectl("scale", other.deployment, "--replicas=0")
    done = other.helm("test", other.name, "--logs", "--timeout=90s", check=False)
    other.place.kubectl("scale", other.deployment, "--replicas=1")
    assert done.returncode != 0
    assert "nobody renewed lease" in done.stdout
    other.place.kubectl("rollout", "status", other.deployment, "--timeout=60s")


def test_a_second_operator_of_the_same_jobs_is_refused(releases: tuple[Release, Release]) -> None:
    """Two would undo each other's work; what is said names the first."""
    one, other = releases
    plane = one.place.plane

    def refusal(*words: str) -> str:
        done = plane.helm("-n", "default", "install", "third", CHART, *words, check=False)
        assert done.returncode != 0, done.stdout
        return done.stderr

    assert 'current value is "team-a"' in refusal(*one.values())
    spaces = "|".join(r.place.namespace for r in (one, other))
    said = refusal()
    assert re.search(rf"release ({spaces})/team-. serves ({spaces}) already", said), said
    plane.kubectl("apply", "-f", V1 / "operator.yaml")
    said = refusal("--set", "watchNamespaces={default}")
    plane.kubectl("delete", "-f", V1 / "operator.yaml")
    assert "an operator of kubectl apply serves all namespaces already" in said
    assert plane.helm("-n", "default", "list", "--all", "--short").stdout == ""


def ask(cluster: Cluster, release: Release, token: str) -> str:
    """The first line and the body of /metrics, the certificate checked against the Secret's CA."""
    place = release.place
    (pod,) = (p for p in place.all("pods") if p["metadata"]["name"].startswith(release.name))
    secret = json.loads(
        place.kubectl("get", "secret", f"{release.name}-paddock-operator-metrics", "-o", "json")
    )
    authority = base64.b64decode(secret["data"]["ca.crt"]).decode()
    trust = ssl.create_default_context(cadata=authority)
    host, _, port = cluster.forward(pod["status"]["podIP"], 8443).rpartition(":")
    name = f"{release.name}-paddock-operator-metrics.{place.namespace}.svc"
    with (
        socket.create_connection((host, int(port)), timeout=20) as raw,
        trust.wrap_socket(raw, server_hostname=name) as connection,
    ):
        header = f"Authorization: Bearer {token}\r\n" if token else ""
        connection.sendall(f"GET /metrics HTTP/1.1\r\nHost: x\r\n{header}\r\n".encode())
        said = b""
        while part := connection.recv(65536):
            said += part
    head, _, body = said.decode().partition("\r\n\r\n")
    return f"{head.splitlines()[0]}\n{body}"


def test_metrics_are_for_those_who_may_get_them(
    releases: tuple[Release, Release], cluster: Cluster
) -> None:
    """By HTTPS; the API server says who that is."""
    one, _ = releases
    for account in ("prometheus", "ann"):
        one.place.kubectl("create", "serviceaccount", account)
    tokens = [one.place.kubectl("create", "token", who).strip() for who in ("prometheus", "ann")]
    assert "paddock_is_leader 1" in ask(cluster, one, tokens[0])
    assert ask(cluster, one, tokens[1]).startswith("HTTP/1.1 403 ")
    assert ask(cluster, one, tokens[0][:-8] + "AAAAAAAA").startswith("HTTP/1.1 401 ")
    assert ask(cluster, one, "").startswith("HTTP/1.1 401 ")


def test_an_upgrade_brings_the_definition_and_keeps_the_rest(
    releases: tuple[Release, Release], probes: Probes, tmp_path: Path
) -> None:
    """Running pods and the certificate stay; a definition of another release is left alone."""
    one, other = releases
    plane = one.place.plane
    one.place.make("long", worker=probes.role(2, "sleep"))
    one.place.wait("long", "Running")
    secret = ("get", "secret", "team-a-paddock-operator-metrics", "-o", "jsonpath={.data}")
    before, uids = one.place.kubectl(*secret), one.place.uids("long")
    chart = shutil.copytree(CHART, tmp_path / "chart")
    file = chart / "files" / "crd.yaml"
    file.write_text(file.read_text("utf-8").replace("What the job is.", "What it is."), "utf-8")

    def is_new() -> bool:
        return "What it is." in plane.kubectl("get", "crd", CRD, "-o", "json").stdout

    other.helm("upgrade", other.name, chart, "--reuse-values", "--wait", "--timeout=90s")
    assert not is_new()
    more = ("--set", "replicas=2", "--set", "podDisruptionBudget.enabled=true")
    one.helm("upgrade", one.name, chart, "--reuse-values", *more, "--wait", "--timeout=90s")
    assert is_new()
    assert one.place.kubectl(*secret) == before
    assert one.place.uids("long") == uids
    found = json.loads(one.place.kubectl("get", one.deployment, "-o", "json"))
    assert found["status"]["readyReplicas"] == 2
    one.helm("test", one.name, "--timeout=60s")


def test_after_the_removal_jobs_and_definition_are_left(
    releases: tuple[Release, Release],
) -> None:
    """And nothing else, neither in the namespace nor in the cluster."""
    one, _ = releases
    plane, space = one.place.plane, one.place.namespace
    one.helm("uninstall", one.name, "--wait", "--timeout=60s")
    kinds = "clusterroles,clusterrolebindings,roles,rolebindings,services,secrets,deployments,pdb"
    left = one.place.kubectl("get", kinds, "-o", "name")
    assert space not in left and "team-a" not in left
    assert "first" in one.place.kubectl("get", "pdj", "-o", "name")
    assert plane.kubectl("get", "crd", CRD).returncode == 0
    # Under another name, the definition is not this release's; it is left alone, and will do.
    again = Release("again", one.place)
    again.helm("install", again.name, CHART, *one.values(), "--wait", "--timeout=90s")
    again.helm("test", again.name, "--timeout=60s")
    again.helm("uninstall", again.name)
