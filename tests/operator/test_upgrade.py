"""Jobs of paddle-operator that run while it is replaced: they go on, and nothing is made again."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from kube_memory import Rule, refusals
from machine.virtual import run_virtual
from machine.world import World, patch_job
from paddock.kube.client import CONFIG_MAPS, PADDLE_JOBS, PODS, SERVICES, KubeError
from paddock.kube.objects import (
    ConfigMap,
    ContainerStatus,
    Meta,
    OwnerReference,
    PaddleJob,
    Pod,
    PodStatus,
)
from paddock.operator.decision import Create, Delete, ObservedState, OperatorSettings
from paddock.operator.names import LABEL_JOB, LABEL_POD, LABEL_UID, OLD_FINALIZER
from paddock.operator.pods import meta_of
from paddock.operator.reconcile import reconcile

if TYPE_CHECKING:
    from kube_memory import Call
    from machine.virtual import VirtualClock
    from paddock.kube.client import Resource

CONTAINER = {"name": "paddle", "image": "example.invalid/none"}
SPEC = {"worker": {"replicas": 2, "template": {"spec": {"containers": [CONTAINER]}}}}
OWNER = (OwnerReference(uid="u1", kind="PaddleJob", name="old", controller=True),)


def old_pod(index: int, **status: object) -> Pod:
    """As v0.3.5 made it: paddle-res-name is its only label that we share."""
    name = f"old-worker-{index}"
    meta = Meta(
        name=name, namespace="ml", uid=f"p{index}", ownerReferences=OWNER,
        labels={"paddle-res-name": name, "paddle-res-type": "worker"},
    )  # fmt: skip
    up = (ContainerStatus("paddle", ready=True),)
    status = {"phase": "Running", "podIP": f"10.0.0.{index}", "containerStatuses": up, **status}
    return Pod(meta, status=msgspec.convert(status, PodStatus, from_attributes=True))


def observed(*pods: Pod) -> ObservedState:
    """With the old ConfigMap and the old status."""
    job = PaddleJob(
        Meta(name="old", namespace="ml", uid="u1", generation=1),
        spec=SPEC,
        status={"phase": "Running", "mode": "Collective", "worker": {"running": 2}},
    )
    config_map = ConfigMap(Meta(name="old", uid="c", labels={"paddle-res-name": "old"}), {})
    return ObservedState(job, pods, config_maps=(config_map,))


def test_a_running_job_of_the_old_operator_goes_on() -> None:
    """An upgrade that restarts every job of the cluster would not be made; names are given."""
    decision = reconcile(observed(old_pod(0), old_pod(1)), 1000.0, OperatorSettings())
    done = [(type(a).__name__, a.kind, a.name) for a in decision.actions]
    labelled = [("Patch", "Pod", "old-worker-0"), ("Patch", "Pod", "old-worker-1")]
    assert done == [("Create", "Service", "old"), *labelled]
    assert decision.status is not None
    assert (decision.status["phase"], decision.status["attempt"]) == ("Running", 0)


def test_a_job_that_is_half_made_is_finished_as_it_was_begun() -> None:
    """It began where PodIP was the default: those pods wait for the key of their own address."""
    half = replace(observed(old_pod(0)), config_maps=())
    decision = reconcile(half, 1000.0, OperatorSettings())
    made = {a.name: a.manifest for a in decision.actions if isinstance(a, Create)}
    assert set(made) == {"old", "old-worker-1"}
    env = made["old-worker-1"]["spec"]["containers"][0]["env"]  # type: ignore[index]  # a pod
    own = next(entry for entry in env if entry["name"] == "POD_IP")
    assert own["valueFrom"]["configMapKeyRef"]["key"] == "POD_IP.worker-1"


def test_what_begins_after_the_upgrade_has_names() -> None:
    """A job without pods, of whatever age, begins as a new one; an old list opens no gate of it."""
    decision = reconcile(replace(observed(), config_maps=()), 1000.0, OperatorSettings())
    made = [(a.kind, a.name) for a in decision.actions if isinstance(a, Create)]
    assert made[:2] == [("Service", "old"), ("ConfigMap", "old")]
    done = [(type(a), a.kind) for a in reconcile(observed(), 1000.0, OperatorSettings()).actions]
    assert done == [(Delete, "ConfigMap")]


def test_a_pod_of_the_old_operator_that_fails_is_named() -> None:
    """From the upgrade on the job is under the new rules."""
    decision = reconcile(
        observed(old_pod(0), old_pod(1, phase="Failed")), 1000.0, OperatorSettings()
    )
    assert decision.status is not None
    assert decision.status["phase"] == "Failed"
    assert "worker-1 failed first" in str(decision.status["message"])


# ---------------------------------------------------- with the real controller, in made-up time


def before_the_upgrade(world: World, intranet: str = "PodIP") -> None:
    """A job as v0.3.5 leaves it: its Services have no labels at all (it lists by owner)."""
    spec = {**SPEC, "intranet": intranet}
    made = world.server.create(PADDLE_JOBS, "ml", {"metadata": {"name": "old"}, "spec": spec})
    owners = meta_of(made.read(PaddleJob), "old")["ownerReferences"]
    for name in ("old-worker-0", "old-worker-1"):
        meta = {"name": name, "ownerReferences": owners}
        world.server.create(SERVICES, "ml", {"metadata": meta, "spec": {"ports": [{"port": 80}]}})
        labels = {"paddle-res-name": name, "paddle-res-type": "worker"}
        manifest = {"metadata": {**meta, "labels": labels}, "spec": {"containers": [CONTAINER]}}
        world.server.create(PODS, "ml", manifest)
    world.run_pods()


def test_services_of_the_old_operator_are_taken_over() -> None:
    """Made again at each look, each time they were waited for: ends came 30 s late."""

    async def main(clock: VirtualClock) -> None:
        world = World(clock)
        before_the_upgrade(world, "Service")
        world.start(reconcile=reconcile)
        await clock.pass_time(2)
        assert world.status("old")["phase"] == "Running"
        world.succeed_pods()
        await clock.pass_time(1)
        assert world.status("old")["phase"] == "Completed"
        assert world.server.counts["create", "services", ""] == 3  # and the job's
        assert world.made == [("old-worker-0", ""), ("old-worker-1", "")]

    run_virtual(main)


@pytest.mark.parametrize("theirs", [["b/y"], ["a/x", OLD_FINALIZER, "b/y"], [OLD_FINALIZER, "b/y"]])
def test_only_the_old_operators_own_finalizer_is_taken_away(theirs: list[str]) -> None:
    """Somebody adds one in the moment before: a list sent as a whole took that one away, too."""

    async def main(clock: VirtualClock) -> None:
        world = World(clock)
        meddled: list[Call] = []

        def meddle(call: Call) -> bool:
            if (call.verb, call.resource, call.subresource) == ("patch", PADDLE_JOBS, ""):
                meddled.append(call)
            if len(meddled) == 1:
                meddled.append(call)
                patch_job(world, "old", {"metadata": {"finalizers": theirs}})
            return False

        world.server.fail(refusals.unreachable(), times=None, when=meddle)
        meta = {"name": "old", "finalizers": [OLD_FINALIZER]}
        world.server.create(PADDLE_JOBS, "ml", {"metadata": meta, "spec": SPEC})
        world.start(reconcile=reconcile)
        await clock.pass_time(5)
        assert meddled
        assert world.job("old")["metadata"]["finalizers"] == [f for f in theirs if f[1] == "/"]

    run_virtual(main)


# What the definition of v0.3.5 keeps of a status; an unknown field is dropped.
KEPT = {"phase", "mode", "elastic", "observedGeneration", "startTime", "completionTime",
        "ps", "worker", "heter"}  # fmt: skip


def under_the_old_definition(world: World, intranet: str) -> None:
    """A job that runs, of which the server keeps what the old definition knows."""
    put = world.server.store.put

    def pruning(kind: str, document: Any) -> Any:
        if kind.startswith(PADDLE_JOBS.plural):
            status = document.get("status") or {}
            for name in status.keys() - KEPT:
                del status[name]
        return put(kind, document)

    world.server.store.put = pruning  # type: ignore[method-assign]  # the edge is faked
    world.start(reconcile=reconcile)
    spec = {**SPEC, "intranet": intranet}
    world.server.create(PADDLE_JOBS, "ml", {"metadata": {"name": "new"}, "spec": spec})


def uids(world: World) -> dict[str, str]:
    """Of the pods, by name."""
    metas = [stored.peek["metadata"] for stored in world.server.all(PODS, "ml")]
    return {meta["name"]: meta["uid"] for meta in metas}


async def play(world: World, clock: VirtualClock, seconds: int) -> None:
    """Deleted pods go, the others run."""
    for _ in range(seconds):
        await clock.pass_time(1)
        for stored in world.server.all(PODS, "ml"):
            if stored.peek["metadata"].get("deletionTimestamp"):
                world.server.kubelet.let_go(f"ml/{stored.peek['metadata']['name']}")
            elif stored.peek["status"].get("phase") == "Pending":
                world.server.kubelet.run(f"ml/{stored.peek['metadata']['name']}")


@pytest.mark.parametrize("intranet", ["PodIP", "DNS"])
def test_under_the_old_definition_the_gang_begins_again(intranet: str) -> None:
    """With names only a pod's companions were left, in the middle of what it had computed."""

    async def main(clock: VirtualClock) -> None:
        world = World(clock)
        under_the_old_definition(world, intranet)
        await play(world, clock, 5)
        assert world.status("new")["phase"] == "Running"
        assert not world.status("new").keys() - KEPT
        before = uids(world)
        world.server.delete(PODS, "ml", "new-worker-1")
        await play(world, clock, 10)
        assert world.status("new")["phase"] == "Running"
        after = uids(world)
        assert (after.keys(), set(after.values()) & set(before.values())) == (before.keys(), set())

    run_virtual(main)


