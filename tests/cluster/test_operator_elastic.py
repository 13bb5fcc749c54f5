"""Elastic jobs: workers come and go, and those that stay are left alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from paddlejobs import job

if TYPE_CHECKING:
    from cluster.jobs import Place, Probes

SAY = "env PADDLE_NNODES PADDLE_MASTER PADDLE_ELASTIC_NP then sleep"


@pytest.fixture(scope="module")
def jobs(shared_place: Place, probes: Probes) -> Place:
    """Elastic jobs of two workers each."""
    role = probes.role(2, SAY, requests=1, limits=4)
    shared_place.apply(job("grow", elastic=1, worker=role), job("heal", elastic=1, worker=role))
    return shared_place


def test_scale_adds_and_removes_workers_without_touching_the_others(jobs: Place) -> None:
    """kubectl scale, as Paddle's documents have it, and as an autoscaler does it."""
    jobs.wait("grow", "Running")
    first = jobs.uids("grow")
    assert len(first) == 2
    jobs.kubectl("scale", "pdj/grow", "--replicas=4")
    status = jobs.wait("grow", "Running", until=lambda s: s["ready"] == "4/4")
    more = jobs.uids("grow")
    assert {pod: more[pod] for pod in first} == first
    assert (status["attempt"], status["restarts"]) == (0, 0)
    jobs.kubectl("scale", "pdj/grow", "--replicas=1")
    jobs.soon("one is left", lambda: len(jobs.pods("grow")) == 1, "grow")
    assert jobs.uids("grow") == {"grow-worker-0": first["grow-worker-0"]}
    settled = {"ready": "1/1", "elastic": "DONE"}  # 1/1 may be said before the other three are gone
    status = jobs.wait("grow", "Running", until=lambda s: settled.items() <= s.items())
    assert status["attempt"] == 0


def test_the_range_holds_whatever_is_asked_for(jobs: Place) -> None:
    """requests and limits are what the job can train with; the rest is said, and not done."""
    jobs.wait("grow", until=lambda s: s.get("replicas"))
    jobs.kubectl("scale", "pdj/grow", "--replicas=9")
    jobs.wait("grow", "Running", until=lambda s: s["ready"] == "4/4")
    said = next(c for c in jobs.status("grow")["conditions"] if c["type"] == "Valid")["message"]
    assert "spec.worker.replicas: 9 is not in 1..4" in said
    assert len(jobs.pods("grow")) == 4


def test_a_failed_worker_is_made_again_alone(jobs: Place) -> None:
    """Those that are left go on, and are told the range, not a number."""
    jobs.wait("heal", "Running")
    before = jobs.uids("heal")
    assert "PADDLE_NNODES=1:4" in jobs.logs("heal-worker-1")
    jobs.probe("heal-worker-1", "shoot")
    status = jobs.wait("heal", "Running", until=lambda s: s["restarts"] or restarted(jobs))
    after = jobs.uids("heal")
    assert after["heal-worker-0"] == before["heal-worker-0"]
    assert status["attempt"] == 0


def restarted(jobs: Place) -> bool:
    """Whether the kubelet has started worker 1 again, in place."""
    found = jobs.pods("heal")["heal-worker-1"]["status"]["containerStatuses"]
    return bool(found[0]["restartCount"]) and bool(found[0]["ready"])
