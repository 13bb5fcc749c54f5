"""The definition and the operator come and go, in any order; the old definition does as well.

Has a control plane of its own, as it removes the definition under which other tests have jobs.
There are no nodes: what a kubelet says of a pod is written by the tests.
"""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import pytest

from cluster.conftest import need_binaries, new_namespace
from cluster.control.operators import ACCOUNT, DEFINITION, NAMESPACE, ROOT, Operator, install
from cluster.control.plane import ControlPlane
from cluster.jobs import Place, condition
from paddlejobs import job, role
from paddock.operator.names import LABEL_JOB, LABEL_POD, LABEL_UID, OLD_FINALIZER

if TYPE_CHECKING:
    from collections.abc import Iterator

OPERATOR_FILE = ROOT / "deploy" / "v1" / "operator.yaml"
CRD_FILE = ROOT / "deploy" / "v1" / "crd.yaml"
QUIET_SECONDS = 3.0


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    """A control plane that no other module uses."""
    need_binaries()
    with ControlPlane() as made:
        yield made


@pytest.fixture
def place(plane: ControlPlane) -> Iterator[Place]:
    """A namespace on it."""
    with new_namespace(plane) as name:
        yield Place(plane, name)


def say(place: Place, pod: str, phase: str, **state: Any) -> None:
    """What a kubelet would say of a pod's only container."""
    is_running = phase == "Running"
    container = {"name": "paddle", "image": "i", "imageID": "", "ready": is_running,
                 "restartCount": 0, "state": state or {"running": {}}}  # fmt: skip
    status = {
        "phase": phase, "podIP": f"10.0.0.{pod[-1]}", "hostIP": "192.0.2.1",
        "conditions": [{"type": "Ready", "status": str(is_running)}],
        "containerStatuses": [container],
    }  # fmt: skip
    change = json.dumps({"status": status})
    place.kubectl("patch", "pod", pod, "--subresource=status", "--type=merge", "-p", change)


def run_all(place: Place, name: str, count: int) -> None:
    """So many pods of a job run."""
    place.soon(f"{count} pods", lambda: len(place.pods(name)) == count, name)
    for pod in place.pods(name):
        say(place, pod, "Running")


# --------------------------------------------------------------------------- the old definition


