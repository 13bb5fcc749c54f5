"""The files of deploy/ on a real API server, with the real kubectl and helm.

Has a control plane of its own: it removes the definition, under which other tests have jobs.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from cluster.conftest import need_binaries
from cluster.control.plane import ControlPlane
from paddlejobs import DOCUMENTED, FULL, REFUSED, job, pod, refused, role
from paddock.operator.manifests import crd_text, manifests_text
from paddock.operator.manifests.files import files
from paddock.operator.manifests.permissions import LEASE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
V1 = DEPLOY / "v1"
CHART = DEPLOY / "helm" / "paddock-operator"
CRD = "paddlejobs.batch.paddlepaddle.org"
ACCOUNT = "system:serviceaccount:paddle-system:paddle-manager-sa"
WAIT_SECONDS_MAX = 60.0


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    """A control plane that no other module uses."""
    need_binaries()
    with ControlPlane() as made:
        yield made


@pytest.fixture
def installed(plane: ControlPlane) -> ControlPlane:
    """The control plane with deploy/v1, as the documents install it."""
    present = ("get", f"crd/{CRD}", "deployment/paddle-controller-manager", "-n", "paddle-system")
    if plane.kubectl(*present, check=False).returncode != 0:
        plane.kubectl("apply", "-f", V1)
        wait_served(plane)
    return plane


def expect_soon(what: str, is_true: Callable[[], bool]) -> None:
    """Ask until it is true; fail after a minute."""
    end = time.monotonic() + WAIT_SECONDS_MAX
    while not is_true():
        assert time.monotonic() < end, f"not within {WAIT_SECONDS_MAX:g} s: {what}"


def wait_served(plane: ControlPlane) -> None:
    """Wait until jobs can be asked for; a definition is served a moment after it is accepted."""
    plane.kubectl("wait", "--for=condition=Established", f"crd/{CRD}", "--timeout=60s")
    expect_soon("get pdj", lambda: plane.kubectl("get", "pdj", check=False).returncode == 0)


def create(
    plane: ControlPlane, namespace: str, found: dict[str, Any], *words: str
) -> tuple[int, str]:
    """kubectl create of one object: exit code, and all that was said."""
    text = json.dumps(found)
    done = plane.kubectl("create", "-n", namespace, "-f", "-", *words, stdin=text, check=False)
    return done.returncode, done.stdout + done.stderr


def make(plane: ControlPlane, namespace: str, found: dict[str, Any], **status: Any) -> None:
    """A job, with a status."""
    assert create(plane, namespace, found)[0] == 0
    if status:
        set_status(plane, namespace, found["metadata"]["name"], **status)


def set_status(plane: ControlPlane, namespace: str, name: str, **status: Any) -> None:
    """Write a status as the operator does."""
    patch = json.dumps({"status": status})
    words = ("--subresource=status", "--type=merge", "-p", patch)
    plane.kubectl("patch", "pdj", name, "-n", namespace, *words)


def table(text: str) -> list[list[str]]:
    """What kubectl get prints, as words."""
    return [line.split() for line in text.splitlines()]


# ------------------------------------------------------------------------------- what is accepted


@pytest.mark.parametrize("name", [*DOCUMENTED, "full"])
def test_a_documented_job_is_accepted(installed: ControlPlane, name: str) -> None:
    """With today's strict validation, nothing said but that it was created."""
    found = {**DOCUMENTED, "full": FULL}[name]
    code, said = create(installed, "default", found, "--dry-run=server")
    assert code == 0, said
    assert said.strip().endswith("created (server dry run)")
    assert "Warning" not in said


def test_new_fields_of_pods_survive(installed: ControlPlane, namespace: str) -> None:
    """The old definition cut away what Kubernetes 0.23 did not know (operator.md 1)."""
    template = pod(
        resizePolicy=[{"resourceName": "cpu", "restartPolicy": "NotRequired"}],
        resources={"claims": [{"name": "gpu"}]},
    )
    more = {
        "schedulingGates": [{"name": "wait"}],
        "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "gpu"}],
        "initContainers": [{"name": "side", "image": "i", "restartPolicy": "Always"}],
        "topologySpreadConstraints": [{"maxSkew": 1, "matchLabelKeys": ["a"]}],
        "aFieldOfNextYear": {"deep": [1, {"er": True}]},
    }
    template["spec"].update(more)
    template["metadata"] = {"labels": {"a": "b"}, "aNewOne": 1}
    make(installed, namespace, job("new", worker={"replicas": 1, "template": template}))
    stored: Any = installed.get("pdj", "new", "-n", namespace)
    assert stored["spec"]["worker"]["template"] == template


