"""What the API server does not let the operator do, and what is not the operator's to touch."""

from __future__ import annotations

import json
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from cluster.conftest import new_namespace
from cluster.jobs import Place, condition

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from cluster.control.plane import ControlPlane
    from cluster.jobs import Probes

GROUP = "batch.paddlepaddle.org"
POLICIES = "admissionregistration.k8s.io/v1"


def expect_told(status: Mapping[str, Any], reason: str, *words: str) -> None:
    """The reason and the words are where people look: message, condition."""
    created = condition(status, "PodsCreated")
    assert (status["reason"], created["status"], created["reason"]) == (reason, "False", reason)
    for word in words:
        assert word in status["message"] and word in created["message"]


def foreign_pod(name: str, image: str, **metadata: Any) -> dict[str, Any]:
    """A pod that somebody else has made."""
    container = {"name": "main", "image": image, "imagePullPolicy": "Never", "args": ["sleep"]}
    return {
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, **metadata},
        "spec": {"containers": [container], "terminationGracePeriodSeconds": 1},
    }  # fmt: skip


def test_a_job_above_the_quota_says_so_and_starts_when_there_is_room(
    place: Place, probes: Probes
) -> None:
    """The commonest refusal in a shared cluster; nobody has to make the job again."""
    place.kubectl("create", "quota", "few", "--hard=pods=2")
    place.kubectl("wait", "--for=jsonpath={.status.used.pods}=0", "quota/few", "--timeout=60s")
    place.make("big", worker=probes.role(3, "say trained"))
    status = place.wait("big", reason="QuotaExceeded")
    assert status["phase"] == "Pending"
    expect_told(status, "QuotaExceeded", "cannot create Pod big-worker-", "exceeded quota: few")
    assert "QuotaExceeded" in place.kubectl("get", "pdj", "big", "-o", "wide")
    place.patch("few", {"hard": {"pods": "3"}}, kind="quota")
    status = place.wait("big", "Completed")
    assert (status["attempt"], condition(status, "PodsCreated")["status"]) == (0, "True")


@contextmanager
def made(plane: ControlPlane, *objects: dict[str, Any]) -> Iterator[None]:
    """Objects that are there for a while."""
    plane.apply(*objects)
    try:
        yield
    finally:
        plane.kubectl("delete", "-f", "-", stdin="\n---\n".join(map(json.dumps, objects)))


def policy(namespace: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """An administrator's rule that no pod of a namespace fulfils, and its binding."""
    name, rule = f"cost-{namespace}", {"expression": "false", "message": "no cost centre"}
    pods = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"],
            "resources": ["pods"]}  # fmt: skip
    matching = {"matchLabels": {"kubernetes.io/metadata.name": namespace}}
    resources = {"resourceRules": [pods], "namespaceSelector": matching}
    return (
        {"apiVersion": POLICIES, "kind": "ValidatingAdmissionPolicy", "metadata": {"name": name},
         "spec": {"matchConstraints": resources, "validations": [rule]}},
        {"apiVersion": POLICIES, "kind": "ValidatingAdmissionPolicyBinding",
         "metadata": {"name": name},
         "spec": {"policyName": name, "validationActions": ["Deny"]}},
    )  # fmt: skip


def webhook(namespace: str, where: Mapping[str, Any]) -> dict[str, Any]:
    """A webhook for the pods of a namespace where nobody answers, as Kueue's when it is down."""
    pods = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"],
            "resources": ["pods"]}  # fmt: skip
    return {
        "apiVersion": POLICIES, "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": f"gone-{namespace}"},
        "webhooks": [{
            "name": "gone.test.paddlepaddle.org", "rules": [pods], "sideEffects": "None",
            "clientConfig": where, "failurePolicy": "Fail",
            "admissionReviewVersions": ["v1"], "timeoutSeconds": 2,
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
        }],
    }  # fmt: skip


def test_a_rule_of_the_administrator_is_shown_until_it_is_lifted(
    place: Place, probes: Probes
) -> None:
    """Refused by a ValidatingAdmissionPolicy: a job's template may be right all the same."""
    with made(place.plane, *policy(place.namespace)):
        refused = (
            "create", "--dry-run=server", "-f", "-"
        )  # fmt: skip
        text = json.dumps(foreign_pod("try", probes.image))
        place.soon(
            "the rule holds", lambda: "denied" in place.kubectl(*refused, check=False, stdin=text)
        )
        place.make("ruled", worker=probes.role(1, "say trained"))
        status = place.wait("ruled", reason="PolicyRefused")
        assert status["phase"] == "Pending"
        expect_told(status, "PolicyRefused", "no cost centre", f"cost-{place.namespace}")
    place.wait("ruled", "Completed")