def old_definition() -> dict[str, Any]:
    """As of paddle-operator v0.3.5, with a pod schema that is a small part of its 490 kB.

    What matters: nothing unknown is kept, the pod's fields are those of some year, and there are
    no conditions, no scale, no rules.
    """
    integer, text, anything = (
        {"type": "integer"}, {"type": "string"}, {"x-kubernetes-preserve-unknown-fields": True}
    )  # fmt: skip

    def mapping(**fields: Any) -> dict[str, Any]:
        return {"type": "object", "properties": fields}

    texts = {"type": "object", "additionalProperties": text}
    words = {"type": "array", "items": text}
    container = mapping(name=text, image=text, args=words, command=words, imagePullPolicy=text)
    pod = mapping(containers={"type": "array", "items": container}, restartPolicy=text)
    template = mapping(metadata=mapping(labels=texts, annotations=texts), spec=pod)
    roles = {
        name: mapping(replicas=integer, requests=integer, limits=integer, template=template)
        for name in ("ps", "worker", "heter")
    }
    spec = mapping(
        cleanPodPolicy=text, intranet=text, withGloo=integer, elastic=integer, **roles,
        schedulingPolicy={"type": "object", **anything},
    )  # fmt: skip
    states = ("pending", "starting", "running", "failed", "succeeded", "unknown")
    refs = {"type": "array", "items": mapping(kind=text, name=text, namespace=text, uid=text)}
    counts = mapping(**dict.fromkeys(states, integer), refs=refs)
    moment = {"type": "string", "format": "date-time"}
    status = mapping(
        phase=text, mode=text, elastic=text, observedGeneration=integer, startTime=moment,
        completionTime=moment, ps=counts, worker=counts, heter=counts,
    )  # fmt: skip
    columns = [
        {"name": "Status", "type": "string", "jsonPath": ".status.phase"},
        {"name": "Mode", "type": "string", "jsonPath": ".status.mode"},
        {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
    ]
    served = {
        "name": "v1", "served": True, "storage": True, "subresources": {"status": {}},
        "additionalPrinterColumns": columns,
        "schema": {"openAPIV3Schema": mapping(
            apiVersion=text, kind=text, metadata={"type": "object"}, spec=spec, status=status
        )},
    }  # fmt: skip
    names = {"plural": "paddlejobs", "singular": "paddlejob", "kind": "PaddleJob",
             "listKind": "PaddleJobList", "shortNames": ["pdj"]}  # fmt: skip
    return {
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": DEFINITION.partition("/")[2]},
        "spec": {"group": "batch.paddlepaddle.org", "scope": "Namespaced", "names": names,
                 "versions": [served]},
    }  # fmt: skip


@pytest.fixture
def old_place(plane: ControlPlane, place: Place) -> Iterator[Place]:
    """A namespace of a cluster that still has the old definition."""
    install(plane)  # the rights
    plane.kubectl("delete", DEFINITION)
    plane.apply(old_definition())
    plane.kubectl("wait", "--for=condition=Established", DEFINITION, "--timeout=60s")
    yield place
    plane.kubectl("delete", DEFINITION, "--ignore-not-found")


@pytest.mark.parametrize("intranet", ["PodIP", "DNS"])
def test_under_the_old_definition_jobs_run_and_status_is_written_once(
    intranet: str, old_place: Place, plane: ControlPlane
) -> None:
    """It drops what it does not know; comparing with what was sent would never come to rest."""
    with Operator(plane) as operator:
        old_place.make("old", intranet=intranet, ps=role(1), worker=role(2))
        run_all(old_place, "old", 3)
        status = old_place.wait("old", "Running")
        assert (status["mode"], status["worker"]["running"]) == ("PS", 2)
        assert not {"conditions", "message", "attempt"} & set(status)
        version = old_place.job("old")["metadata"]["resourceVersion"]
        time.sleep(QUIET_SECONDS)  # sleep: shows that nothing happens
        assert old_place.job("old")["metadata"]["resourceVersion"] == version
        # A pod that is taken away: the gang begins again, without a count of it.
        before = old_place.uids("old")
        old_place.kubectl("delete", "pod", "old-worker-1", "--wait=false")
        old_place.soon("all are new", lambda: are_new(old_place, "old", before), "old")
        run_all(old_place, "old", 3)
        old_place.wait("old", "Running")
        for pod in ("old-worker-0", "old-worker-1"):
            say(old_place, pod, "Succeeded", terminated={"exitCode": 0})
        status = old_place.wait("old", "Completed")
        assert status["completionTime"]
        old_place.soon("nothing is left", lambda: not old_place.pods("old"), "old")
        time.sleep(QUIET_SECONDS)  # sleep: the counts of pods that are gone come after them
        version = old_place.job("old")["metadata"]["resourceVersion"]
        time.sleep(QUIET_SECONDS)  # sleep: shows that nothing happens
        assert old_place.job("old")["metadata"]["resourceVersion"] == version
        # One that has never had a sound spec: nothing of it may stop the others.
        old_place.make("bad", worker={"replicas": -1})
        old_place.wait("bad", "Failed")
        assert operator.bugs() == [], operator.tail()


def are_new(place: Place, name: str, before: dict[str, str]) -> bool:
    """Whether a job has as many pods as before, and none of them is one from before."""
    now = place.uids(name)
    return set(now) == set(before) and not set(now.values()) & set(before.values())


def test_the_new_definition_may_replace_the_old_one_under_running_jobs(
    old_place: Place, plane: ControlPlane
) -> None:
    """kubectl apply of our file is the upgrade; the operator needs no restart for it."""
    with Operator(plane) as operator:
        old_place.make("stays", worker=role(2))
        run_all(old_place, "stays", 2)
        old_place.wait("stays", "Running")
        before = old_place.uids("stays")
        plane.kubectl("apply", "-f", CRD_FILE)
        old_place.kubectl("label", "pdj", "stays", "touched=yes")

        def is_rich() -> bool:
            return condition(old_place.status("stays"), "Running").get("status") == "True"

        old_place.soon("there are conditions", is_rich, "stays")
        assert old_place.uids("stays") == before
        old_place.kubectl("wait", "--for=condition=Running", "pdj/stays", "--timeout=30s")
        assert operator.bugs() == [], operator.tail()


# ------------------------------------------------------------------------------- coming and going


def with_old_finalizer(name: str) -> dict[str, Any]:
    """A job that paddle-operator had in its hands."""
    made = job(name, worker=role(2))
    made["metadata"]["finalizers"] = [OLD_FINALIZER]
    return made


def let_the_collector_learn(place: Place) -> None:
    """Kubernetes' collector asks every 30 s which kinds there are.

    What belongs to a kind that came and went in between, it cannot judge, and leaves.
    """
    place.make("canary", worker=role(1))
    place.soon("a pod", lambda: place.pods("canary"))
    place.kubectl("delete", "pdj", "canary")
    place.soon("its pod is collected", lambda: not place.pods("canary"))


@pytest.mark.limit(600)
def test_the_definition_may_go_first_and_come_back(place: Place, plane: ControlPlane) -> None:
    """With it go all jobs and their pods; the operator waits for it, and goes on with new jobs."""
    install(plane)
    with Operator(plane) as operator:
        pid = operator.pid
        let_the_collector_learn(place)
        place.apply(with_old_finalizer("was-old"), job("new", worker=role(2)))
        place.soon("pods", lambda: len(place.pods()) == 4)
        place.soon("no finalizer", lambda: "finalizers" not in place.job("was-old")["metadata"])
        plane.kubectl("delete", DEFINITION, "--timeout=60s")
        place.soon("all pods are collected", lambda: not place.pods())
        place.soon("all services are collected", lambda: not place.all("services"))
        install(plane)
        place.make("next", worker=role(2))
        place.soon("pods again", lambda: len(place.pods("next")) == 2)
        assert operator.pid == pid
        assert operator.bugs() == [], operator.tail()


@pytest.mark.limit(600)
def test_the_operator_may_go_first(place: Place, plane: ControlPlane) -> None:
    """Nothing of a job needs it in order to be deleted; afterwards everything can be made again."""
    install(plane)
    with Operator(plane):
        place.apply(with_old_finalizer("was-old"), job("new", worker=role(2)))
        place.soon("pods", lambda: len(place.pods()) == 4)
        place.soon("no finalizer", lambda: "finalizers" not in place.job("was-old")["metadata"])
    plane.kubectl("delete", "-f", OPERATOR_FILE, "--ignore-not-found", "--timeout=90s")
    place.kubectl("delete", "pdj", "new", "--timeout=30s")
    place.soon("its pods are collected", lambda: not place.pods("new"))
    assert len(place.pods("was-old")) == 2
    plane.kubectl("delete", "-f", CRD_FILE, "--timeout=60s")
    place.soon("all pods are collected", lambda: not place.pods())


def test_labels_that_are_missing_are_given_back(place: Place, plane: ControlPlane) -> None:
    """paddle-operator's Services have none, and people remove them: the caches select by label."""
    install(plane)
    lost = {"svc/a-worker-0": LABEL_JOB, "pod/a-worker-0": LABEL_UID, "pod/a-worker-1": LABEL_POD}
    with Operator(plane) as operator:
        place.make("a", worker=role(2), intranet="Service")
        place.soon("services", lambda: len(place.all("services")) == 3)
        run_all(place, "a", 2)
        place.wait("a", "Running")
        before = place.uids("a")
        for thing, label in lost.items():
            place.kubectl("label", thing, f"{label}-")
            want = f"--for=jsonpath={{.metadata.labels.{label.replace('.', chr(92) + '.')}}}"
            place.kubectl("wait", want, thing, "--timeout=10s")
        assert len(place.all("services")) == 3
        assert place.uids("a") == before
        assert place.status("a")["restarts"] == 0
        assert operator.bugs() == [], operator.tail()


def test_a_namespace_with_jobs_can_be_deleted(place: Place, plane: ControlPlane) -> None:
    """Nothing is made in it any more, and nobody has to wait."""
    install(plane)
    with new_namespace(plane) as name, Operator(plane) as operator:
        doomed = Place(plane, name)
        doomed.apply(with_old_finalizer("was-old"), job("new", worker=role(4)))
        place.make("elsewhere", worker=role(2))
        doomed.soon("pods", lambda: doomed.pods())
        plane.kubectl("delete", "namespace", name, "--timeout=90s")
        place.soon("pods elsewhere", lambda: len(place.pods("elsewhere")) == 2)
        assert operator.bugs() == [], operator.tail()
        plane.kubectl("create", "namespace", name)  # new_namespace wants to delete it


def test_the_operators_token_is_held_to_objects_of_jobs(place: Place, plane: ControlPlane) -> None:
    """A role alone would make whoever has the token the master of every node."""
    install(plane)
    config = ("--kubeconfig", str(plane.kubeconfig_as(NAMESPACE, ACCOUNT)))

    def refused(*words: str, stdin: str | None = None) -> str:
        """What kubectl says with the operator's token; "" when it may."""
        done = plane.kubectl(*config, "-n", place.namespace, *words, check=False, stdin=stdin)
        return done.stderr if done.returncode else ""

    pod: dict[str, Any] = {
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "own"},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    }  # fmt: skip
    ask = ("create", "--dry-run=server", "-f", "-")
    only = "may only make what a PaddleJob controls"
    place.soon("the rule holds", lambda: only in refused(*ask, stdin=json.dumps(pod)))
    for thing in ("configmap", "service clusterip --tcp=80"):
        kind, *more = thing.split()
        assert only in refused("create", kind, *more[:1], "own", *more[1:])
    owner: dict[str, Any] = {
        "apiVersion": "kubeflow.org/v1", "kind": "PaddleJob", "name": "a", "uid": "u",
        "controller": True,
    }  # fmt: skip
    for change in ({}, {"apiVersion": "batch.paddlepaddle.org/v1", "controller": False}):
        pod["metadata"]["ownerReferences"] = [{**owner, **change}]
        assert only in refused(*ask, stdin=json.dumps(pod))
    place.kubectl("create", "configmap", "theirs")
    assert "only touch what a PaddleJob" in refused("delete", "configmap", "theirs")
    patch = ("--type=merge", "-p", '{"data":{"a":"b"}}')
    assert "a PaddleJob controls" in refused("patch", "configmap", "theirs", *patch)
    with Operator(plane) as operator:
        place.make("own", worker=role(2), ps=role(1), intranet="Service")
        run_all(place, "own", 3)
        place.wait("own", "Running")
        privileged = '{"spec":{"worker":{"replicas":3}}}'
        words = ("patch", "pdj", "own", "--type=merge", "-p", privileged)
        assert "may not change the spec of a PaddleJob" in refused(*words)
        before = {*place.uids("own").values()}
        place.kubectl("scale", "pdj/own", "--replicas=1")
        place.soon("other pods", lambda: before.isdisjoint(place.uids("own").values()), "own")
        run_all(place, "own", 2)
        place.wait("own", "Running")
        place.kubectl("label", "svc/own-ps-0", f"{LABEL_JOB}-")
        place.soon("its label is back", lambda: len(place.all("services", "own")) == 3, "own")
        place.kubectl("delete", "pdj", "own", "--timeout=30s")
        place.soon("its pods are collected", lambda: not place.pods("own"))
        assert operator.bugs() == [], operator.tail()
        said = [line for line in operator.lines() if "denied request" in line]
        assert said == []