def test_old_words_for_cleaning_are_accepted(installed: ControlPlane) -> None:
    """deepfm.yaml of paddle-operator; the operator warns, the API server cannot."""
    found = job("old", worker=role(1), cleanPodPolicy="OnFailed")
    assert create(installed, "default", found, "--dry-run=server")[0] == 0


def test_a_name_may_fill_the_limit(installed: ControlPlane) -> None:
    """54 characters and -worker-0 are 63; with ten more pods it is one too many."""
    name = "n" * 54
    code, said = create(installed, "default", job(name, worker=role(10)), "--dry-run=server")
    assert code == 0, said
    code, said = create(installed, "default", job(name, worker=role(11)), "--dry-run=server")
    assert "metadata.name is too long" in said


def test_generated_names_are_accepted(installed: ControlPlane, namespace: str) -> None:
    """Pipelines create jobs with generateName."""
    found = {**job("x", worker=role(1)), "metadata": {"generateName": "run-"}}
    code, said = create(installed, namespace, found)
    assert code == 0, said


# -------------------------------------------------------------------------------- what is refused


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_a_mistake_is_refused_with_its_field(installed: ControlPlane, name: str) -> None:
    """By the API server, at once, with a sentence that names the field."""
    code, said = create(installed, "default", refused(name), "--dry-run=server")
    assert code != 0
    assert REFUSED[name][1] in said


def test_the_misspelt_field_of_the_documents_is_named(installed: ControlPlane) -> None:
    """kubectl says it; --validate=false leaves it out."""
    found = job("sample", worker=role(1), cleanPolicy="Never")
    code, said = create(installed, "default", found, "--dry-run=server")
    assert code != 0
    assert 'unknown field "spec.cleanPolicy"' in said
    words = ("--validate=false", "--dry-run=server", "-o", "json")
    code, said = create(installed, "default", found, *words)
    assert code == 0
    assert "cleanPolicy" not in json.loads(said)["spec"]


def test_scaling_to_nothing_is_refused_with_the_right_way(
    installed: ControlPlane, namespace: str
) -> None:
    """A job without pods would hang for ever; suspend says what was meant."""
    make(installed, namespace, job("mnist", worker=role(2)))
    words = ("scale", "pdj/mnist", "--replicas=0", "-n", namespace)
    done = installed.kubectl(*words, check=False)
    assert done.returncode != 0
    assert "or suspend: true to stop the job" in done.stderr


# ----------------------------------------------------------------------- the documented commands


def test_get_shows_status_mode_and_age(installed: ControlPlane, namespace: str) -> None:
    """As in the documents: NAME STATUS MODE AGE."""
    make(
        installed, namespace, DOCUMENTED["wide_and_deep_service"],
        phase="Completed", mode="PS", ready="0/4", restarts=2, reason="Succeeded",
    )  # fmt: skip
    shown = table(installed.kubectl("get", "pdj", "-n", namespace).stdout)
    assert shown[0] == ["NAME", "STATUS", "MODE", "AGE"]
    assert shown[1][:3] == ["wide-ande-deep-service", "Completed", "PS"]
    shown = table(installed.kubectl("get", "pdj", "-n", namespace, "-o", "wide").stdout)
    assert shown[0] == ["NAME", "STATUS", "MODE", "READY", "RESTARTS", "REASON", "AGE"]
    assert shown[1][1:6] == ["Completed", "PS", "0/4", "2", "Succeeded"]


def test_get_all_has_jobs(installed: ControlPlane, namespace: str) -> None:
    """Category all."""
    make(installed, namespace, DOCUMENTED["simple"])
    shown = installed.kubectl("get", "all", "-n", namespace).stdout
    assert "paddlejob.batch.paddlepaddle.org/simple" in shown


