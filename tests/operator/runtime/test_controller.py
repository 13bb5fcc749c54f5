"""The whole runtime on an API server in memory: what must hold whatever happens to either."""

from __future__ import annotations

import asyncio
import threading
import time
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from kube_memory import MemoryServer, refusals
from machine import toy
from machine.virtual import run_virtual
from machine.world import ELECTED, QUIET, World, patch_job
from paddock.kube.client import (
    COSCHEDULING_GROUPS,
    EVENTS,
    LEASES,
    PADDLE_JOBS,
    PODS,
    SERVICES,
    VOLCANO_GROUPS,
)
from paddock.operator.decision import Decision, EventNote, ObservedState, OperatorSettings
from paddock.operator.names import LEASE
from paddock.operator.options import read_options
from paddock.operator.reconcile import reconcile
from paddock.operator.run import Operator
from paddock.operator.runtime.clock import Clock
from paddock.operator.runtime.lease import RETRY_SECONDS
from paddock.operator.runtime.log import Logger

if TYPE_CHECKING:
    from collections.abc import Callable

    from kube_memory import Call, MemoryClient
    from machine.virtual import VirtualClock
    from paddock.operator.runtime.controller import Controller

DEPLOY = Path(__file__).resolve().parents[3] / "deploy" / "v1"
STATUS = ("patch", "paddlejobs.batch.paddlepaddle.org", "status")


class Looks:
    """The toy reconcile, counted and remembered."""

    def __init__(self, decide: Callable[[ObservedState], Decision] | None = None) -> None:
        self.seen: list[ObservedState] = []
        self._decide = decide

    def __call__(self, observed: ObservedState, now: float, settings: OperatorSettings) -> Decision:
        self.seen.append(observed)
        if self._decide is not None:
            return self._decide(observed)
        return toy.reconcile(observed, now, settings)


def remembered(controller: Controller) -> int:
    """How many things are kept of jobs beside the caches."""
    queue = controller._queue
    kept = (controller._memory, queue._dirty, queue._working, queue._later, queue._failures)
    return sum(len(of) for of in kept)


def test_a_job_runs_from_creation_to_completion() -> None:
    """The plain path: pods are made, followed, and the job is Completed."""

    async def main(clock: VirtualClock) -> None:
        world = World(clock)
        world.start()
        world.submit("demo", 3)
        await clock.pass_time(1)
        assert world.pods() == ["demo-worker-0", "demo-worker-1", "demo-worker-2"]
        world.run_pods()
        await clock.pass_time(1)
        assert world.status("demo")["phase"] == "Running"
        world.succeed_pods()
        await clock.pass_time(1)
        assert world.status("demo")["phase"] == "Completed"
        assert world.server.counts["create", "pods", ""] == 3

    run_virtual(main)


def test_many_events_of_a_job_are_one_look_and_one_write() -> None:
    """100 pods start in the same moment: the Go operator wrote 23 to 204 statuses for that."""

    async def main(clock: VirtualClock) -> None:
        world = World(clock)
        looks = Looks()
        world.start(reconcile=looks)
        world.submit("demo", 100)
        await clock.pass_time(2)
        writes, seen = world.server.counts[STATUS], len(looks.seen)
        world.run_pods()
        await clock.pass_time(2)
        assert world.server.counts[STATUS] - writes == 1
        assert len(looks.seen) - seen == 2  # and one at its own status, which changes nothing

    run_virtual(main)


ONE = {"replicas": 1, "template": {"spec": {"containers": [{"name": "c", "image": "i"}]}}}
IDLE_JOBS: dict[str, dict[str, object]] = {
    **{f"j{n}": {"worker": ONE} for n in range(50)},
    "suspended": {"worker": ONE, "suspend": True},
    "elastic": {"worker": {**ONE, "requests": 1, "limits": 2}, "elastic": 1},
    "deadline": {"worker": ONE, "activeDeadlineSeconds": 86_400},
    "wrong": {"worker": {"replicas": -1}},
}


