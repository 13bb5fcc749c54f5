"""Elastic jobs: workers come and go, and those that stay are left alone."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest

from cluster.control.images import BARE_NAMES
from cluster.jobs import WAIT_SECONDS_MAX
from paddlejobs import job
from paddock.operator.names import LABEL_POD

if TYPE_CHECKING:
    from cluster.jobs import Place, Probes

NOWHERE = {"nodeSelector": {"paddock.test/none": "none"}}
SAY = "env PADDLE_NNODES PADDLE_MASTER PADDLE_ELASTIC_NP then sleep"
# What it has learned is in its own container, and nowhere else.
TRAIN = """
import os, pathlib, time
kept = pathlib.Path("/tmp/step")
step = int(kept.read_text()) if kept.exists() else 0
print("goes on at step", step, flush=True)
began = step
while True:
    time.sleep(0.1)
    step += 1
    pathlib.Path("/tmp/new").write_text(str(step))
    os.replace("/tmp/new", kept)
    if step == began + 1:
        print("has trained", flush=True)
"""


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


def test_workers_go_on_while_new_ones_find_no_node_or_image(place: Place, probes: Probes) -> None:
    """A size that cannot be placed, and a broken image, cost nothing of what runs."""
    fields = {"requests": 1, "limits": 4}
    place.make("keep", worker=probes.role(2, SAY, **fields))
    place.wait("keep", "Running")
    first = place.uids("keep")
    place.make("keep", worker=probes.role(3, SAY, pod=NOWHERE, **fields))
    place.wait("keep", "Starting", reason="Unschedulable")
    broken = {"image": "localhost/paddock/none:1"}
    place.make("keep", worker=probes.role(3, SAY, container=broken, **fields))
    place.wait("keep", "Starting", reason="ErrImageNeverPull")
    now = place.uids("keep")
    assert {pod: now[pod] for pod in first} == first
    place.make("keep", worker=probes.role(3, SAY, **fields))
    status = place.wait("keep", "Running", until=lambda s: s["ready"] == "3/3")
    now = place.uids("keep")
    assert {pod: now[pod] for pod in first} == first
    assert (status["attempt"], status["restarts"]) == (0, 0)


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


@pytest.mark.limit(600)
def test_training_outlives_each_of_its_workers(shared_place: Place, small_images: None) -> None:
    """Deleted, evicted and drained, each of them, without etcd: the others go on from where they
    are, no container starts again, nobody is blamed, and the story is told.
    """
    place = shared_place
    words = ["sh", "-c", 'echo "$0" > /tmp/train.py && exec paddock launch /tmp/train.py', TRAIN]
    container = {"name": "paddle", "image": BARE_NAMES[0], "command": words}
    worker = {"replicas": 3, "limits": 4, "template": {"spec": {"containers": [container]}}}
    place.apply(job("train", elastic=1, backoffLimit=1, worker=worker))
    place.wait("train", "Running")
    before = wait_for_three(place, seconds=30.0)  # and not --elastic_timeout for a fourth
    taken = 0
    for take in (delete, evict, drain):
        for number in range(3):
            pod, taken = f"train-worker-{number}", taken + 1
            uids = place.uids("train")
            take(place, pod)
            place.wait("train", "Running", until=lambda s: s["restarts"] == taken)  # noqa: B023
            place.soon(f"a new {pod}", lambda: place.uids("train").get(pod) != uids[pod], "train")  # noqa: B023
            after = wait_for_three(place)
            kept = {p: uid for p, uid in place.uids("train").items() if uids[p] == uid}
            assert len(kept) == 2 and pod not in kept
            assert all(after[p] > before[p] for p in kept), (take.__name__, pod, before, after)
            assert started_again(place) == 0
            before = after
    status = place.wait("train", "Running", until=lambda s: s["ready"] == "3/3")
    assert (status["attempt"], status["restarts"], status["disruptions"]) == (0, 9, 9)
    assert "countedFailures" not in status
    assert (status["lastFailure"]["pod"], status["lastFailure"]["cause"]) == (pod, "Evicted")
    told = [e for e in place.events("train") if e.startswith("RestartingReplica")]
    assert {e.split()[1] for e in told} == {"worker-0", "worker-1", "worker-2"}


def wait_for_three(place: Place, seconds: float = WAIT_SECONDS_MAX) -> dict[str, int]:
    """At which step each worker went on, as soon as all three have trained a step together."""

    def together() -> dict[str, int] | None:
        logs = {pod: place.logs(pod) for pod in place.pods("train")}
        sizes = [re.findall(r"replicas (\d)\[", text)[-1:] for text in logs.values()]
        steps = {p: re.findall(r"goes on at step (\d+)", text) for p, text in logs.items()}
        order = ("replicas 3[", "goes on at step", "has trained")
        at = [[text.rfind(words) for words in order] for text in logs.values()]
        return {p: int(found[-1]) for p, found in steps.items()} if (
            sizes == [["3"]] * 3 and all(row == sorted(row) for row in at)
        ) else None  # fmt: skip

    try:
        place.soon("three train", together, "train", seconds=seconds)
    except AssertionError as error:
        told = [f"--- {p}\n" + place.kubectl("logs", "--timestamps", "--tail", "40", p, check=False)
                for p in place.pods("train")]  # fmt: skip
        raise AssertionError("\n".join([str(error), *told])) from None
    # The logs are read one after the other: the first may have been older than the last.
    found: dict[str, int] = place.soon("three train", together, "train", seconds=seconds)
    return found


def started_again(place: Place) -> int:
    """How often the kubelets have started containers of the job again."""
    statuses = [p["status"].get("containerStatuses", ()) for p in place.pods("train").values()]
    return sum(one["restartCount"] for of_pod in statuses for one in of_pod)


def delete(place: Place, pod: str) -> None:
    """By a person."""
    place.kubectl("delete", "pod", pod, "--wait=false")


def evict(place: Place, pod: str) -> None:
    """By whoever uses the eviction API: an autoscaler, say."""
    asked = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod}}
    path = f"/api/v1/namespaces/{place.namespace}/pods/{pod}/eviction"
    place.kubectl("create", "--raw", path, "-f", "-", stdin=json.dumps(asked))


def drain(place: Place, pod: str) -> None:
    """With the node that it is on; those of the others stay."""
    node = place.pods("train")[pod]["spec"]["nodeName"]
    only = f"--pod-selector={LABEL_POD}={pod}"
    place.plane.kubectl("drain", node, "--force", "--ignore-daemonsets", only, "--timeout=60s")
    place.plane.kubectl("uncordon", node)
