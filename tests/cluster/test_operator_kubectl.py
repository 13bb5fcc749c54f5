"""Every command that the documents give to users, with the real kubectl."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest

from cluster.jobs import condition
from paddlejobs import job

if TYPE_CHECKING:
    from pathlib import Path

    from cluster.jobs import Place, Probes

SAY = "env PADDLE_TRAINER_ID PADDLE_TRAINERS_NUM then sleep"


def cells(text: str) -> list[list[str]]:
    """A table of kubectl, by its columns."""
    return [re.split(r"\s{2,}", line.strip()) for line in text.strip().splitlines()]


@pytest.fixture(scope="module")
def jobs(shared_place: Place, probes: Probes) -> Place:
    """A job with servers, a larger one without, and one that is suspended."""
    role = probes.role
    shared_place.apply(
        job("ctr", withGloo=1, ps=role(1, SAY), worker=role(2, SAY)),
        job("resnet", worker=role(2, SAY)),
        job("held", suspend=True, worker=role(2, SAY)),
        job("again", worker=role(2, SAY)),
    )
    return shared_place


def test_get_shows_status_mode_and_age(jobs: Place) -> None:
    """The columns that paddle-operator's documents show; more of them with -o wide."""
    for name in ("ctr", "resnet"):
        jobs.kubectl("wait", "--for=condition=Running", f"pdj/{name}", "--timeout=90s")
    head, *rows = cells(jobs.kubectl("get", "pdj"))
    assert head == ["NAME", "STATUS", "MODE", "AGE"]
    assert {row[0]: row[1:3] for row in rows if row[0] in ("ctr", "resnet")} == {
        "ctr": ["Running", "PS"], "resnet": ["Running", "Collective"]
    }  # fmt: skip
    wide = cells(jobs.kubectl("get", "pdj", "ctr", "-o", "wide"))
    assert dict(zip(wide[0], wide[1], strict=True)) | {"AGE": ""} == {
        "NAME": "ctr", "STATUS": "Running", "MODE": "PS", "READY": "3/3", "RESTARTS": "0",
        "REASON": "Running", "AGE": "",
    }  # fmt: skip
    everything = jobs.kubectl("get", "all")
    assert "paddlejob.batch.paddlepaddle.org/ctr" in everything
    assert "pod/ctr-ps-0" in everything


def test_describe_tells_the_story(jobs: Place) -> None:
    """In the order in which it happened, for people who know no Python."""
    jobs.wait("ctr", "Running")
    said = jobs.kubectl("describe", "pdj", "ctr")
    story = ("making 3 pods (1 ps, 2 worker), attempt 0", "3 pods with addresses, attempt 0")
    assert [said.count(each) for each in story] == [1, 1]
    assert said.index(story[0]) < said.index(story[1])
    for type_ in ("PodsCreated", "Running", "Valid"):
        assert condition(jobs.status("ctr"), type_)["status"] == "True"
        assert type_ in said


def test_logs_are_those_of_one_role_or_of_one_pod(jobs: Place) -> None:
    """By the labels that paddle-operator gave to pods, and by their names."""
    jobs.wait("ctr", "Running")
    assert jobs.kubectl("logs", "ctr-worker-1") == "PADDLE_TRAINER_ID=1\nPADDLE_TRAINERS_NUM=2\n"
    chosen = "paddle-res-type=worker,batch.paddlepaddle.org/job-name=ctr"
    said = jobs.kubectl("logs", "-l", chosen, "--prefix")
    assert "pod/ctr-worker-0/main" in said and "pod/ctr-worker-1/main" in said


def test_a_suspended_job_has_no_pods_until_it_is_resumed(jobs: Place) -> None:
    """kubectl patch, as administrators do it and Kueue does; and back again."""
    status = jobs.wait("held", reason="Suspended")
    assert (status["phase"], condition(status, "Suspended")["status"]) == ("Pending", "True")
    assert not jobs.pods("held")
    jobs.patch("held", {"suspend": False})
    status = jobs.wait("held", "Running")
    assert condition(status, "Suspended")["status"] == "False"
    jobs.patch("held", {"suspend": True})
    jobs.soon("its pods are gone", lambda: not jobs.pods("held"), "held")
    status = jobs.wait("held", reason="Suspended")
    assert status["phase"] == "Pending"
    said = [e.partition(":")[0] for e in jobs.events("held")]
    assert said[:3] == ["Suspended", "Resumed", "CreatingPods"]


def test_scale_starts_a_running_job_again_with_the_new_size(jobs: Place) -> None:
    """Every rank is told how many there are; paddle-operator had no scale at all."""
    jobs.wait("resnet", "Running")
    before = jobs.uids("resnet")
    jobs.kubectl("scale", "pdj/resnet", "--replicas=3")
    status = jobs.wait("resnet", "Running", until=lambda s: s["ready"] == "3/3")
    assert (status["attempt"], status["replicas"]) == (1, 3)
    assert not set(before.values()) & set(jobs.uids("resnet").values())
    assert "PADDLE_TRAINERS_NUM=3" in jobs.logs("resnet-worker-2")
    assert jobs.told("resnet", "Scaled: scaled to 3 pods")
    jobs.kubectl("scale", "pdj/resnet", "--replicas=1", "--current-replicas=3")
    status = jobs.wait("resnet", "Running", until=lambda s: s["ready"] == "1/1")
    assert (status["mode"], list(jobs.pods("resnet"))) == ("Single", ["resnet-worker-0"])


def test_a_job_made_again_at_once_has_nothing_of_the_one_before(
    jobs: Place, probes: Probes
) -> None:
    """Pods of the deleted one still end when the new one comes."""
    jobs.wait("again", "Running")
    before = jobs.uids("again")
    uid = jobs.job("again")["metadata"]["uid"]
    jobs.kubectl("delete", "pdj", "again", "--wait=false")
    jobs.make("again", worker=probes.role(3, SAY))
    jobs.wait("again", "Running", until=lambda s: s["ready"] == "3/3")
    after = jobs.uids("again")
    assert not set(before.values()) & set(after.values())
    for pod in jobs.pods("again").values():
        assert pod["metadata"]["ownerReferences"][0]["uid"] != uid
    assert "PADDLE_TRAINERS_NUM=3" in jobs.logs("again-worker-0")
    assert not [told for told in jobs.events("again") if told.startswith("NameTaken")]


def test_what_is_deleted_takes_everything_along(
    place: Place, probes: Probes, tmp_path: Path
) -> None:
    """kubectl delete -f of the file that was applied; also of a job that is just beginning."""
    file = tmp_path / "jobs.yaml"
    role = probes.role
    made = [
        job("one", intranet="Service", ps=role(1, "sleep"), worker=role(1, "sleep")),
        job("two", worker=role(3, "sleep")),
    ]
    file.write_text("\n---\n".join(map(json.dumps, made)), "utf-8")
    for wait in (True, False):
        place.kubectl("apply", "-f", file)
        if wait:
            place.wait("one", "Running")
            place.wait("two", "Running")
        place.kubectl("delete", "-f", file, "--timeout=60s")
        for plural in ("pods", "services"):
            place.soon(f"no {plural}", lambda p=plural: not place.all(p))  # type: ignore[misc]
        maps = place.all("configmaps")
        assert {m["metadata"]["name"] for m in maps} <= {"kube-root-ca.crt", "one", "two"}
        place.soon("no maps", lambda: len(place.all("configmaps")) <= 1)