@pytest.mark.parametrize("has_gangs", [True, False])
def test_an_idle_operator_renews_its_lease_and_asks_for_nothing_else(has_gangs: bool) -> None:
    """Jobs that are quiet cost the API server nothing: two copies with the flags of deploy/v1."""
    (deployment,) = [
        found
        for found in yaml.safe_load_all((DEPLOY / "operator.yaml").read_text("utf-8"))
        if found["kind"] == "Deployment"
    ]
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    shipped = replace(
        read_options(container["args"]), metrics_bind_address="0", health_probe_bind_address="0",
        leader_election_namespace="paddle-system",
    )  # fmt: skip

    async def main(clock: VirtualClock) -> None:
        world = World(clock)
        for resource in (VOLCANO_GROUPS, COSCHEDULING_GROUPS):
            world.server.serve(resource, has_gangs)
        for name in ("a", "b"):
            world.start(name, reconcile=reconcile, options=shipped)
        for name, spec in IDLE_JOBS.items():
            manifest = {"metadata": {"name": name}, "spec": spec}
            world.server.create(PADDLE_JOBS, "ml", manifest)
        await clock.pass_time(5)
        world.run_pods()
        await clock.pass_time(25)
        assert world.status("j0")["phase"] == "Running"
        for _ in range(6):
            before = world.server.counts.copy()
            await clock.pass_time(20)
            asked = world.server.counts - before
            assert asked == {("patch", "leases.coordination.k8s.io", ""): 20 / RETRY_SECONDS}

    run_virtual(main)


def test_a_job_that_makes_reconcile_raise_does_not_stop_the_others() -> None:
    """A bug must be that job's trouble only; it is told there, and tried again ever later."""

    async def main(clock: VirtualClock) -> None:
        world = World(clock)

        def decide(observed: ObservedState) -> Decision:
            if observed.job.metadata.name.startswith("poison"):
                raise KeyError("template")
            return toy.reconcile(observed, clock.now(), OperatorSettings())

        looks = Looks(decide)
        copy = world.start(reconcile=looks, options=replace(QUIET, workers=2))
        for n in range(10):
            world.submit(f"poison{n}", 1)
        world.submit("demo", 2)
        await clock.pass_time(2)
        assert len(world.pods()) == 2
        await clock.pass_time(3600)
        assert not copy.task.done()
        assert len(looks.seen) < 10 * 30
        events = [e.document for e in world.server.all(EVENTS)]
        told = {e["regarding"]["name"] for e in events if e["reason"] == "InternalError"}
        assert told == {f"poison{n}" for n in range(10)}
        errors = [e for e in events if e["regarding"]["name"] == "poison0"]
        assert "KeyError" in errors[0]["note"] and errors[0]["series"]["count"] > 5
        assert any("Traceback" in line for line in world.lines)
        text = copy.operator.metrics.text()
        assert 'paddock_reconcile_errors_total{kind="bug"}' in text

    run_virtual(main)


def test_a_mended_job_is_looked_at_at_once() -> None:
    """The pause of a failing job ends when its user changes it."""

    async def main(clock: VirtualClock) -> None:
        world = World(clock)

        def decide(observed: ObservedState) -> Decision:
            if observed.job.metadata.generation == 1:
                raise ValueError
            return toy.reconcile(observed, clock.now(), OperatorSettings())

        world.start(reconcile=Looks(decide))
        world.submit("demo", 1)
        await clock.pass_time(900)
        patch_job(world, "demo", {"spec": {"worker": {"replicas": 2}}})
        await clock.pass_time(1)
        assert len(world.pods()) == 2

    run_virtual(main)


def test_a_field_that_the_server_leaves_out_of_the_pods_is_told_once() -> None:
    """A typo in a template that has no schema: nobody else tells those who made the job."""

    async def main(clock: VirtualClock) -> None:
        world = World(clock)
        world.start(reconcile=reconcile)
        container = {"name": "main", "image": "train", "resurces": {"limits": {"cpu": 1}}}
        pod = {"spec": {"containers": [container], "nodeSelectr": {"gpu": "yes"}}}
        world.submit("demo", 2, worker={"replicas": 2, "template": pod}, backoffLimit=3)
        await clock.pass_time(5)
        world.run_pods()
        await clock.pass_time(60)  # a failure that is not early
        world.server.kubelet.fail("ml/demo-worker-0", 1)
        await clock.pass_time(1)
        world.server.kubelet.let_go("ml/demo-worker-1")
        await clock.pass_time(60)
        assert world.status("demo")["attempt"] == 1
        assert world.server.counts["create", "pods", ""] == 4
        text = (
            "not known to the API server, which left it out of the pods:"
            " spec.worker.template.spec.containers[0].resurces,"
            " spec.worker.template.spec.nodeSelectr"
        )
        told = [e.document for e in world.server.all(EVENTS)]
        found = [(e["type"], e["note"]) for e in told if e["reason"] == "UnknownField"]
        assert found == [("Warning", text)]
        assert "series" not in next(e for e in told if e["reason"] == "UnknownField")
        (valid,) = [c for c in world.status("demo")["conditions"] if c["type"] == "Valid"]
        assert (valid["status"], valid["reason"], valid["message"]) == ("True", "Warnings", text)

    run_virtual(main)