def test_under_the_old_definition_a_program_that_fails_at_once_ends_the_job() -> None:
    """Nothing says when all had addresses: it was made again for ever."""

    async def main(clock: VirtualClock) -> None:
        world = World(clock)
        under_the_old_definition(world, "DNS")
        await clock.pass_time(2)
        for _ in range(5):
            if world.status("new")["phase"] != "Failed":
                world.server.kubelet.schedule("ml/new-worker-0")
                world.server.kubelet.run("ml/new-worker-0")
                world.server.kubelet.run("ml/new-worker-1")
                world.server.kubelet.fail("ml/new-worker-1", 1)
            await clock.pass_time(2)
        assert world.status("new")["phase"] == "Failed"
        assert world.made.count(("new-worker-1", "0")) == 1

    run_virtual(main)


STRIPPED = [
    *((PODS, label) for label in (LABEL_POD, LABEL_JOB, LABEL_UID)),
    (SERVICES, LABEL_JOB), (CONFIG_MAPS, LABEL_POD),
]  # fmt: skip


@pytest.mark.parametrize("moment", ["before the start", "while it runs"])
@pytest.mark.parametrize(("resource", "label"), STRIPPED, ids=lambda x: getattr(x, "kind", x))
def test_a_job_goes_on_when_somebody_removes_a_label(
    resource: Resource[Any], label: str, moment: str
) -> None:
    """Our caches do not see such an object, and the API server has its name: both are known."""

    async def main(clock: VirtualClock) -> None:
        world = World(clock)
        world.start(reconcile=reconcile)
        spec = {**SPEC, "intranet": "Service", "backoffLimit": 3}
        world.server.create(PADDLE_JOBS, "ml", {"metadata": {"name": "new"}, "spec": spec})
        await clock.pass_time(1)
        if moment == "while it runs":
            world.run_pods()
            await clock.pass_time(1)
        change = {"metadata": {"labels": {label: None}}}
        stored = world.server.all(resource, "ml")
        if stored:
            world.server.patch(resource, "ml", stored[-1].peek["metadata"]["name"], change)
        for _ in range(5):
            await clock.pass_time(1)
            for pod in world.server.all(PODS, "ml"):
                if pod.peek["metadata"].get("deletionTimestamp"):
                    world.server.kubelet.let_go(f"ml/{pod.peek['metadata']['name']}")
            world.run_pods()
        await clock.pass_time(1)
        status = world.status("new")
        assert (status["phase"], status["ready"], status["attempt"]) == ("Running", "2/2", 0)
        creates = sum(n for (verb, _, _), n in world.server.counts.items() if verb == "create")
        assert creates < 25
        for kind, wanted in ((PODS, {LABEL_POD, LABEL_JOB, LABEL_UID}), (SERVICES, {LABEL_JOB})):
            for one in world.server.all(kind, "ml"):
                assert wanted <= one.peek["metadata"]["labels"].keys()

    run_virtual(main)


