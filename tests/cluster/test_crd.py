"""The definition of PaddleJob on a real API server: what it takes, refuses and shows.

Has a control plane of its own: it changes the definition, under which other tests have jobs.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from cluster.conftest import need_binaries
from cluster.control.plane import ControlPlane
from cluster.deployed import (
    CRD,
    V1,
    create,
    expect_soon,
    install,
    make,
    set_status,
    wait_served,
)
from paddlejobs import DOCUMENTED, FULL, REFUSED, job, pod, refused, role
from paddock.operator.manifests.crd import crd_text

if TYPE_CHECKING:
    from collections.abc import Iterator


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
    """The old definition cut away what Kubernetes 0.23 did not know."""
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


def test_a_misspelt_field_is_named(installed: ControlPlane) -> None:
    """kubectl says it; --validate=false leaves it out. That of the old user guide is known."""
    sample = job("sample", worker=role(1), cleanPolicy="Never")
    assert create(installed, "default", sample, "--dry-run=server")[0] == 0
    found = job("sample", worker=role(1), cleanPodPolcy="Never")
    code, said = create(installed, "default", found, "--dry-run=server")
    assert code != 0
    assert 'unknown field "spec.cleanPodPolcy"' in said
    words = ("--validate=false", "--dry-run=server", "-o", "json")
    code, said = create(installed, "default", found, *words)
    assert code == 0
    assert "cleanPodPolcy" not in json.loads(said)["spec"]


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