def test_a_time_to_wake_is_kept_also_when_the_clock_is_set() -> None:
    """A deadline is wall time: set forward, it is over at most a minute later, not in hours."""

    async def main(clock: VirtualClock) -> None:
        world = World(clock)
        at = clock.now() + 7200
        looks = Looks(
            lambda _: Decision({"phase": "Failed" if clock.now() >= at else "Running"}, wake_at=at)
        )
        world.start(reconcile=looks)
        world.submit("demo", 1)
        await clock.pass_time(60)
        assert world.status("demo")["phase"] == "Running"
        clock.jump(7200)
        await clock.pass_time(60)
        assert world.status("demo")["phase"] == "Failed"
        seen = len(looks.seen)
        await clock.pass_time(10)  # it says "wake me in the past" now
        assert len(looks.seen) - seen < 10 / 0.04

    run_virtual(main)


def test_jobs_come_and_go_without_a_trace() -> None:
    """A thousand jobs later nothing is kept of them."""

    async def main(clock: VirtualClock) -> None:
        world = World(clock)

        def decide(observed: ObservedState) -> Decision:
            if observed.job.metadata.name.endswith("7"):
                raise ValueError
            return toy.reconcile(observed, clock.now(), OperatorSettings())

        copy = world.start(reconcile=Looks(decide))
        for wave in range(10):
            for n in range(30):
                world.submit(f"w{wave}-{n}", 1)
            await clock.pass_time(1)
            for n in range(30):
                world.server.delete(PADDLE_JOBS, "ml", f"w{wave}-{n}")
            await clock.pass_time(5)
        await clock.pass_time(120)
        controller = copy.operator.controller
        assert world.pods() == []
        assert remembered(controller) == 0
        assert all(len(store) == 0 for store in controller.caches.stores.values())

    run_virtual(main)


def test_what_is_observed_is_of_that_jobs_uid() -> None:
    """The next job of that name must not see the pods of the one before."""

    async def main(clock: VirtualClock) -> None:
        world = World(clock)
        looks = Looks()
        world.start(reconcile=looks)
        world.submit("demo", 1)
        await clock.pass_time(1)
        world.run_pods()
        world.server.delete(PADDLE_JOBS, "ml", "demo")
        world.submit("demo", 1)
        first = world.server.get(PADDLE_JOBS, "ml", "demo").uid
        await clock.pass_time(0.5)
        observed = [o for o in looks.seen if o.job.metadata.uid == first]
        assert observed
        assert all(p.metadata.controller_uid == first for o in observed for p in o.pods)

    run_virtual(main)


