"""Edits of a job that runs, through the whole operator: the second table of reconcile.py."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from kube_memory import refusals
from machine.virtual import run_virtual
from machine.world import World, patch_job
from paddock.kube.client import EVENTS, PADDLE_JOBS, PODS
from paddock.operator.reconcile import reconcile

if TYPE_CHECKING:
    from collections.abc import Callable

    from kube_memory import Call
    from machine.virtual import VirtualClock
    from paddock.kube.client import KubeError

CREATES = ("create", "pods", "")


def template(image: str) -> dict[str, Any]:
    return {"spec": {"containers": [{"name": "c", "image": image}]}}


def with_typo(error: KubeError) -> Callable[[World], None]:
    """The API server refuses pods of that image so."""

    def is_it(call: Call) -> bool:
        return call.verb == "create" and call.resource is PODS and "typo" in str(call.body)

    return lambda world: world.server.fail(error, times=None, when=is_it)


def uids(world: World) -> list[str]:
    return [str(p.peek["metadata"]["uid"]) for p in world.server.all(PODS, "ml")]


def condition(world: World, type_: str) -> tuple[str, str, int]:
    (found,) = [c for c in world.status("demo")["conditions"] if c["type"] == type_]
    return found["status"], found["reason"], found["observedGeneration"]


async def running(clock: VirtualClock, **spec: object) -> World:
    """A world with the job demo, whose two workers run."""
    world = World(clock)
    world.start(reconcile=reconcile)
    job = {"worker": {"replicas": 2, "template": template("train:1")}, **spec}
    world.server.create(PADDLE_JOBS, "ml", {"metadata": {"name": "demo"}, "spec": job})
    await clock.pass_time(1)
    world.run_pods()
    await clock.pass_time(1)
    assert world.status("demo")["phase"] == "Running"
    return world


INVALID = refusals.invalid(PODS, "demo-worker-2", [("spec.volumes", "Not found: data")])
DENIED = refusals.forbidden(PODS, "demo-worker-2", "admission webhook w denied the request: no")
TYPOS = [
    (with_typo(INVALID), "InvalidTemplate", "Valid"),
    (with_typo(DENIED), "WebhookRefused", "PodsCreated"),
    (lambda world: world.server.set_quota("ml", 2), "QuotaExceeded", "PodsCreated"),
]  # fmt: skip


@pytest.mark.parametrize(("refuse", "reason", "type_"), TYPOS, ids=[r for _, r, _ in TYPOS])
@pytest.mark.parametrize("more", [{}, {"elastic": 1}], ids=["fixed", "elastic"])
def test_a_refused_change_of_size_ends_no_pod_that_runs(
    refuse: Callable[[World], None], reason: str, type_: str, more: dict[str, object]
) -> None:
    """One typo in a scaled job ended two healthy workers, and the job."""

    async def main(clock: VirtualClock) -> None:
        world = await running(clock, **more)
        before, asked = uids(world), world.server.counts[CREATES]
        refuse(world)
        three = {"replicas": 3, "template": template("typo")}
        patch_job(world, "demo", {"spec": {"worker": three}})
        await clock.pass_time(120)
        status = world.status("demo")
        assert (status["reason"], uids(world)) == (reason, before)
        assert status["attempt"] == 0
        assert condition(world, type_) == ("False", reason, 2)
        # What is wrong with the pod itself is asked once, another refusal with ever longer pauses.
        tries = world.server.counts[CREATES] - asked
        assert tries == 1 if reason == "InvalidTemplate" else 5 <= tries <= 9
        told = [e.document for e in world.server.all(EVENTS) if e.document["reason"] == reason]
        assert len(told) == 1
        world.server.set_quota("ml", None)
        three = {"replicas": 3, "template": template("train:2")}
        patch_job(world, "demo", {"spec": {"worker": three}})
        await clock.pass_time(31)  # pods that run take their grace
        for pod in world.server.all(PODS, "ml"):
            if pod.peek["metadata"].get("deletionTimestamp"):
                world.server.kubelet.let_go(f"ml/{pod.peek['metadata']['name']}")
        await clock.pass_time(2)
        world.run_pods()
        await clock.pass_time(1)
        status = world.status("demo")
        assert (status["phase"], status["ready"]) == ("Running", "3/3")
        assert status["attempt"] == (0 if more else 1)
        assert condition(world, "Valid") == ("True", "Accepted", 3)

    run_virtual(main)


def test_an_edit_that_cannot_be_read_ends_nothing_also_under_another_leader() -> None:
    """An older definition lets anything in; what is wrong is told, and the job goes on."""

    async def main(clock: VirtualClock) -> None:
        world = await running(clock)
        before = uids(world)
        patch_job(world, "demo", {"spec": {"backoffLimit": -1, "worker": {"replicas": 0}}})
        await clock.pass_time(5)
        world.start("operator-1", reconcile=reconcile)
        await clock.pass_time(60)
        status = world.status("demo")
        assert (status["phase"], status["ready"], uids(world)) == ("Running", "2/2", before)
        assert condition(world, "Valid") == ("False", "InvalidSpec", 2)
        patch_job(world, "demo", {"spec": {"backoffLimit": None, "worker": {"replicas": 2}}})
        world.succeed_pods()
        await clock.pass_time(1)
        assert world.status("demo")["phase"] == "Completed"
        assert world.status("demo")["restarts"] == 0

    run_virtual(main)


def test_a_job_with_a_mistake_has_failed_and_its_ttl_removes_it() -> None:
    """kubectl wait --for=condition=Failed never ended, and such jobs were there for ever."""

    async def main(clock: VirtualClock) -> None:
        world = World(clock)
        world.start(reconcile=reconcile)
        spec = {"ttlSecondsAfterFinished": 60, "worker": {"replicas": 1}}
        world.server.create(PADDLE_JOBS, "ml", {"metadata": {"name": "demo"}, "spec": spec})
        await clock.pass_time(1)
        assert condition(world, "Failed") == ("True", "InvalidSpec", 1)
        one = {"replicas": 1, "template": template("train:1")}
        patch_job(world, "demo", {"spec": {"worker": one}})
        await clock.pass_time(100)
        types = {c["type"] for c in world.status("demo")["conditions"]}
        assert ("Failed" in types, world.status("demo").get("completionTime")) == (False, None)
        patch_job(world, "demo", {"spec": {"worker": {"template": None}}})
        await clock.pass_time(62)
        assert world.server.all(PADDLE_JOBS, "ml") == []

    run_virtual(main)