def test_jobs_can_be_selected_by_phase(installed: ControlPlane, namespace: str) -> None:
    """On the server, without reading all of them."""
    make(installed, namespace, job("one", worker=role(1)), phase="Running")
    make(installed, namespace, job("two", worker=role(1)), phase="Failed")
    make(
        installed, namespace,
        job("three", worker=role(1), schedulingPolicy={"queue": "night"}), phase="Failed",
    )  # fmt: skip

    def names(selector: str) -> str:
        words = ("get", "pdj", "-n", namespace, "--field-selector", selector, "-o", "name")
        return installed.kubectl(*words).stdout.replace(f"paddlejob.{CRD.partition('.')[2]}/", "")

    assert names("status.phase=Failed").split() == ["three", "two"]
    assert names("status.phase=Running").split() == ["one"]
    assert names("spec.schedulingPolicy.queue=night").split() == ["three"]


def test_kubectl_scale_changes_the_workers(installed: ControlPlane, namespace: str) -> None:
    """Paddle's elastic documents tell users to type it; the old definition answered NotFound."""
    make(installed, namespace, job("mnist", worker=role(2), ps=role(1)))
    installed.kubectl("scale", "pdj/mnist", "--replicas=5", "-n", namespace)
    spec: Any = installed.get("pdj", "mnist", "-n", namespace)["spec"]
    assert spec["worker"]["replicas"] == 5
    assert spec["ps"]["replicas"] == 1


def test_an_autoscaler_can_read_the_scale(installed: ControlPlane, namespace: str) -> None:
    """It needs the workers' number and labels."""
    labels = "batch.paddlepaddle.org/job-name=mnist,paddle-res-type=worker"
    make(installed, namespace, job("mnist", worker=role(3)), replicas=2, selector=labels)
    where = f"/apis/batch.paddlepaddle.org/v1/namespaces/{namespace}/paddlejobs/mnist/scale"
    scale = json.loads(installed.kubectl("get", "--raw", where).stdout)
    assert scale["spec"]["replicas"] == 3
    assert scale["status"] == {"replicas": 2, "selector": labels}


def test_explain_tells_what_a_field_means(installed: ControlPlane) -> None:
    """The table of fields is the documentation on the spot."""
    said = installed.kubectl("explain", "pdj.spec.worker.restartScope").stdout
    assert "What a failed pod of this role takes with it" in said
    assert "Replica" in said


def test_a_full_status_is_taken(installed: ControlPlane, namespace: str) -> None:
    """Every field of the status in its own type; fields of later versions are kept."""
    condition = {
        "type": "Failed", "status": "True", "reason": "OOMKilled", "message": "m",
        "lastTransitionTime": "2026-01-01T00:00:00Z", "observedGeneration": 1,
    }  # fmt: skip
    ref = {"kind": "Pod", "apiVersion": "v1", "namespace": namespace, "name": "n", "uid": "u"}
    counts = {"pending": 1, "starting": 0, "running": 2, "failed": 0, "succeeded": 0, "unknown": 0}
    time_ = "2026-01-01T00:00:00Z"
    status: dict[str, Any] = {
        "phase": "Restarting", "mode": "PS", "elastic": "NONE", "startTime": time_,
        "completionTime": time_, "observedGeneration": 3, "conditions": [condition],
        "message": "worker-0 failed", "reason": "OOMKilled", "attempt": 1, "restarts": 1,
        "startedAttempt": 0, "disruptions": 2, "nextAttemptTime": time_,
        "attemptStartTime": time_, "restartReason": "r", "countedFailures": 1, "ready": "3/4",
        "replicas": 2, "selector": "a=b", "hostPort": 20000,
        "lastFailure": {
            "pod": "a-worker-0", "role": "worker", "index": 0, "node": "n", "cause": "OOMKilled",
            "exitCode": 137, "message": "Killed", "finishedAt": time_,
        },
        "ps": {**counts, "refs": [ref]},
        "worker": {**counts, "refs": [ref], "completedIndexes": "0-1"},
        "ofNextYear": {"a": [1]},
    }  # fmt: skip
    make(installed, namespace, job("mnist", worker=role(2)), **status)
    assert installed.get("pdj", "mnist", "-n", namespace)["status"] == status


