"""What a cluster says, and the state it is: a row each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from paddock.backends.kubernetes.api import explained
from paddock.backends.kubernetes.objects import STOPPED
from paddock.backends.kubernetes.parse import (
    PHASES,
    VOLCANO_PHASES,
    ObservedJob,
    hopeless,
    pod_state,
    status_of,
)
from paddock.core.attempt.exits import Exit
from paddock.core.attempt.termination import termination_message
from paddock.kube.client import KubeError
from paddock.kube.objects import Pod

if TYPE_CHECKING:
    from paddock.backends.types import JobStatus, State

NAMES = ("a-0", "a-1")
SENTENCE = "rank 1 on a-1 exited with code 7"


def pod(index: int, phase: str = "Running", *, age: int = 0, **more: Any) -> Pod:
    """A pod of an Indexed Job; more: deletionTimestamp, nodeName, waiting, exit, message, ..."""
    state: dict[str, Any] = {}
    if "waiting" in more:
        state["waiting"] = {"reason": more["waiting"], "message": more.get("message", "")}
    if "code" in more:
        state["terminated"] = {
            "exitCode": more["code"], "message": more.get("message", ""),
            "reason": more.get("reason", "Error"),
            "finishedAt": f"2026-01-01T00:00:{more.get('ended', 10)}Z",
        }  # fmt: skip
    conditions = [{"type": kind, "status": said, "reason": more.get("gate")}
                  for kind, said in more.get("says", ())]  # fmt: skip
    if "unscheduled" in more:
        conditions = [{"type": "PodScheduled", "status": "False", "message": more["unscheduled"],
                       "reason": more.get("reason", "Unschedulable")}]  # fmt: skip
    told = {
        "metadata": {
            "name": f"a-{index}-x{age}yz", "creationTimestamp": f"2026-01-01T00:00:0{age}Z",
            "labels": {"batch.kubernetes.io/job-completion-index": str(index)},
            "deletionTimestamp": more.get("deleted"),
        },
        "spec": {"nodeName": more.get("node", "n1")},
        "status": {
            "phase": phase, "conditions": conditions, "reason": more.get("evicted"),
            "containerStatuses": [{"name": "paddock", "state": state}] if state else [],
        },
    }  # fmt: skip
    return msgspec.convert(told, Pod)


def job(*conditions: str, stopped: bool = False, suspended: bool = False, **meta: Any) -> Any:
    annotations = {STOPPED: "now"} if stopped else {}
    found = [{"type": c, "status": "True", "message": "a message"} for c in conditions]
    return {
        "metadata": {"annotations": annotations, **meta},
        "spec": {"suspend": suspended},
        "status": {"conditions": found},
    }


def seen(top: Any, *pods: Pod, form: str = "job", events: tuple[str, ...] = ()) -> JobStatus:
    return status_of(ObservedJob(form, top, pods, NAMES, {"worker": 2}, 100.0, events))


RUNNING = (pod(0), pod(1))
NOT_READY = (("Ready", "False"), ("ContainersReady", "True"))
LOST_POD = pod(1, says=NOT_READY)
ELASTIC = {**job(), "spec": {"podFailurePolicy": {}}}
ROWS: tuple[tuple[str, Any, tuple[Pod, ...], State], ...] = (
    ("it is gone", None, (), "lost"),
    ("nothing yet", job(), (), "pending"),
    ("no node yet", job(), (pod(0, "Pending", node=""), pod(1, "Pending", node="")), "pending"),
    ("one has a node", job(), (pod(0, "Pending"), pod(1, "Pending", node="")), "starting"),
    ("one of two runs", job(), (pod(0), pod(1, "Pending")), "starting"),
    ("both run", job(), RUNNING, "running"),
    ("one has ended, one runs", job(), (pod(0, "Succeeded", code=0), pod(1)), "running"),
    ("a node is lost", job(), (pod(0), LOST_POD), "running"),
    ("a node is lost, the other has failed", job(), (pod(0, "Failed"), LOST_POD), "failed"),
    ("the same, and it is elastic", ELASTIC, (pod(0, "Failed"), LOST_POD), "unknown"),
    ("all nodes are lost", job(), (pod(0, says=NOT_READY), LOST_POD), "unknown"),
    ("stopped, and a node is lost", job(stopped=True, suspended=True), (LOST_POD,), "stopping"),
    ("complete", job("SuccessCriteriaMet", "Complete"), RUNNING, "succeeded"),
    ("failed", job("FailureTarget", "Failed"), (pod(0, "Failed", code=7),), "failed"),
    ("stopped, pods end", job(stopped=True, suspended=True), (pod(0, deleted="x"),), "stopping"),
    ("stopped, pods ended", job(stopped=True, suspended=True), (), "cancelled"),
    ("stopped, then failed", job("Failed", stopped=True), (), "cancelled"),
    ("stopped when it had succeeded", job("Complete", stopped=True), (), "succeeded"),
    ("suspended by somebody", job(suspended=True), (), "pending"),
    ("being deleted", job(deletionTimestamp="x"), RUNNING, "stopping"),
)


@pytest.mark.parametrize("row", ROWS, ids=[row[0] for row in ROWS])
def test_an_indexed_job_is_in_the_state_of_the_table(
    row: tuple[str, Any, tuple[Pod, ...], State],
) -> None:
    _, top, pods, state = row
    found = seen(top, *pods)
    assert found.state == state
    assert found.as_of == 100.0


@pytest.mark.parametrize(("phase", "state"), PHASES.items())
def test_a_paddle_job_is_what_its_phase_says(phase: str, state: State) -> None:
    top = {"metadata": {}, "spec": {}, "status": {"phase": phase, "attempt": 2}}
    found = seen(top, form="paddlejob")
    assert (found.state, found.attempt) == (state, 2)


@pytest.mark.parametrize(("phase", "state"), VOLCANO_PHASES.items())
def test_a_job_of_volcano_is_what_its_phase_says(phase: str, state: State) -> None:
    top = {"metadata": {}, "spec": {}, "status": {"state": {"phase": phase}}}
    assert seen(top, form="volcano-job").state == state


@pytest.mark.parametrize(
    ("phase", "state"),
    [("Pending", "stopping"), ("Running", "stopping"), ("Aborted", "cancelled")],
)
def test_a_stopped_job_of_volcano_ends_before_volcano_says_so(phase: str, state: State) -> None:
    """Its Command is read a second later: who deletes the job meanwhile waits for that."""
    meta = {"annotations": {STOPPED: "2026-01-01T00:00:00Z"}}
    top: Any = {"metadata": meta, "spec": {}, "status": {"state": {"phase": phase}}}
    assert seen(top, form="volcano-job").state == state


def test_a_phase_that_nobody_knows_is_unknown() -> None:
    top: Any = {"metadata": {}, "spec": {}, "status": {"phase": "Resting"}}
    assert seen(top, form="paddlejob").state == "unknown"


PHASE_ROWS: tuple[tuple[Pod, State], ...] = (
    (pod(0, "Pending", node=""), "pending"),
    (pod(0, "Pending"), "starting"),
    (pod(0, "Running"), "running"),
    (pod(0, "Running", deleted="x"), "stopping"),
    (pod(0, "Succeeded"), "succeeded"),
    (pod(0, "Failed"), "failed"),
    (pod(0, "Failed", deleted="x"), "failed"),
    (pod(0, "Unknown"), "unknown"),
    (LOST_POD, "unknown"),
    (pod(0, says=(("Ready", "True"), ("ContainersReady", "True"))), "running"),
    (pod(0, says=(("Ready", "False"), ("ContainersReady", "False"))), "running"),
    (pod(0, says=NOT_READY, gate="ReadinessGatesNotReady"), "running"),
)


@pytest.mark.parametrize(("one", "state"), PHASE_ROWS)
def test_a_pod_is_a_node_of_the_job(one: Pod, state: State) -> None:
    assert pod_state(one) == state


def test_the_first_to_fail_gives_code_and_sentence() -> None:
    found = seen(
        job("Failed"),
        pod(0, "Failed", code=143, ended=20, message="stopped by SIGTERM"),
        pod(1, "Failed", code=7, ended=15, message=f"{SENTENCE}\n"),
    )
    assert (found.code, found.why) == (7, "a-1: rank 1 on a-1 exited with code 7")


def test_a_launcher_that_was_killed_is_told_by_the_last_line_of_its_log() -> None:
    one = pod(1, "Failed", code=137, message="loss 0.1\n  loss 0.2\n")
    assert seen(job("Failed"), one).why == "a-1: loss 0.2"


def test_a_pod_without_memory_is_told_as_such() -> None:
    found = seen(job("Failed"), pod(0, "Failed", code=137, reason="OOMKilled"))
    assert (found.code, found.why) == (137, "a-0: OOMKilled, exit code 137")


def test_what_a_job_waits_for_is_said_with_the_schedulers_words() -> None:
    found = seen(job(), pod(0, "Pending", node="", unscheduled="0/2 nodes: Insufficient gpu"))
    assert found.why == "a-0: Unschedulable: 0/2 nodes: Insufficient gpu"


def test_the_pod_that_does_not_fit_is_named_before_those_that_would() -> None:
    """Volcano says Schedulable of pods that wait for another one of their gang only."""
    fits = pod(0, "Pending", node="", unscheduled="can be assigned to n1", reason="Schedulable")
    found = seen(job(), fits, pod(1, "Pending", node="", unscheduled="0/2 nodes: no cpu"))
    assert found.why == "a-1: Unschedulable: 0/2 nodes: no cpu"


def test_pods_that_could_not_be_made_are_told_by_the_events() -> None:
    assert seen(job(), events=("exceeded quota: small",)).why == "exceeded quota: small"


def test_an_image_that_does_not_come_is_hopeless_and_an_address_that_is_awaited_is_not() -> None:
    config = "CreateContainerConfigError"
    image = pod(0, "Pending", waiting="ErrImagePull", message="no such image")
    gate = pod(0, "Pending", waiting=config, message='configmap "a" not found')
    key = pod(0, "Pending", waiting=config, message='secret "k" not found')
    assert "no such image" in hopeless([image])
    assert hopeless([gate]) == ""
    assert "secret" in hopeless([key])
    slow = "failed to sync secret cache: timed out waiting for the condition"
    assert hopeless([pod(0, "Pending", waiting=config, message=slow)]) == ""


def test_a_pod_that_was_made_again_counts_and_not_the_one_before() -> None:
    found = seen(job(), pod(0, "Failed", age=0, code=1), pod(0, age=1), pod(1))
    assert [node.state for node in found.nodes] == ["running", "running"]
    assert found.ranks_up == 4
    assert [rank.rank for node in found.nodes for rank in node.ranks] == [0, 1, 2, 3]


def test_servers_of_a_pod_are_told_beside_its_trainers() -> None:
    roles = {"server": 1, "worker": 2}
    found = status_of(ObservedJob("job", job(), RUNNING, NAMES, roles, 100.0))
    assert [(rank.role, rank.rank) for rank in found.nodes[1].ranks] == [
        ("server", 1), ("worker", 2), ("worker", 3),
    ]  # fmt: skip


def test_a_pod_of_one_process_has_it_in_its_name() -> None:
    names = ("a-ps-0", "a-worker-1", "a-pserver-2", "a-trainer-3")
    pods = [msgspec.convert({"metadata": {"name": name}, "status": {"phase": "Running"}}, Pod)
            for name in names]  # fmt: skip
    top: Any = {"metadata": {}, "spec": {}, "status": {"phase": "Running"}}
    found = status_of(ObservedJob("paddlejob", top, pods, names, {}, 100.0))
    assert [(rank.role, rank.rank) for node in found.nodes for rank in node.ranks] == [
        ("server", 0), ("worker", 1), ("server", 2), ("worker", 3),
    ]  # fmt: skip


def test_what_a_container_said_cannot_move_the_cursor() -> None:
    said = "\x1b[2Jpaddock: error: \x1b]0;x\x07 y"
    found = seen(job("Failed"), pod(0, "Failed", code=1, message=said))
    assert found.why.isprintable()


def test_a_node_whose_pod_is_gone_will_not_come_when_the_job_has_ended() -> None:
    ended = pod(0, "Failed", code=143, message="told to stop")
    found = seen(job("Failed"), ended)
    assert [node.state for node in found.nodes] == ["failed", "lost"]
    assert found.why == "a-0: told to stop"


REFUSALS = (
    (403, "Forbidden", 'pods "a" is forbidden: exceeded quota: q', "quota of namespace 'ml'"),
    (403, "Forbidden", 'User "x" cannot create', "may not do this in namespace 'ml'"),
    (404, "NotFound", 'namespaces "ml" not found', "namespace 'ml' does not exist"),
    (404, "NotFound", "the server could not find the requested resource", "no such thing"),
    (409, "AlreadyExists", 'jobs "a" already exists', "the name is in use"),
    (401, "Unauthorized", "Unauthorized", "does not accept your credentials"),
    (422, "Invalid", "spec.x: Invalid value", "refused: spec.x"),
)


@pytest.mark.parametrize(("status", "reason", "said", "told"), REFUSALS)
def test_a_refusal_is_one_sentence_of_the_users_world(
    status: int, reason: str, said: str, told: str
) -> None:
    error = explained(KubeError(said, status=status, reason=reason), "create Job a", "ml")
    assert told in error.message
    assert error.exit_code == 2


def test_the_launchers_own_words_decide_which_pod_is_to_blame() -> None:
    """Both ended within the same second, and rank 0 did not fail."""
    end = Exit("worker", 1, 1, "a-1", 0, 0, code=7, tail="ValueError: no")
    victim = Exit("worker", 0, 0, "a-0", 0, 0, signal=15, by_us=True)
    messages = [termination_message(SENTENCE, end, (victim, end), node) for node in (0, 1)]
    pods = [pod(i, "Failed", code=7, message=text) for i, text in enumerate(messages)]
    found = seen(job("Failed"), *pods)
    assert (found.code, found.why) == (7, f"a-1: {SENTENCE}")
    assert found.culprit is not None
    assert (found.culprit.rank, found.culprit.host) == (1, "a-1")
    ranks = [rank for node in found.nodes for rank in node.ranks]
    assert [(r.rank, r.state, r.code) for r in ranks] == [(0, "ended", 143), (1, "failed", 7)]
    late = seen(job("Failed"), pods[0], pod(1, "Running"))
    assert late.why == f"a-1: {SENTENCE}"
