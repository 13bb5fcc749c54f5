"""How jobs end: when they are complete, what is left of them, deadlines, and their own removal."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from cluster.jobs import condition
from paddlejobs import job

if TYPE_CHECKING:
    from cluster.jobs import Place, Probes

NOT_GIVEN = "not-given"
POLICIES = (NOT_GIVEN, "OnCompletion", "OnFailure", "OnFailed", "Always", "Never")
# What is left of a job with a finished worker, and with a server that never ends by itself.
LEFT_COMPLETE = {
    NOT_GIVEN: [], "OnCompletion": [], "Always": [], "OnFailure": ["worker-0"],
    "OnFailed": ["worker-0"], "Never": ["ps-0", "worker-0"],
}  # fmt: skip
# What is left of a job whose worker 1 has failed while worker 0 was running.
LEFT_FAILED = {
    NOT_GIVEN: ["worker-1"], "OnCompletion": ["worker-1"], "Always": [], "OnFailure": [],
    "OnFailed": [], "Never": ["worker-0", "worker-1"],
}  # fmt: skip


@pytest.fixture(scope="module")
def jobs(shared_place: Place, probes: Probes) -> Place:
    """Every job of this file, all at once."""
    role = probes.role
    made = []
    for policy in POLICIES:
        given = {} if policy == NOT_GIVEN else {"cleanPodPolicy": policy}
        name = policy.lower()
        made.append(job(f"done-{name}", ps=role(1, "sleep"), worker=role(1, "say bye"), **given))
        made.append(job(f"fail-{name}", worker=role(2, "as 1 fail 1 no then sleep"), **given))
    made += [
        job("ttl", ttlSecondsAfterFinished=1, cleanPodPolicy="Never", worker=role(2, "say bye")),
        job("late", activeDeadlineSeconds=5, cleanPodPolicy="Never", worker=role(2, "sleep")),
        job("first", successPolicy="Worker0", worker=role(2, "as 1 sleep then say bye")),
        job("every", successPolicy="AllRoles", ps=role(1, "wait 2"), worker=role(1, "say bye")),
    ]
    shared_place.apply(*made)
    return shared_place


@pytest.mark.parametrize("policy", POLICIES)
def test_a_complete_job_leaves_what_its_policy_says(policy: str, jobs: Place) -> None:
    """Its server would run for ever; only Never lets it."""
    name = f"done-{policy.lower()}"
    status = jobs.wait(name, "Completed")
    assert status["message"].startswith("1 worker succeeded in ")
    wanted = [f"{name}-{pod}" for pod in LEFT_COMPLETE[policy]]
    jobs.soon(f"left of {name}: {wanted}", lambda: sorted(jobs.pods(name)) == wanted, name)
    services = {"Never": 1, "OnFailure": 1, "OnFailed": 1}.get(policy, 0)
    jobs.soon(f"{services} services", lambda: len(jobs.all("services", name)) == services, name)
    status = jobs.status(name)
    assert (status["phase"], status["worker"]["succeeded"]) == ("Completed", 1)


@pytest.mark.parametrize("policy", POLICIES)
def test_a_failed_job_leaves_what_its_policy_says(policy: str, jobs: Place) -> None:
    """People want the log of the one that failed; the others hold devices for nothing."""
    name = f"fail-{policy.lower()}"
    jobs.wait(name, "Failed")
    wanted = [f"{name}-{pod}" for pod in LEFT_FAILED[policy]]
    jobs.soon(f"left of {name}: {wanted}", lambda: sorted(jobs.pods(name)) == wanted, name)
    assert jobs.status(name)["phase"] == "Failed"


def test_an_old_word_for_cleaning_is_understood_and_said_to_be_old(jobs: Place) -> None:
    """deepfm.yaml of paddle-operator has OnFailed, which it took for Never."""
    status = jobs.wait("done-onfailed", "Completed")
    valid = condition(status, "Valid")
    assert (valid["status"], valid["reason"]) == ("True", "Warnings")
    assert valid["message"] == "spec.cleanPodPolicy: 'OnFailed' is read as OnFailure"


def test_a_finished_job_removes_itself_and_all_of_its_objects(jobs: Place) -> None:
    """ttlSecondsAfterFinished, for clusters with thousands of finished jobs."""
    jobs.wait_gone("pdj", "ttl")
    for plural in ("pods", "services", "configmaps"):
        jobs.soon(f"no {plural} of ttl", lambda p=plural: not jobs.all(p, "ttl"))  # type: ignore[misc]
        assert not jobs.all(plural, "ttl")


def test_a_job_beyond_its_deadline_fails_and_is_stopped(jobs: Place) -> None:
    """Or, with Never, is at least said to have failed."""
    status = jobs.wait("late", "Failed")
    assert status["reason"] == "DeadlineExceeded"
    assert status["message"] == "it ran for longer than activeDeadlineSeconds (5 s)"
    assert jobs.told("late", "DeadlineExceeded: ")


def test_success_may_be_that_of_the_first_worker_or_of_all(jobs: Place) -> None:
    """successPolicy: worker 1 of the one runs for ever, the server of the other ends by itself."""
    jobs.wait("first", "Completed")
    jobs.soon("nothing is left of it", lambda: not jobs.pods("first"), "first")
    status = jobs.wait("every", "Completed")
    assert (status["ps"]["completedIndexes"], status["worker"]["completedIndexes"]) == ("0", "0")