def test_all_pods_of_an_elastic_job_meet_at_one_place() -> None:
    """Etcd that appears between two pods must not split the job; the next generation uses it."""

    async def main(clock: VirtualClock) -> None:
        world = World(clock)
        world.start(reconcile=reconcile)
        asked = ("get", "services", "")
        pod = {"spec": {"containers": [{"name": "main", "image": "train"}]}}
        world.submit("plain", 1, worker={"replicas": 1, "template": pod})
        await clock.pass_time(1)
        assert world.server.counts[asked] == 0
        world.server.set_quota("ml", 3)  # of which the other job has one
        world.submit("demo", 3, worker={"replicas": 3, "limits": 4, "template": pod})
        await clock.pass_time(1)
        masters = lambda: {pod: master_of(world, pod) for pod in world.pods() if "demo" in pod}  # noqa: E731
        built_in = "demo-worker-0.demo:36001"
        assert masters() == {"demo-worker-0": built_in, "demo-worker-1": built_in}
        ports = [{"name": "peer", "port": 2380}, {"name": "client", "port": 2379}]
        manifest = {"metadata": {"name": "paddle-elastic-etcd"}, "spec": {"ports": ports}}
        world.server.create(SERVICES, "ml", manifest)
        await clock.pass_time(60)
        world.server.set_quota("ml", None)
        await clock.pass_time(400)
        assert masters() == {f"demo-worker-{n}": built_in for n in range(3)}
        assert world.status("demo")["rendezvous"] == built_in
        assert world.server.counts[asked] == 1
        world.run_pods()
        world.server.delete(PODS, "ml", "demo-worker-0")
        await clock.pass_time(1)
        world.server.kubelet.let_go("ml/demo-worker-0")
        await clock.pass_time(1)
        assert masters() == {f"demo-worker-{n}": built_in for n in range(3)}
        status = world.status("demo")
        assert (status["restarts"], status["disruptions"]) == (1, 1)
        assert status["lastFailure"]["pod"] == "demo-worker-0"
        told = [e.document for e in world.server.all(EVENTS)]
        (said,) = (e["note"] for e in told if e["reason"] == "RestartingReplica")
        assert said == "worker-0 on node-0: its pod was deleted; it is made again, alone"
        patch_job(world, "demo", {"spec": {"suspend": True}})
        await clock.pass_time(1)
        for name in masters():
            world.server.kubelet.let_go(f"ml/{name}")
        await clock.pass_time(1)
        patch_job(world, "demo", {"spec": {"suspend": False}})
        await clock.pass_time(1)
        etcd = "etcd://paddle-elastic-etcd.ml.svc:2379"
        assert masters() == {f"demo-worker-{n}": etcd for n in range(3)}

    run_virtual(main)


def master_of(world: World, pod: str) -> str:
    """PADDLE_MASTER of a pod's program."""
    found = world.server.get(PODS, "ml", pod).document["spec"]["containers"][0]["env"]
    return next(str(e["value"]) for e in found if e["name"] == "PADDLE_MASTER")


def test_two_jobs_never_choose_the_same_host_port() -> None:
    """Both are looked at before either's status can be seen in the cache."""

    async def main(clock: VirtualClock) -> None:
        world = World(clock)

        def decide(observed: ObservedState) -> Decision:
            status: Any = observed.job.status or {}
            port = status.get("hostPort") or next(
                p for p in range(20000, 21000, 20) if p not in observed.taken_ports
            )
            return Decision({"phase": "Pending", "hostPort": port})

        async def pause() -> None:
            await clock.pass_time(0.3)

        world.start(reconcile=Looks(decide), pause=pause)
        for n in range(20):
            world.submit(f"j{n}", 1, intranet="Host")
        await clock.pass_time(30)
        ports = [world.status(f"j{n}")["hostPort"] for n in range(20)]
        assert len(set(ports)) == 20

    run_virtual(main)


def test_a_new_operator_knows_the_ports_that_were_given_before() -> None:
    """It looks at the new job first; the old one's port stands in its status."""

    async def main(clock: VirtualClock) -> None:
        world = World(clock)
        for name in ("new", "old"):
            world.submit(name, 1, intranet="Host")
        patch_status(world, "old", {"hostPort": 20000})
        looks = Looks(lambda _: Decision())
        world.start(reconcile=looks)
        await clock.pass_time(1)
        taken = {o.job.metadata.name: o.taken_ports for o in looks.seen}
        assert taken == {"new": {20000}, "old": frozenset()}

    run_virtual(main)


def patch_status(world: World, name: str, status: dict[str, object]) -> None:
    """What an operator before this one wrote."""
    world.server.patch(PADDLE_JOBS, "ml", name, {"status": status}, subresource="status")


def test_a_job_deleted_during_a_refused_write_leaves_no_trace() -> None:
    """Its pause is written down after its end was told."""

    async def main(clock: VirtualClock) -> None:
        world = World(clock)

        async def pause() -> None:
            await clock.pass_time(0.5)

        copy = world.start(pause=pause)
        world.server.fail(
            refusals.internal_error(), times=None, when=lambda c: c.subresource == "status"
        )
        await clock.pass_time(5)
        world.submit("demo", 1)
        while not world.server.counts[STATUS]:
            await clock.pass_time(0.1)
        world.server.fail(refusals.internal_error(), lost=True)
        world.server.delete(PADDLE_JOBS, "ml", "demo")
        await clock.pass_time(60)
        assert remembered(copy.operator.controller) == 0

    run_virtual(main)


