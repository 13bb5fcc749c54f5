"""Programs that fail, in real containers: who is to blame, what follows, and what people read.

All jobs of this file are made at once and run beside one another; each test is about one.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest

from cluster.jobs import condition
from paddlejobs import job

if TYPE_CHECKING:
    from cluster.jobs import Place, Probes

MISSING = "registry.invalid/none:1"
ONE_FAILS = "say step 1 then as 1 fail 3 RuntimeError: no data then sleep"


def rule(action: str, *codes: int) -> dict[str, object]:
    """A rule of failurePolicy."""
    return {"action": action, "exitCodes": {"operator": "In", "values": list(codes)}}


@pytest.fixture(scope="module")
def jobs(shared_place: Place, probes: Probes) -> Place:
    """Every job of this file."""
    role = probes.role
    policy = {"rules": [rule("Fail", 42), rule("RestartUncounted", 43), rule("Ignore", 44)]}
    in_place = {"restartPolicy": "OnFailure"}
    shared_place.apply(
        job("plain", worker=role(3, ONE_FAILS)),
        job("limit", backoffLimit=2, worker=role(1, "fail 5 Killed by a test")),
        job("third", backoffLimit=2, worker=role(2, "fail-before 2 5 not yet then say at last")),
        job("fatal", backoffLimit=3, failurePolicy=policy,
            worker=role(2, "as 0 fail 42 out of licences then sleep")),
        job("free", failurePolicy=policy, worker=role(2, "fail-before 2 43 come again")),
        job("ignored", failurePolicy=policy, worker=role(2, "as 1 fail 44 never mind")),
        job("memory", worker=role(1, "eat 200")),
        job("signal", worker=role(1, "fail 139 core dumped")),
        job("words", worker=role(1, "message the disk of rank 0 is full then fail 1 a long log",
                                 container={"resurces": {"limits": {"memory": "32Mi"}}})),
        job("loop", backoffLimit=0, worker=role(1, "fail 2 again and again", pod=in_place)),
        job("image", worker=role(2, "sleep", container={"image": MISSING,
                                                        "imagePullPolicy": "IfNotPresent"})),
        job("command", worker=role(1, "sleep", container={"command": ["/no/such/program"]})),
    )  # fmt: skip
    return shared_place


def test_a_failed_worker_is_named_with_its_last_words(jobs: Place) -> None:
    """Nobody should have to look through the logs of a thousand ranks for the first that fell."""
    status = jobs.wait("plain", "Failed")
    assert status["reason"] == "PodFailed"
    said = r"worker-1 on node\d failed first: exit code 3 \(RuntimeError: no data\); it is not"
    assert re.match(said + r" restarted \(spec.backoffLimit allows that\)$", status["message"])
    failure = status["lastFailure"]
    assert (failure["pod"], failure["cause"], failure["exitCode"], failure["attempt"]) == (
        "plain-worker-1", "ExitCode", 3, 0
    )  # fmt: skip
    assert condition(status, "Failed")["status"] == "True"
    assert jobs.told("plain", "PodFailed: ") == f"PodFailed: {status['message']}"
    shown = jobs.kubectl("get", "pdj", "plain", "-o", "wide").splitlines()
    assert re.split(r"\s{2,}", shown[1])[:2] == ["plain", "Failed"]
    assert "PodFailed" in shown[1]


def test_companions_of_a_failed_worker_are_stopped_and_its_log_is_kept(jobs: Place) -> None:
    """They hold devices and will never finish; the failed pod is what people want to look at."""
    jobs.wait("plain", "Failed")
    jobs.soon("only one pod is left", lambda: list(jobs.pods("plain")) == ["plain-worker-1"])
    assert jobs.logs("plain-worker-1") == "step 1\nRuntimeError: no data\n"


def test_restarts_are_counted_against_the_limit(jobs: Place) -> None:
    """A broken program must not use the cluster for ever."""
    status = jobs.wait("limit", "Failed")
    assert (status["reason"], status["restarts"]) == ("BackoffLimitExceeded", 2)
    assert status["message"].endswith("2 restarts are used up (backoffLimit)")
    assert "exit code 5 (Killed by a test)" in status["message"]
    assert jobs.told("limit", "BackoffLimitExceeded: ")  # the last: the others are there
    restarts = [e for e in jobs.events("limit") if e.startswith("Restarting")]
    assert [re.search(r"restart (\d) of 2", e)[1] for e in restarts] == ["1", "2"]  # type: ignore[index]


def test_a_job_may_complete_at_its_third_attempt(jobs: Place) -> None:
    """The whole gang again, and the story of it in the end."""
    status = jobs.wait("third", "Completed")
    assert (status["attempt"], status["restarts"]) == (2, 2)
    assert status["message"].endswith("with 2 restarts")
    assert status["worker"]["completedIndexes"] == "0-1"


def test_rules_by_exit_code_decide(jobs: Place) -> None:
    """One code is fatal, one means "start me again", one does not matter."""
    status = jobs.wait("fatal", "Failed")
    assert (status["reason"], status["restarts"]) == ("FailurePolicy", 0)
    assert status["message"].endswith("(out of licences); failurePolicy ends the job")
    status = jobs.wait("free", "Completed")
    assert status["restarts"] == 2
    status = jobs.wait("ignored", "Completed")
    assert jobs.told("ignored", "failurePolicy ignores it")


def test_a_program_killed_for_memory_is_told_what_to_raise(jobs: Place) -> None:
    """By a real kernel; the exit code alone would be that of any kill."""
    status = jobs.wait("memory", "Failed")
    assert (status["lastFailure"]["cause"], status["lastFailure"]["exitCode"]) == ("OOMKilled", 137)
    assert "killed for memory (OOMKilled): raise resources.limits.memory" in status["message"]


def test_other_ways_to_end_have_their_own_words(jobs: Place) -> None:
    """A signal, a message of the program's own, and a program that is not in the image."""
    assert "ended by signal 11 (core dumped)" in jobs.wait("signal", "Failed")["message"]
    assert "exit code 1 (the disk of rank 0 is full)" in jobs.wait("words", "Failed")["message"]
    status = jobs.wait("command", "Failed")
    assert status["lastFailure"]["cause"] == "Startup"
    assert "could not be started" in status["message"]
    assert "/no/such/program" in status["message"]