@pytest.mark.parametrize("kind", ["url", "service"])
def test_a_webhook_that_does_not_answer_is_named(kind: str, place: Place, probes: Probes) -> None:
    """Its owner has to act; the job goes on as soon as it answers, or is gone."""
    ask = ("create", "--dry-run=server", "-f", "-")
    text = json.dumps(foreign_pod("try", probes.image))
    where: dict[str, Any] = {"url": "https://127.0.0.1:9/pods"}
    words = ["connection refused", "kubectl get mutatingwebhookconfigurations"]
    if kind == "service":  # nothing runs behind it
        place.kubectl("create", "service", "clusterip", "queue", "--tcp=443")
        where = {"service": {"namespace": place.namespace, "name": "queue", "path": "/pods"}}
        words = ["queue", f"kubectl -n {place.namespace} get pods"]
    with made(place.plane, webhook(place.namespace, where)):
        place.soon(
            "it is called", lambda: "failed calling" in place.kubectl(*ask, check=False, stdin=text)
        )
        place.make("hooked", worker=probes.role(1, "say trained"))
        status = place.wait("hooked", reason="WebhookFailed")
        assert status["phase"] == "Pending"
        expect_told(
            status, "WebhookFailed", "gone.test.paddlepaddle.org", "goes on by itself", *words
        )
        place.told("hooked", "until this webhook answers, the API server accepts no Pod")
    place.wait("hooked", "Completed")


def test_a_template_that_can_never_be_a_pod_fails_until_it_is_mended(
    place: Place, probes: Probes
) -> None:
    """The schema lets any pod template in; the API server knows better when a pod is made of it."""
    mounts = [{"name": "data", "mountPath": "/data"}]
    role = probes.role(2, "say trained", container={"volumeMounts": mounts})
    place.make("mount", worker=role)
    status = place.wait("mount", "Failed")
    assert status["reason"] == "InvalidTemplate"
    assert 'spec.containers[0].volumeMounts[0].name: Not found: "data"' in status["message"]
    assert condition(status, "Valid")["status"] == "False"
    place.kubectl("wait", "--for=condition=Failed", "pdj/mount", "--timeout=10s")
    assert not place.pods("mount")
    role["template"]["spec"]["volumes"] = [{"name": "data", "emptyDir": {}}]
    place.make("mount", worker=role)
    status = place.wait("mount", "Completed")
    assert condition(status, "Valid")["status"] == "True"


def test_a_running_job_that_is_scaled_with_a_typo_goes_on(place: Place, probes: Probes) -> None:
    """Its workers were deleted, and the job failed: a typo cost all that had been computed."""
    place.make("grow", worker=probes.role(2, "sleep"))
    place.wait("grow", "Running")
    before = place.uids("grow")
    mounts = [{"name": "data", "mountPath": "/data"}]
    place.make("grow", worker=probes.role(3, "sleep", container={"volumeMounts": mounts}))
    status = place.wait("grow", "Running", reason="InvalidTemplate")
    assert 'volumeMounts[0].name: Not found: "data"' in status["message"]
    assert (status["attempt"], status["ready"], place.uids("grow")) == (0, "2/2", before)
    generation = place.job("grow")["metadata"]["generation"]
    assert condition(status, "Valid")["observedGeneration"] == generation
    place.make("grow", worker=probes.role(3, "sleep"))
    status = place.wait("grow", "Running", until=lambda s: s["ready"] == "3/3")
    assert (status["attempt"], status["restarts"]) == (1, 0)


def test_a_running_job_asks_a_quota_before_it_begins_again(place: Place, probes: Probes) -> None:
    """Larger than allowed it goes on as it is; smaller it may be, though the quota is used up."""
    place.make("size", worker=probes.role(2, "sleep"))
    place.wait("size", "Running")
    before = place.uids("size")
    place.kubectl("create", "quota", "few", "--hard=pods=2")
    place.kubectl("wait", "--for=jsonpath={.status.used.pods}=2", "quota/few", "--timeout=60s")
    place.kubectl("scale", "pdj/size", "--replicas=3")
    status = place.wait("size", "Running", reason="QuotaExceeded")
    expect_told(status, "QuotaExceeded", "cannot create Pod size-worker-2", "exceeded quota: few")
    assert (status["attempt"], status["ready"], place.uids("size")) == (0, "2/2", before)
    place.kubectl("scale", "pdj/size", "--replicas=1")
    status = place.wait("size", "Running", until=lambda s: s["ready"] == "1/1")
    assert status["attempt"] == 1


def test_pods_that_end_for_a_size_without_room_are_announced(place: Place, probes: Probes) -> None:
    """They ended without a word, and the job waited with none; nobody said how to go back."""
    place.make("wide", worker=probes.role(2, "sleep"))
    place.wait("wide", "Running")
    nowhere = {"nodeSelector": {"paddock.test/none": "none"}}
    place.make("wide", worker=probes.role(3, "sleep", pod=nowhere))
    place.wait("wide", reason="Unschedulable")
    place.told("wide", "AllBeginAgain: scaling from 2 to 3 pods")
    place.told("wide", "the 2 running pods end before those start")
    said = [event.partition(":")[0] for event in place.events("wide")]
    assert said.index("AllBeginAgain") < said.index("Scaled")
    place.make("wide", worker=probes.role(2, "sleep"))
    place.wait("wide", "Running", until=lambda s: s["ready"] == "2/2")