def test_gangs_are_known_to_be_possible_or_not() -> None:
    """A cluster without Volcano is a fact for reconcile, not a failure of the operator."""

    async def main(clock: VirtualClock) -> None:
        world = World(clock)
        world.server.serve(VOLCANO_GROUPS, False)
        looks = Looks()
        world.start(reconcile=looks)
        world.submit("demo", 1)
        await clock.pass_time(1)
        assert (looks.seen[-1].has_volcano, looks.seen[-1].has_coscheduling) == (False, True)

    run_virtual(main)


def gang_job(replicas: int) -> dict[str, Any]:
    """A job that Volcano places."""
    policy = {"scheduler": "volcano"}
    template = {"spec": {"containers": [{"name": "main", "image": "train:1"}]}}
    worker = {"replicas": replicas, "template": template}
    return {"metadata": {"name": "demo"}, "spec": {"schedulingPolicy": policy, "worker": worker}}


def test_a_gang_scheduler_installed_later_is_noticed_at_once() -> None:
    """Jobs that wait for it ask; without such a job nobody does, before and after."""
    lists = ("list", "podgroups.scheduling.volcano.sh", "")

    async def main(clock: VirtualClock) -> None:
        world = World(clock)
        world.server.serve(VOLCANO_GROUPS, False)
        world.start(reconcile=reconcile)
        await clock.pass_time(3600)
        assert world.server.counts[lists] == 1
        world.server.create(PADDLE_JOBS, "ml", gang_job(2))
        await clock.pass_time(60)
        assert world.status("demo")["reason"] == "SchedulerMissing"
        assert world.server.counts[lists] < 40
        world.server.serve(VOLCANO_GROUPS, True)
        await clock.pass_time(3)
        assert [s.peek["metadata"]["name"] for s in world.server.all(VOLCANO_GROUPS)] == ["demo"]

    run_virtual(main)


def test_a_scheduler_that_came_before_the_first_job_is_not_said_to_be_missing() -> None:
    """Nobody has asked since the operator began: the job's first look does."""

    async def main(clock: VirtualClock) -> None:
        world = World(clock)
        world.server.serve(VOLCANO_GROUPS, False)
        world.start(reconcile=reconcile)
        await clock.pass_time(60)
        world.server.serve(VOLCANO_GROUPS, True)
        world.server.create(PADDLE_JOBS, "ml", gang_job(2))
        await clock.pass_time(5)
        assert world.status("demo")["reason"] == "WaitingForGang"
        assert [e for e in world.server.all(EVENTS) if "Missing" in str(e.peek)] == []

    run_virtual(main)


def test_a_group_that_the_user_made_is_used_and_left_when_the_job_ends() -> None:
    """paddle-operator's user guide has a job and a PodGroup of its name, in one file."""

    async def main(clock: VirtualClock) -> None:
        world = World(clock)
        theirs = {"metadata": {"name": "demo", "labels": {"team": "a"}}, "spec": {"minMember": 1}}
        group = world.server.create(VOLCANO_GROUPS, "ml", theirs)
        world.start(reconcile=reconcile)
        world.server.create(PADDLE_JOBS, "ml", gang_job(2))
        await clock.pass_time(2)
        assert world.pods() == []
        phase = {"status": {"phase": "Inqueue"}}
        world.server.patch(VOLCANO_GROUPS, "ml", "demo", phase, subresource="status")
        await clock.pass_time(2)
        world.run_pods()
        await clock.pass_time(2)
        world.succeed_pods()
        await clock.pass_time(60)
        assert world.status("demo")["phase"] == "Completed"
        world.server.delete(PADDLE_JOBS, "ml", "demo")
        await clock.pass_time(60)
        left = world.server.get(VOLCANO_GROUPS, "ml", "demo")
        assert (left.uid, left.peek["spec"]) == (group.uid, {"minMember": 1})
        world.server.create(PADDLE_JOBS, "ml", gang_job(2))  # another job of that name
        await clock.pass_time(2)
        assert len(world.pods()) == 2

    run_virtual(main)