def test_a_typo_in_a_template_is_told(jobs: Place) -> None:
    """kubectl apply has taken it: a template has no schema. The API server says it of the pod."""
    text = (
        "not known to the API server, which left it out of the pods:"
        " spec.worker.template.spec.containers[0].resurces"
    )
    assert jobs.told("words", "UnknownField: ") == f"UnknownField: {text}"
    valid = condition(jobs.wait("words", "Failed"), "Valid")
    assert (valid["reason"], valid["message"]) == ("Warnings", text)


def test_a_container_that_its_kubelet_starts_again_counts_as_well(jobs: Place) -> None:
    """restartPolicy OnFailure would otherwise hide a program that fails for ever."""
    status = jobs.wait("loop", "Failed")
    assert status["reason"] == "BackoffLimitExceeded"
    assert "exit code 2 (again and again)" in status["message"]


def test_an_image_that_cannot_be_pulled_is_shown_and_can_be_mended(
    jobs: Place, probes: Probes
) -> None:
    """The commonest first mistake; the job waits for a better image, and takes it at once."""
    stuck = ("ErrImagePull", "ImagePullBackOff")
    status = jobs.wait("image", until=lambda s: s.get("reason") in stuck)
    assert status["phase"] == "Pending"
    assert "worker-0 on node" in status["message"]
    assert MISSING in status["message"]
    assert "(and 1 more)" in status["message"]
    shown = jobs.kubectl("get", "pdj", "image", "-o", "wide")
    assert any(reason in shown for reason in stuck)
    found = jobs.job("image")
    found["spec"]["worker"] = probes.role(2, "say better")
    found = {k: found[k] for k in ("apiVersion", "kind", "metadata", "spec")}
    for written in ("managedFields", "resourceVersion"):  # by others, and again at any time
        del found["metadata"][written]
    jobs.kubectl("replace", "-f", "-", stdin=json.dumps(found))
    status = jobs.wait("image", "Completed")
    assert status["restarts"] == 0
    assert jobs.told("image", "TemplateChanged: ")