BUSY = KubeError("busy", status=503, reason="ServiceUnavailable")


@pytest.mark.parametrize("moment", ["once busy", "no answer", "always busy", "taken away again"])
def test_a_label_that_cannot_be_given_back_at_once(moment: str) -> None:
    """A moment of the API server must not end a gang that runs. Where the label cannot be had, the
    pod counts as deleted: of one that no watch tells of, the job would wait for the end for ever.
    """

    async def main(clock: VirtualClock) -> None:
        world = World(clock)
        world.start(reconcile=reconcile)
        spec = {**SPEC, "backoffLimit": 3}
        world.server.create(PADDLE_JOBS, "ml", {"metadata": {"name": "new"}, "spec": spec})
        await clock.pass_time(1)
        world.run_pods()
        await clock.pass_time(1)

        def is_asked(call: Call) -> bool:
            is_it = call.verb == "patch" and call.resource is PODS and call.client == "operator-0"
            if is_it and moment == "taken away again":
                call.body["metadata"]["labels"][LABEL_POD] = None
                return False
            return is_it

        error = KubeError("no answer") if moment == "no answer" else BUSY
        times = None if moment == "always busy" else 1
        world.server.faults.add(Rule(error, is_asked, times, moment == "no answer"))
        change = {"metadata": {"labels": {LABEL_POD: None}}}
        world.server.patch(PODS, "ml", "new-worker-1", change)
        await clock.pass_time(10)
        status = world.status("new")
        is_seen = moment in ("once busy", "no answer")
        assert (status["phase"], status["attempt"]) == (
            ("Running", 0) if is_seen else ("Restarting", 1)
        )

    run_virtual(main)