def test_a_status_does_not_touch_the_spec(installed: ControlPlane, namespace: str) -> None:
    """metadata.generation counts changes of the spec only."""
    make(installed, namespace, job("mnist", worker=role(2)), phase="Running")
    found: Any = installed.get("pdj", "mnist", "-n", namespace)
    assert found["metadata"]["generation"] == 1


def test_an_invalid_job_of_before_can_still_be_changed(
    installed: ControlPlane, namespace: str
) -> None:
    """Stored under the old definition, which checked nothing: its labels and status must go on."""
    loose = yaml.safe_load(crd_text())
    version = loose["spec"]["versions"][0]
    keep = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version["schema"]["openAPIV3Schema"] = {
        "type": "object", "properties": {"spec": keep, "status": keep},
    }  # fmt: skip
    del version["selectableFields"]
    installed.apply(loose)
    bad = job("bad", intranet="podip", worker={"replicas": 1, "template": {"spec": {}}})

    def is_taken() -> bool:
        return create(installed, namespace, bad)[0] == 0

    expect_soon("the loose definition", is_taken)
    installed.kubectl("apply", "-f", V1 / "crd.yaml")
    wait_served(installed)

    def is_strict() -> bool:
        code, _ = create(installed, namespace, refused("empty_spec"), "--dry-run=server")
        return code != 0

    expect_soon("the strict definition", is_strict)
    installed.kubectl("label", "pdj", "bad", "a=b", "-n", namespace)
    set_status(installed, namespace, "bad", phase="Failed", reason="InvalidSpec")
    shown = installed.kubectl("get", "pdj", "bad", "-n", namespace).stdout
    assert "Failed" in shown


# --------------------------------------------------------------------- installing and removing


def test_installing_again_changes_nothing(installed: ControlPlane) -> None:
    """Pipelines apply the same files at every run."""
    said = installed.kubectl("apply", "-f", V1).stdout
    assert said
    assert all(line.endswith(" unchanged") for line in said.splitlines()), said


def test_all_options_together_are_accepted(installed: ControlPlane) -> None:
    """What `paddock operator manifests` prints with every flag."""
    text = manifests_text(
        namespace="default", image="here/op:2", scheduling="volcano", replicas=2,
        watch_namespaces=("default",), init_image="alpine:3.20", has_crd=True,
    )  # fmt: skip
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
    documents = yaml.safe_load_all(files()[name])
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
    """The old operator's finalizer made the documented command hang (operator.md 2.9)."""
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
        for group, kind in (
            ("", "pods"), ("", "services"), ("", "configmaps"),
            ("scheduling.volcano.sh", "podgroups"), ("scheduling.x-k8s.io", "podgroups"),
        )
        for verb in ("get", "list", "watch", "create", "delete", "patch")
    ),
    *((verb, BATCH, "paddlejobs", "") for verb in ("get", "list", "watch", "patch", "delete")),
    ("patch", BATCH, "paddlejobs/status", ""),
    ("create", "events.k8s.io", "events", ""),
    ("patch", "events.k8s.io", "events", ""),
)  # fmt: skip
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
    assert may(installed, namespace, *WORK, *TOO_MUCH) == list(WORK)
    assert may(installed, "", *OF_CLUSTER) == []


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


# --------------------------------------------------------------------------------------- helm


def rendered(plane: ControlPlane, *words: str) -> dict[tuple[str, str], dict[str, Any]]:
    """What helm makes of the chart, by kind and name."""
    # A helm that was not built by its own Makefile takes every cluster for a 1.20.
    words = ("--kube-version", "v1.34.0", "--namespace", "paddle-system", *words)
    said = plane.helm("template", "paddock", CHART, *words).stdout
    found = [d for d in yaml.safe_load_all(said) if d]
    return {(d["kind"], d["metadata"]["name"]): d for d in found}


def test_the_chart_renders_to_the_same_objects(plane: ControlPlane) -> None:
    """With its own values; only the namespace is helm's business."""
    ours = {(d["kind"], d["metadata"]["name"]): d for d in yaml.safe_load_all(manifests_text())}
    del ours[("Namespace", "paddle-system")]
    assert rendered(plane) == ours