def test_only_the_given_namespaces_are_served() -> None:
    """--namespace a,b: with rights in those alone."""

    async def main(clock: VirtualClock) -> None:
        world = World(clock)
        copy = world.start(options=replace(QUIET, namespaces=("ml", "vision")))
        for namespace in ("ml", "vision", "speech"):
            manifest = toy.job_manifest("demo", 1) | {"metadata": {"name": "demo"}}
            world.server.create(PADDLE_JOBS, namespace, manifest)
        await clock.pass_time(2)
        found = sorted(s.document["metadata"]["namespace"] for s in world.server.all(PODS))
        assert found == ["ml", "vision"]
        assert len(copy.operator.controller.caches.jobs) == 2

    run_virtual(main)


def test_readiness_waits_for_the_caches_and_liveness_does_not() -> None:
    """An operator without its definition waits; restarting it would not help."""

    async def main(clock: VirtualClock) -> None:
        world = World(clock)
        world.server.serve(PADDLE_JOBS, False)
        copy = world.start()
        await clock.pass_time(5)
        controller = copy.operator.controller
        waiting = controller.caches.unsynced()
        assert waiting == ["paddlejobs.batch.paddlepaddle.org are not listed yet"]
        assert controller.hung() == []
        world.server.serve(PADDLE_JOBS, True)
        await clock.pass_time(35)
        assert controller.caches.unsynced() == []
        world.server.fail(refusals.unreachable(), times=None)
        world.server.drop_watches(error=refusals.unreachable())
        await clock.pass_time(7200)
        assert controller.hung() == []  # the server is away; that is not our fault

    run_virtual(main)


class Hasty:
    """A client whose watches lose their first cancellation, as httpx' may before Python 3.12."""

    def __init__(self, client: MemoryClient) -> None:
        self._client = client
        self.lost = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    async def stream(self, call: Any) -> Any:
        """Those of the client; the first cancellation is not heard."""
        try:
            async for change in self._client.stream(call):
                yield change
        except asyncio.CancelledError:
            self.lost += 1
            await asyncio.Event().wait()


def test_a_watch_that_loses_its_cancellation_does_not_hold_up_a_leader() -> None:
    """A new leader lists anew: it waited for its old watches for ever, and so did its end."""

    async def main(clock: VirtualClock) -> None:
        world = World(clock)
        hasty = Hasty(world.server.client("a"))
        copy = world.start("a", options=ELECTED, client=hasty)
        elector = copy.operator.elector
        assert elector is not None
        await clock.pass_time(0.5)  # within its refresh
        assert elector.fence.is_open and hasty.lost
        world.server.patch(LEASES, "paddle-system", LEASE, {"spec": {"holderIdentity": "b"}})
        await clock.pass_time(5)
        assert not elector.fence.is_open
        world.submit("demo", 2)
        await clock.pass_time(15)
        assert elector.fence.is_open and len(world.pods()) == 2
        kinds = [stream.kind for stream in world.server.open_watches if stream.client == "a"]
        assert len(kinds) == len(set(kinds))
        await copy.stop()
        assert clock.monotonic() < 30

    run_virtual(main)


def test_it_can_be_stopped_before_the_server_was_ever_there() -> None:
    """SIGTERM must not wait for caches that will never be filled."""

    async def main(clock: VirtualClock) -> float:
        world = World(clock)
        world.server.fail(refusals.unreachable(), times=None)
        copy = world.start()
        await clock.pass_time(5)
        await copy.stop()
        return clock.monotonic()

    assert run_virtual(main) < 6.0


def test_a_stop_lets_the_work_in_hand_end() -> None:
    """SIGTERM: pods being made are counted, events written; then no call more."""

    async def main(clock: VirtualClock) -> None:
        world = World(clock)

        async def pause() -> None:
            await clock.pass_time(0.4)

        looks = Looks(
            lambda o: replace(
                toy.reconcile(o, 0.0, OperatorSettings()),
                notes=(EventNote("Normal", "Looked", "again"),),
            )
        )
        copy = world.start(reconcile=looks, pause=pause)
        world.submit("demo", 2)
        await clock.pass_time(3.1)
        assert 0 < len(world.pods()) <= 2
        began = clock.monotonic()
        await copy.stop()
        assert clock.monotonic() - began <= 6.5
        assert len(world.pods()) == 2
        assert world.server.all(EVENTS) != []
        before = world.writes()
        await clock.pass_time(60)
        assert world.writes() == before

    run_virtual(main)


