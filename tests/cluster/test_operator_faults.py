"""The operator and the API server fail while jobs run; the end is that of a day without faults.

The same jobs are made each time, one after another while the faults go on. A witness writes down
every pod: none may be made twice in one attempt. 200 seeds of this are in tests/operator, in
made-up time; here everything is real.
"""

from __future__ import annotations

import time
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from cluster.conftest import new_namespace
from cluster.control.operators import Operator, install
from cluster.jobs import Place
from cluster.witness import Witness

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cluster.control.cluster import Cluster
    from cluster.control.plane import ControlPlane
    from cluster.jobs import Probes

SEED = 5
PAUSED_SECONDS = 10.0
TAKEN_OVER_SECONDS = 12.0  # the lease runs for 8; the rest is for a machine with other work
LEADS = "paddock_is_leader"
# job: (phase, reason, restarts) in the end
ENDS = {
    "plain": ("Completed", "Completed", 0),
    "servers": ("Completed", "Completed", 0),
    "retry": ("Completed", "Completed", 1),
    "fails": ("Failed", "PodFailed", 0),
    "limit": ("Failed", "BackoffLimitExceeded", 1),
    "service": ("Completed", "Completed", 0),
    "dns": ("Completed", "Completed", 0),
    "elastic": ("Completed", "Completed", 0),
    "wrong": ("Failed", "InvalidTemplate", 0),
    "held": ("Pending", "Suspended", 0),
}
PODS_AT_LEAST = 15  # seen by the witness; 19 when nothing goes wrong
LEFT = {"fails-worker-1", "limit-worker-0"}  # those that failed, for their logs


def specs(probes: Probes) -> dict[str, dict[str, Any]]:
    """The jobs of ENDS."""
    role = probes.role
    gated = {"intranet": "PodIP"}  # with names, who fails before all have addresses comes again
    no_volume = {"volumeMounts": [{"name": "none", "mountPath": "/none"}]}
    return {
        "plain": {"worker": role(2, "wait 3 then say bye")},
        "servers": {"ps": role(1, "sleep"), "worker": role(2, "wait 2")},
        "retry": {**gated, "backoffLimit": 2, "worker": role(2, "fail-before 1 5 no then wait 1")},
        "fails": {**gated, "worker": role(2, "as 1 fail 3 no then sleep")},
        "limit": {"backoffLimit": 1, "worker": role(1, "fail 5 no")},
        "service": {"intranet": "Service", "worker": role(2, "meet")},
        "dns": {"intranet": "DNS", "cleanPodPolicy": "Always", "worker": role(2, "meet")},
        "elastic": {"elastic": 1, "worker": role(2, "wait 3", requests=1)},
        "wrong": {"worker": role(1, "sleep", container=no_volume)},
        "held": {"suspend": True, "worker": role(2, "sleep")},
    }


@pytest.fixture
def control(cluster: Cluster) -> ControlPlane:
    """The control plane of the cluster with nodes, with all that an operator needs."""
    install(cluster.plane)
    return cluster.plane


@pytest.fixture
def town(control: ControlPlane, probe_image: str) -> Iterator[Place]:
    """A namespace in which no operator is at work yet."""
    with new_namespace(control) as name:
        yield Place(control, name)


def expect_usual_end(town: Place, witness: Witness, *operators: Operator) -> None:
    """Everything is as if nothing had happened."""
    for name, (phase, reason, restarts) in ENDS.items():
        status = town.wait(name, phase, reason=reason)
        assert (name, status["restarts"]) == (name, restarts)
    town.soon("only logs are left", lambda: set(town.pods()) == LEFT, "plain")
    assert len(witness.seen) >= PODS_AT_LEAST
    assert witness.twice() == {}
    for operator in operators:
        assert operator.bugs() == [], operator.tail()


def test_killed_at_any_moment_it_goes_on_where_it_was(
    town: Place, probes: Probes, control: ControlPlane
) -> None:
    """kill -9, ten times, each time at another moment after another job was made."""
    rng = Random(SEED)
    with Witness(control, town.namespace) as witness, Operator(control) as operator:
        for name, spec in specs(probes).items():
            town.make(name, **spec)
            time.sleep(rng.choice((0.0, 0.1, 0.3, 1.0)) * rng.random())  # sleep: any moment will do
            operator.kill()
            operator.start(wait=rng.random() < 0.8)
        expect_usual_end(town, witness, operator)


def test_an_api_server_that_comes_and_goes_changes_nothing(
    town: Place, probes: Probes, control: ControlPlane
) -> None:
    """Killed, without its database, with its history compacted away (410), deaf for 10 s."""

    def without_database() -> None:
        control.stop_etcd()
        time.sleep(2.0)  # sleep: calls fail with 500 meanwhile
        control.start_etcd()

    def deaf() -> None:
        control.pause_apiserver()
        time.sleep(PAUSED_SECONDS)  # sleep: calls hang meanwhile
        control.resume_apiserver()

    jobs = iter(specs(probes).items())
    with Witness(control, town.namespace) as witness, Operator(control) as operator:
        pid = operator.pid
        for fault in (control.restart_apiserver, without_database, control.compact, deaf):
            for _ in range(2):
                name, spec = next(jobs)
                town.make(name, **spec)
            fault()
        for name, spec in jobs:
            town.make(name, **spec)
        expect_usual_end(town, witness, operator)
        assert operator.pid == pid


def test_when_the_leader_is_killed_the_other_takes_over(
    town: Place, probes: Probes, control: ControlPlane
) -> None:
    """Of two operators one works; after a kill -9 the other waits for the lease, and no longer."""
    jobs = iter(specs(probes).items())
    first, second = Operator(control, "--leader-elect"), Operator(control, "--leader-elect")
    with Witness(control, town.namespace) as witness, first, second:
        town.soon("one leads", lambda: first.metrics()[LEADS] + second.metrics()[LEADS] == 1)
        leader, other = (first, second) if first.metrics()[LEADS] else (second, first)
        for _ in range(5):
            name, spec = next(jobs)
            town.make(name, **spec)
        leader.kill()
        began = time.monotonic()
        for name, spec in jobs:
            town.make(name, **spec)
        town.soon("the next job has its pods", lambda: town.pods("service"))
        took = time.monotonic() - began
        assert other.metrics()[LEADS] == 1 and took < TAKEN_OVER_SECONDS, f"{took:.1f} s"
        leader.start()
        expect_usual_end(town, witness, first, second)
        assert (leader.metrics()[LEADS], other.metrics()[LEADS]) == (0, 1)
        other.stop()  # it gives the lease back: nobody has to wait
        town.soon("the first leads again", lambda: leader.metrics()[LEADS] == 1, seconds=20)
        town.patch("held", {"suspend": False})
        town.wait("held", "Running")