def test_the_values_of_the_chart_do_what_they_say(plane: ControlPlane) -> None:
    """All of them at once, compared with what `paddock operator manifests` prints."""
    text = manifests_text(
        image="here/op:2", scheduling="volcano", watch_namespaces=("a", "b"), replicas=2,
        init_image="alpine:3.20",
    )  # fmt: skip
    values = {
        "image": {"repository": "here/op", "tag": "2"}, "scheduling": "volcano", "replicas": 2,
        "watchNamespaces": ["a", "b"], "initImage": "alpine:3.20", "extraArgs": ["--x=1"],
        "imagePullSecrets": [{"name": "s"}], "priorityClassName": "p",
        "nodeSelector": {"n": "1"}, "tolerations": [{"key": "t"}], "affinity": {"nodeAffinity": {}},
        "serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
        "userRoles": False, "resources": {"limits": {"memory": "1Gi"}},
    }  # fmt: skip
    file = plane.folder / "values.json"
    file.write_text(json.dumps(values))
    found = rendered(plane, "-f", str(file))
    made = found[("Deployment", "paddle-controller-manager")]["spec"]
    ours = next(d for d in yaml.safe_load_all(text) if d["kind"] == "Deployment")["spec"]
    container, expected = (s["template"]["spec"]["containers"][0] for s in (made, ours))
    assert container["args"] == [*expected["args"], "--x=1"]
    assert (container["image"], made["replicas"]) == ("here/op:2", 2)
    assert container["resources"]["limits"] == {"memory": "1Gi"}
    of_pod = made["template"]["spec"]
    for name in ("imagePullSecrets", "priorityClassName", "nodeSelector", "tolerations"):
        assert of_pod[name] == values[name]
    assert of_pod["affinity"] == {"nodeAffinity": {}}
    monitor = found[("ServiceMonitor", "paddle-controller-manager")]
    assert monitor["metadata"]["labels"]["release"] == "prometheus"
    assert ("ClusterRole", "paddlejobs-edit") not in found
    assert ("ClusterRoleBinding", "paddle-manager-rolebinding") not in found
    binding = found[("RoleBinding", "paddle-manager-rolebinding")]
    assert (binding["metadata"]["namespace"], binding["subjects"][0]["namespace"]) == (
        "b", "paddle-system",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("schedulin=volcano", "schedulin"),
        ("scheduling=kueue", "scheduling"),
        ("replicas=0", "replicas"),
        ("image.pullPolicy=Often", "pullPolicy"),
    ],
)
def test_a_wrong_value_is_refused_by_helm(plane: ControlPlane, value: str, message: str) -> None:
    """Rather than left out in silence."""
    words = ("template", "paddock", CHART, "--set", value)
    done = plane.helm(*words, check=False)
    assert done.returncode != 0
    assert message in done.stderr


def test_the_chart_passes_helms_own_check(plane: ControlPlane) -> None:
    """helm lint."""
    assert "0 chart(s) failed" in plane.helm("lint", CHART).stdout


def test_the_chart_installs_and_uninstalls(plane: ControlPlane) -> None:
    """The definition stays, with the jobs; the rest goes."""
    plane.kubectl("delete", "-f", V1, "--ignore-not-found", "--timeout=60s")
    words = ("install", "paddock", CHART, "-n", "ops", "--create-namespace")
    said = plane.helm(*words).stdout
    assert "kubectl -n ops rollout status deployment/paddle-controller-manager" in said
    wait_served(plane)
    found: Any = plane.get("deployment", "paddle-controller-manager", "-n", "ops")
    assert found["spec"]["replicas"] == 1
    plane.helm("uninstall", "paddock", "-n", "ops", "--wait")
    plane.kubectl("delete", "namespace", "ops", "--timeout=60s")
    left = plane.kubectl("get", "clusterroles,clusterrolebindings", "-o", "name").stdout
    assert "paddle" not in left
    assert plane.kubectl("get", f"crd/{CRD}").returncode == 0


# ---------------------------------------------------------------------------------- old clusters


def test_the_file_for_old_clusters_is_not_for_this_one(plane: ControlPlane) -> None:
    """Its first lines say so, and so does the server."""
    path = DEPLOY / "v1beta1" / "crd.yaml"
    assert "No cluster since 1.22 takes this file" in path.read_text("utf-8")
    done = plane.kubectl("apply", "--dry-run=server", "-f", path, check=False)
    assert 'no matches for kind "CustomResourceDefinition" in version' in done.stderr