def test_a_stop_does_not_wait_for_ever() -> None:
    """Calls that hang are cut off after five seconds; Kubernetes gives thirty."""

    async def main(clock: VirtualClock) -> float:
        world = World(clock)
        hangs = asyncio.Event()

        async def pause() -> None:
            if hangs.is_set():
                await asyncio.Event().wait()

        copy = world.start(pause=pause)
        await clock.pass_time(2)
        world.submit("demo", 2)
        hangs.set()
        await clock.pass_time(2)
        began = clock.monotonic()
        await copy.stop()
        return clock.monotonic() - began

    assert run_virtual(main) <= 6.1


STORMS = {
    "429 without an answer when": refusals.too_many_requests(0.0),
    "429": refusals.too_many_requests(1.0),
    "500": refusals.internal_error(),
    "unreachable": refusals.unreachable(),
}


@pytest.mark.parametrize("storm", STORMS)
@pytest.mark.parametrize("lost", [False, True])
def test_storms_end_and_everything_is_as_without_them(storm: str, lost: bool) -> None:
    """Half of all calls fail for a while, some after they were carried out."""

    async def main(clock: VirtualClock) -> None:
        world = World(clock, seed=3)

        def strikes(call: Call) -> bool:
            return call.client != "witness" and world.rng.random() < 0.5

        rule = world.server.fail(STORMS[storm], times=None, when=strikes, lost=lost)
        world.start()
        for n in range(5):
            world.submit(f"j{n}", 6)
        await clock.pass_time(120)
        rule.cancel()
        await clock.pass_time(200)
        world.run_pods()
        await clock.pass_time(60)
        for n in range(5):
            assert world.status(f"j{n}")["phase"] == "Running"
        assert len(world.made) == len(set(world.made)) == 30

    run_virtual(main)


def test_restarts_are_counted_by_cause() -> None:
    """What the dashboard shows; the cause is the status's."""

    async def main(clock: VirtualClock) -> None:
        world = World(clock)

        def decide(observed: ObservedState) -> Decision:
            decision = toy.reconcile(observed, 0.0, OperatorSettings())
            status = {**(decision.status or {}), "lastFailure": {"cause": "OOMKilled"}}
            return replace(decision, status=status)

        copy = world.start(reconcile=Looks(decide))
        world.submit("demo", 2)
        await clock.pass_time(1)
        world.server.kubelet.fail("ml/demo-worker-0", 137)
        await clock.pass_time(5)
        text = copy.operator.metrics.text()
        assert 'paddock_job_restarts_total{cause="OOMKilled"} 1' in text
        assert 'paddock_jobs{phase="Pending"} 1' in text
        assert "paddock_is_leader 1" in text and "paddock_queue_depth 0" in text

    run_virtual(main)


def test_a_huge_job_is_decided_beside_the_others() -> None:
    """10,000 replicas take long to think about: the lease and other jobs must not wait."""
    threads: dict[str, int] = {}
    both = threading.Event()

    def decide(observed: ObservedState, now: float, settings: OperatorSettings) -> Decision:
        threads[observed.job.metadata.name] = threading.get_ident()
        if len(threads) == 2:
            both.set()
        elif observed.job.metadata.name == "huge":
            both.wait(20.0)  # until the small one was looked at, too
        return Decision({"phase": "Pending"})

    async def main() -> None:
        server = MemoryServer(now=time.time)
        clock, rng = Clock(), Random(0)
        log = Logger(lambda line: None, clock, level="info", form="text")
        operator = Operator(
            server.client("operator"), QUIET, decide,
            clock=clock, rng=rng, log=log, identity="operator",
        )  # fmt: skip
        stop = asyncio.Event()
        server.create(PADDLE_JOBS, "ml", toy.job_manifest("huge", 10_000))
        running = asyncio.ensure_future(operator.run(stop))
        while "huge" not in threads:
            await asyncio.sleep(0.01)  # sleep: a thread tells nobody
        server.create(PADDLE_JOBS, "ml", toy.job_manifest("small", 3))
        assert await asyncio.to_thread(both.wait, 20.0)
        stop.set()
        await running

    asyncio.run(main())
    assert threads["small"] == threading.get_ident() != threads["huge"]