def test_a_node_that_does_not_exist_is_named(place: Place, probes: Probes) -> None:
    """No scheduler looks at a pod that names its node: it stayed Pending without a word."""
    # With grace there is nobody to end it: Kubernetes removes such a pod a minute later.
    pod = {"nodeName": "nowhere", "terminationGracePeriodSeconds": 0}
    place.make("lost", worker=probes.role(1, "say trained", pod=pod))
    status = place.wait("lost", "Pending", reason="NodeSilent")
    assert "worker-0 on nowhere waits: NodeSilent" in status["message"]
    assert "is there such a node?" in status["message"]
    place.kubectl("patch", "pdj", "lost", "--type=json", "-p", json.dumps(
        [{"op": "remove", "path": "/spec/worker/template/spec/nodeName"}]
    ))  # fmt: skip
    place.wait("lost", "Completed")


@pytest.mark.parametrize("kind", ["Pod", "Service", "ConfigMap"])
def test_an_object_of_somebody_else_with_our_name_is_reported_and_left_alone(
    kind: str, place: Place, probes: Probes
) -> None:
    """Adopted, it would be deleted with the job."""
    name = "mine-worker-0" if kind == "Pod" else "mine"
    objects = {
        "Pod": foreign_pod(name, probes.image),
        "Service": {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name},
                    "spec": {"ports": [{"port": 80}]}},
        "ConfigMap": {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}},
    }  # fmt: skip
    place.apply(objects[kind])
    path = ("get", kind, name, "-o", "jsonpath={.metadata.uid} {.metadata.labels}")
    before = place.kubectl(*path)
    place.make("mine", worker=probes.role(2, "say trained"))
    status = place.wait("mine", reason="NameTaken")
    assert (
        f"{kind} {name} exists and belongs to somebody else; it is left alone" in status["message"]
    )
    assert place.kubectl(*path) == before
    place.kubectl("delete", kind, name, "--now")
    status = place.wait("mine", "Completed")
    assert status["restarts"] == 0


def test_a_job_of_the_same_name_elsewhere_is_another_job(place: Place, probes: Probes) -> None:
    """Names are those of a namespace: nothing that happens to one shows in the other.

    A pod of another namespace may claim to be owned by the job: it is not believed.
    """
    with new_namespace(place.plane) as name:
        other = Place(place.plane, name)
        for each in (place, other):
            each.make("same", worker=probes.role(2, "sleep"))
        for each in (place, other):
            each.wait("same", "Running")
        uid = place.job("same")["metadata"]["uid"]
        claim = {
            "labels": {f"{GROUP}/job-name": "same", f"{GROUP}/job-uid": uid},
            "ownerReferences": [{"apiVersion": f"{GROUP}/v1", "kind": "PaddleJob", "name": "same",
                                 "uid": uid, "controller": True}],
            "finalizers": ["test.paddlepaddle.org/stay"],
        }  # fmt: skip
        other.apply(foreign_pod("same-worker-5", probes.image, **claim))
        before = place.uids("same"), other.uids("same")
        other.kubectl("delete", "pdj", "same")
        other.soon("its pods are gone", lambda: set(other.uids("same")) == {"same-worker-5"})
        assert place.uids("same") == before[0]
        place.kubectl("delete", "pod", "same-worker-0", "--wait=false")  # nothing holds the next
        status = place.wait("same", "Running", until=lambda s: s["attempt"] == 1)
        assert (status["ready"], status["worker"]["running"]) == ("2/2", 2)
        gone = json.dumps({"metadata": {"finalizers": None}})
        other.kubectl("patch", "pod", "same-worker-5", "--type=merge", "-p", gone)


def test_labels_alone_make_no_pod_a_part_of_a_job(place: Place, probes: Probes) -> None:
    """Anybody can write labels: such a pod is neither counted, nor deleted, nor waited for."""
    place.make("real", worker=probes.role(2, "sleep"))
    place.wait("real", "Running")
    labels = place.pods("real")["real-worker-1"]["metadata"]["labels"]
    place.apply(foreign_pod("liar", probes.image, labels=labels))
    place.kubectl("wait", "--for=condition=Ready", "pod/liar", "--timeout=60s")
    place.kubectl("scale", "pdj/real", "--replicas=1")
    status = place.wait("real", "Running", until=lambda s: s["ready"] == "1/1")
    assert status["worker"]["running"] == 1
    assert set(place.pods("real")) == {"liar", "real-worker-0"}
