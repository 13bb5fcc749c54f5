"""Carrying out decisions: status first and only when it differs, then actions, kindly."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from kube_memory import refusals
from machine import toy
from machine.virtual import run_virtual
from machine.world import World, patch_job
from paddock.kube.client import CONFIG_MAPS, EVENTS, PADDLE_JOBS, PODS
from paddock.operator.decision import (
    Create,
    Decision,
    Delete,
    EventNote,
    ObservedState,
    OperatorSettings,
    Patch,
)
from paddock.operator.names import LABEL_JOB, LABEL_POD
from paddock.operator.runtime.executor import Executor
from paddock.operator.runtime.job_record import FailedCalls, JobRecord

if TYPE_CHECKING:
    from kube_memory import Call
    from machine.virtual import VirtualClock

STATUS = ("patch", "paddlejobs.batch.paddlepaddle.org", "status")


def deciding(*decisions: Decision) -> Any:
    """A reconcile that answers these one after the other, and the last one from then on."""
    left = list(decisions)

    def reconcile(_observed: ObservedState, _now: float, _settings: OperatorSettings) -> Decision:
        return left.pop(0) if len(left) > 1 else left[0]

    return reconcile


def is_pod(call: Call) -> bool:
    """Creates of pods."""
    return call.verb == "create" and call.resource is PODS


def test_an_equal_status_is_not_written() -> None:
    """Whatever the order of its fields, and with nulls in it: there is nothing to say."""

    async def main(clock: VirtualClock) -> None:
        world = World(clock)
        first = Decision({"phase": "Running", "worker": {"running": 1, "refs": ["a"]}})
        again = Decision({"worker": {"refs": ("a",), "running": 1, "x": None}, "phase": "Running"})
        world.start(reconcile=deciding(first, again))
        world.submit("demo", 1)
        await clock.pass_time(1)
        for n in range(5):
            patch_job(world, "demo", {"metadata": {"labels": {"n": str(n)}}})
            await clock.pass_time(1)
        assert world.server.counts[STATUS] == 1
        assert world.status("demo") == {"phase": "Running", "worker": {"running": 1, "refs": ["a"]}}

    run_virtual(main)


def test_fields_that_went_are_removed() -> None:
    """The status is what was decided, not a heap of all that ever was."""

    async def main(clock: VirtualClock) -> None:
        world = World(clock)
        world.start(
            reconcile=deciding(
                Decision({"phase": "Running", "worker": {"running": 1}, "message": "x"}),
                Decision({"phase": "Failed", "worker": {"failed": 1}}),
            )
        )
        world.submit("demo", 1)
        await clock.pass_time(1)
        patch_job(world, "demo", {"metadata": {"labels": {"a": "b"}}})
        await clock.pass_time(1)
        assert world.status("demo") == {"phase": "Failed", "worker": {"failed": 1}}

    run_virtual(main)


def test_an_older_definition_that_drops_fields_is_not_written_for_ever() -> None:
    """paddle-operator's own definition has no conditions: they vanish from every answer.

    Once more when somebody touches the job: the definition may have been replaced meanwhile.
    """

    async def main(clock: VirtualClock) -> None:
        world = World(clock)
        prune_statuses(world)
        decision = Decision({"phase": "Running", "conditions": [{"type": "Running"}]})
        world.start(reconcile=deciding(decision))
        world.submit("demo", 1)
        await clock.pass_time(60)
        assert world.server.counts[STATUS] == 1
        for n in range(5):
            patch_job(world, "demo", {"metadata": {"labels": {"n": str(n)}}})
            await clock.pass_time(60)
        assert world.server.counts[STATUS] == 1 + 5
        assert world.status("demo") == {"phase": "Running"}

    run_virtual(main)


def prune_statuses(world: World) -> None:
    """Let the server drop status.conditions, as a structural schema without them does."""
    put = world.server.store.put

    def pruning(kind: str, document: Any) -> Any:
        document.get("status", {}).pop("conditions", None)
        return put(kind, document)

    world.server.store.put = pruning  # type: ignore[method-assign]  # the edge is faked


def test_nothing_is_done_when_the_status_is_refused() -> None:
    """The intention must be on record first: what cannot be written must not be acted on."""

    async def main(clock: VirtualClock) -> None:
        world = World(clock)
        world.start()
        refused = world.server.fail(
            refusals.forbidden(PADDLE_JOBS, "demo", "no right"),
            times=None,
            when=lambda call: call.subresource == "status",
        )
        world.submit("demo", 2)
        await clock.pass_time(60)
        assert world.pods() == []
        assert 5 < world.server.counts[STATUS] < 30
        refused.cancel()
        await clock.pass_time(60)
        assert len(world.pods()) == 2

    run_virtual(main)


@pytest.mark.parametrize(("times", "told"), [(4, []), (None, ["StatusRefused"])])
def test_a_lasting_refusal_of_the_status_is_told(times: int | None, told: list[str]) -> None:
    """An API server that has just begun says 403 until it has read the roles: that passes."""

    async def main(clock: VirtualClock) -> None:
        world = World(clock)
        world.server.fail(
            refusals.forbidden(PADDLE_JOBS, "demo", "no right"),
            times=times,
            when=lambda call: call.subresource == "status",
        )
        world.start()
        world.submit("demo", 2)
        await clock.pass_time(10)
        reasons = [e.peek["reason"] for e in world.server.all(EVENTS)]
        assert [reason for reason in reasons if reason == "StatusRefused"] == told

    run_virtual(main)


def test_a_status_on_a_stale_version_is_refused_and_decided_again() -> None:
    """Somebody else wrote between our look and our write; nothing of theirs is lost."""

    async def main(clock: VirtualClock) -> None:
        world = World(clock)
        world.server.faults.watch_delay = lambda: 0.5
        world.start()
        await clock.pass_time(0.4)
        world.submit("demo", 5)
        await clock.pass_time(0.605)  # it has heard of the job, and looks at it in 20 ms
        patch_job(world, "demo", {"spec": {"worker": {"replicas": 1}}})
        await clock.pass_time(10)
        assert world.made == [("demo-worker-0", "0")]
        assert world.status("demo")["message"] == "1/1 pods"

    run_virtual(main)


def test_a_status_that_somebody_else_wrote_is_never_overwritten_unseen() -> None:
    """The leader before us began attempt 3 while our news was late; back to 0 would be fatal."""

    async def main(clock: VirtualClock) -> None:
        world = World(clock)
        world.server.faults.watch_delay = lambda: 0.5
        world.start()
        await clock.pass_time(0.4)
        world.submit("demo", 2)
        await clock.pass_time(0.605)
        world.server.patch(
            PADDLE_JOBS, "ml", "demo", {"status": {"attempt": 3}}, subresource="status"
        )
        await clock.pass_time(10)
        assert world.made == [("demo-worker-0", "3"), ("demo-worker-1", "3")]

    run_virtual(main)


def test_pods_are_made_in_growing_batches() -> None:
    """1, 2, 4, ... so that the first refusal comes before the flood."""

    async def main(clock: VirtualClock) -> None:
        world = World(clock)
        at: list[float] = []

        async def pause() -> None:
            await clock.pass_time(0.125)  # before and after: a quarter of a second a call

        world.start(pause=pause)
        world.submit("demo", 20)
        moments: dict[float, int] = {}
        while sum(moments.values()) < 20:
            before = len(world.pods())
            await clock.pass_time(0.25)
            made = len(world.pods()) - before
            if made:
                moments[clock.monotonic()] = made
            assert clock.monotonic() < 60
        assert list(moments.values()) == [1, 2, 4, 8, 5]
        assert at == []

    run_virtual(main)


def test_a_quota_costs_few_calls_and_the_reason_is_shown() -> None:
    """100 pods of which 5 fit: the refusal is in the status at once, and nobody is stormed."""

    async def main(clock: VirtualClock) -> None:
        world = World(clock)
        world.server.set_quota("ml", 5)
        world.start()
        world.submit("demo", 100)
        await clock.pass_time(2)
        assert len(world.pods()) == 5
        assert "exceeded quota" in world.status("demo")["message"]
        await clock.pass_time(600)
        # 5 made, a batch refused, and one after each pause since.
        assert world.server.counts["create", "pods", ""] < 30
        world.server.set_quota("ml", None)
        await clock.pass_time(120)
        assert len(world.pods()) == 100
        assert world.status("demo")["message"] == "100/100 pods"

    run_virtual(main)


def test_a_change_of_the_job_is_tried_at_once() -> None:
    """The user has mended what was refused: why wait a minute?"""

    async def main(clock: VirtualClock) -> None:
        world = World(clock)
        broken = world.server.fail(refusals.invalid(PODS, "p", []), times=None, when=is_pod)
        world.start()
        world.submit("demo", 1)
        await clock.pass_time(300)
        broken.cancel()
        patch_job(world, "demo", {"spec": {"worker": {"replicas": 2}}})
        await clock.pass_time(1)
        assert len(world.pods()) == 2

    run_virtual(main)


def test_somebody_elses_pod_of_our_name_is_reported_and_left_alone() -> None:
    """Never adopted, never deleted; the other pods are made."""

    async def main(clock: VirtualClock) -> None:
        world = World(clock)
        world.start()
        spec = {"containers": [{"name": "c", "image": "i"}]}
        theirs = {"metadata": {"name": "demo-worker-1", "labels": {"of": "them"}}, "spec": spec}
        uid = world.server.create(PODS, "ml", theirs).uid
        world.submit("demo", 3)
        await clock.pass_time(5)
        assert world.pods() == ["demo-worker-0", "demo-worker-1", "demo-worker-2"]
        assert world.server.get(PODS, "ml", "demo-worker-1").uid == uid
        assert "already exists" in world.status("demo")["message"]
        world.server.delete(PODS, "ml", "demo-worker-1")
        await clock.pass_time(70)
        assert world.status("demo")["message"] == "3/3 pods"

    run_virtual(main)


def test_the_pods_of_a_deleted_job_do_not_hold_up_the_next_of_its_name() -> None:
    """They may take their grace of 30 s, by when the pause between two tries is 30 s as well."""

    async def main(clock: VirtualClock) -> None:
        world = World(clock)
        world.start()
        spec = {"containers": [{"name": "c", "image": "i"}]}
        labels = {LABEL_POD: "demo-worker-0", LABEL_JOB: "demo"}
        old = {"metadata": {"name": "demo-worker-0", "labels": labels}, "spec": spec}
        world.server.create(PODS, "ml", old)
        world.submit("demo", 1)
        await clock.pass_time(40)
        assert "already exists" in world.status("demo")["message"]
        world.server.delete(PODS, "ml", "demo-worker-0")
        await clock.pass_time(1)
        assert world.status("demo")["message"] == "1/1 pods"

    run_virtual(main)


def test_an_answer_that_was_lost_makes_no_second_pod_and_no_alarm() -> None:
    """The connection broke after the pod was made: the retry finds it, and it is ours."""

    async def main(clock: VirtualClock) -> None:
        world = World(clock)
        world.server.faults.watch_delay = lambda: 3.0
        world.server.fail(refusals.unreachable(), times=2, when=is_pod, lost=True)
        world.start()
        world.submit("demo", 3)
        messages = set()
        for _ in range(60):
            await clock.pass_time(0.5)
            messages.add(world.status("demo").get("message", ""))
        assert world.status("demo")["message"] == "3/3 pods"
        assert sorted(world.made) == [(f"demo-worker-{n}", "0") for n in range(3)]
        assert not any("already exists" in message for message in messages)

    run_virtual(main)


def test_a_pod_is_not_made_again_while_the_watch_is_behind() -> None:
    """Two seconds of delay, and dozens of reasons to look at the job meanwhile."""

    async def main(clock: VirtualClock) -> None:
        world = World(clock)
        world.start()
        world.submit("demo", 4)
        world.server.faults.watch_delay = lambda: 2.0
        for n in range(40):
            patch_job(world, "demo", {"metadata": {"labels": {"n": str(n)}}})
            await clock.pass_time(0.25)
        assert world.server.counts["create", "pods", ""] == 4
        assert len(world.pods()) == 4

    run_virtual(main)


@pytest.mark.parametrize("error", [refusals.internal_error(), refusals.unreachable()])
def test_a_server_in_trouble_is_asked_once_for_each_kind(error: Any) -> None:
    """50 pods that cannot be made now are one call; they do not hang on the Service, though."""

    async def main(clock: VirtualClock) -> None:
        world = World(clock)
        world.server.fail(error, times=None, when=lambda c: c.verb == "create")
        world.start()
        world.submit("demo", 50)
        await clock.pass_time(0.9)
        creates = sum(n for (verb, _, _), n in world.server.counts.items() if verb == "create")
        assert creates == 2
        service = world.server.counts["create", "services", ""]
        assert service == 1

    run_virtual(main)


def one_of_each(observed: ObservedState) -> Decision:
    """Patch the pod, delete the ConfigMap, by what there is."""
    job = observed.job
    told: Any = {"metadata": {"labels": {"told": "yes"}}}
    pods = [p for p in observed.pods if p.metadata.label("told") != "yes"]
    return Decision(
        {"phase": "Running"},
        (
            *(Patch("Pod", p.metadata.name, p.metadata.uid, told) for p in pods),
            *(Delete("ConfigMap", c.metadata.name, c.metadata.uid) for c in observed.config_maps),
            *(() if observed.pods else (toy.child(job, "Pod", "demo-worker-0", 0),)),
        ),
    )  # fmt: skip


def test_patches_and_deletes_reach_exactly_their_object() -> None:
    """By uid: an object that took the name of another is not touched."""

    async def main(clock: VirtualClock) -> None:
        world = World(clock)
        world.start(reconcile=lambda observed, _now, _settings: one_of_each(observed))
        world.submit("demo", 1)
        await clock.pass_time(2)
        pod = world.server.get(PODS, "ml", "demo-worker-0").document
        assert pod["metadata"]["labels"]["told"] == "yes"
        assert world.server.counts["patch", "pods", ""] == 1
        owner = pod["metadata"]["ownerReferences"]
        labels = {"paddle-res-name": "demo"}
        meta = {"name": "demo", "ownerReferences": owner, "labels": labels}
        world.server.create(CONFIG_MAPS, "ml", {"metadata": meta})
        await clock.pass_time(2)
        assert world.server.all(CONFIG_MAPS, "ml") == []
        assert world.server.counts["delete", "configmaps", ""] == 1

    run_virtual(main)


def test_a_deletion_that_rules_forbid_is_an_event_once() -> None:
    """No status tells of it: the job is suspended, say, and its pods run on."""

    async def main(clock: VirtualClock) -> None:
        world = World(clock)
        world.start(reconcile=lambda observed, _now, _settings: one_of_each(observed))
        world.server.fail(
            refusals.forbidden(CONFIG_MAPS, "demo", "not on Sundays"), times=None,
            when=lambda call: call.verb == "delete" and call.resource == CONFIG_MAPS,
        )  # fmt: skip
        world.submit("demo", 1)
        await clock.pass_time(2)
        owner = world.server.get(PODS, "ml", "demo-worker-0").document["metadata"]
        meta = {
            "name": "demo", "ownerReferences": owner["ownerReferences"],
            "labels": {"paddle-res-name": "demo"},
        }  # fmt: skip
        world.server.create(CONFIG_MAPS, "ml", {"metadata": meta})
        await clock.pass_time(100)
        assert world.server.counts["delete", "configmaps", ""] >= 5
        told = [e.document for e in world.server.all(EVENTS, "ml")]
        (event,) = (e for e in told if "not on Sundays" in e["note"])
        assert event["note"].startswith("cannot delete ConfigMap demo: ")
        assert (event["type"], event["reason"], "series" in event) == (
            "Warning", "Forbidden", False
        )  # fmt: skip

    run_virtual(main)


def test_calls_on_objects_that_are_gone_or_replaced_are_done() -> None:
    """404 and another uid: what was wanted is the case already."""

    async def main(clock: VirtualClock) -> None:
        world = World(clock)
        stale = (
            Delete("Pod", "gone", "u-1"),
            Patch("Pod", "gone", "u-1", {"metadata": {"labels": {"a": "b"}}}),
            Delete("Pod", "other", "u-2"),
            Patch("Pod", "other", "u-2", {"metadata": {"labels": {"a": "b"}}}),
        )
        spec = {"containers": [{"name": "c", "image": "i"}]}
        world.server.create(PODS, "ml", {"metadata": {"name": "other"}, "spec": spec})
        seen: list[int] = []

        def reconcile(
            observed: ObservedState, _now: float, _settings: OperatorSettings
        ) -> Decision:
            seen.append(len(observed.failed_calls))
            return Decision({"phase": "Running"}, stale)

        world.start(reconcile=reconcile)
        world.submit("demo", 1)
        await clock.pass_time(60)
        assert set(seen) == {0} and len(seen) < 5
        assert "labels" not in world.server.get(PODS, "ml", "other").document["metadata"]

    run_virtual(main)


def test_a_patch_that_changes_nothing_holds_nothing_up() -> None:
    """No change will ever be seen of it: waiting for one would block the job for half a minute."""

    async def main(clock: VirtualClock) -> None:
        world = World(clock)

        def reconcile(
            observed: ObservedState, _now: float, _settings: OperatorSettings
        ) -> Decision:
            change: Any = {"metadata": {"labels": {"kept": "yes"}}}
            pods = [p.metadata for p in observed.pods]
            actions = [Patch("Pod", m.name, m.uid, change) for m in pods]
            made = toy.child(observed.job, "Pod", "demo-worker-0", 0)
            status = {"n": observed.job.metadata.label("n")}
            return Decision(status, tuple(actions) if pods else (made,))

        world.start(reconcile=reconcile)
        world.submit("demo", 1)
        for n in range(5):
            patch_job(world, "demo", {"metadata": {"labels": {"n": str(n)}}})
            await clock.pass_time(1)
            assert world.status("demo") == {"n": str(n)}
        assert world.server.counts["patch", "pods", ""] > 3

    run_virtual(main)


def test_a_pod_that_is_going_already_is_not_waited_for() -> None:
    """Deleted by force, it is held by somebody's finalizer: the job goes on meanwhile."""

    async def main(clock: VirtualClock) -> None:
        world = World(clock)
        looks: list[float] = []

        def reconcile(observed: ObservedState, now: float, _settings: OperatorSettings) -> Decision:
            looks.append(now)
            going = [p.metadata for p in observed.pods if p.metadata.deletionTimestamp]
            status = {"phase": "Running", "at": str(observed.job.metadata.label("n"))}
            return Decision(
                status, tuple(Delete("Pod", m.name, m.uid, grace_seconds=0) for m in going)
            )

        world.start(reconcile=reconcile)
        world.submit("demo", 1)
        job = world.server.get(PADDLE_JOBS, "ml", "demo").read(PADDLE_JOBS.shape)
        manifest: Any = toy.child(job, "Pod", "demo-worker-0", 0).manifest
        manifest["metadata"]["finalizers"] = ["some.body/keeps-it"]
        world.server.create(PODS, "ml", manifest)
        world.server.kubelet.schedule("ml/demo-worker-0")
        world.server.delete(PODS, "ml", "demo-worker-0")
        await clock.pass_time(2)
        for n in range(5):
            patch_job(world, "demo", {"metadata": {"labels": {"n": str(n)}}})
            await clock.pass_time(1)
            assert world.status("demo")["at"] == str(n)

    run_virtual(main)


def test_our_own_pod_that_came_into_the_cache_meanwhile_is_not_waited_for() -> None:
    """Its news will not come again."""

    async def main(clock: VirtualClock) -> None:
        world = World(clock)
        world.submit("demo", 1)
        job = world.server.get(PADDLE_JOBS, "ml", "demo").read(PADDLE_JOBS.shape)
        action = toy.child(job, "Pod", "demo-worker-0", 0)
        made = world.server.create(PODS, "ml", action.manifest)
        caches = world.start().operator.controller.caches
        await clock.pass_time(1)
        caches.stores["Pod"].put(made.read(PODS.shape))
        executor = Executor(world.server.client(), caches.stores, clock=clock, log=world.log)
        memory = JobRecord(1, FailedCalls(world.rng))
        await executor.carry_out(job, memory, Decision(actions=(action,)))
        assert len(memory.faults) == 0 and len(memory.expectations) == 0

    run_virtual(main)


def test_our_own_status_is_known_before_the_watch_brings_it() -> None:
    """The job's watch is dead, the pods' is not: what they do is still written."""

    async def main(clock: VirtualClock) -> None:
        world = World(clock)
        world.start()
        await clock.pass_time(1)
        world.submit("demo", 2)
        await clock.pass_time(0.01)  # told, and looked at in 20 ms
        world.server.silence_watches(lambda stream: stream.kind.startswith("paddlejobs"))
        await clock.pass_time(1)
        world.run_pods()
        await clock.pass_time(1)
        assert world.status("demo")["phase"] == "Running"

    run_virtual(main)


def test_a_conflict_that_no_news_explains_is_tried_again() -> None:
    """Nothing may depend on an event that does not come."""

    async def main(clock: VirtualClock) -> None:
        world = World(clock)
        world.server.fail(
            refusals.stale(PADDLE_JOBS, "demo"), times=3, when=lambda c: c.subresource == "status"
        )
        world.start()
        world.submit("demo", 2)
        await clock.pass_time(2)
        assert len(world.pods()) == 2

    run_virtual(main)


def test_a_job_that_is_deleted_while_pods_are_made_gets_no_more_of_them() -> None:
    """A thousand pods for a job that nobody wants would only be thrown away."""

    async def main(clock: VirtualClock) -> None:
        world = World(clock)

        async def pause() -> None:
            await clock.pass_time(0.1)

        world.start(pause=pause)
        world.submit("demo", 1000)
        await clock.pass_time(1.5)
        made = len(world.pods())
        assert 0 < made < 1000
        world.server.delete(PADDLE_JOBS, "ml", "demo")
        await clock.pass_time(30)
        assert len(world.made) <= made + 64
        assert world.pods() == []

    run_virtual(main)


def test_the_job_itself_can_be_patched_and_deleted() -> None:
    """The old operator's finalizer is taken away, and a job that has outlived its ttl goes."""

    async def main(clock: VirtualClock) -> None:
        world = World(clock)

        def reconcile(observed: ObservedState, now: float, _settings: OperatorSettings) -> Decision:
            meta = observed.job.metadata
            if meta.finalizers:
                change = {"metadata": {"finalizers": []}}
                return Decision(
                    {"phase": "Running"}, (Patch("PaddleJob", meta.name, meta.uid, change),)
                )
            return Decision(
                {"phase": "Completed"}, (Delete("PaddleJob", meta.name, meta.uid, why="ttl"),)
            )

        world.start(reconcile=reconcile)
        manifest = toy.job_manifest("demo", 1)
        manifest["metadata"] = {"name": "demo", "finalizers": ["finalizers.paddlepaddle.org"]}
        world.server.create(PADDLE_JOBS, "ml", manifest)
        await clock.pass_time(5)
        assert world.server.all(PADDLE_JOBS, "ml") == []

    run_virtual(main)


def test_notes_are_told_once_the_status_is_written() -> None:
    """An event about something that was then decided otherwise would be a lie."""

    async def main(clock: VirtualClock) -> None:
        world = World(clock)
        world.server.fail(
            refusals.internal_error(), times=3, when=lambda c: c.subresource == "status"
        )
        note = EventNote("Normal", "Started", "begun")
        world.start(
            reconcile=deciding(
                *[Decision({"phase": "Running"}, notes=(note,))] * 4, Decision({"phase": "Running"})
            )
        )
        world.submit("demo", 1)
        await clock.pass_time(5)
        assert world.server.counts["create", "events.events.k8s.io", ""] == 1
        assert world.server.counts["patch", "events.events.k8s.io", ""] == 0

    run_virtual(main)


def test_a_create_without_our_label_is_refused_by_the_cache_only_once() -> None:
    """A manifest that the caches would never see must not be made again and again."""

    async def main(clock: VirtualClock) -> None:
        world = World(clock)

        def reconcile(
            observed: ObservedState, _now: float, _settings: OperatorSettings
        ) -> Decision:
            made = toy.child(observed.job, "Pod", "demo-worker-0", 0)
            manifest: Any = dict(made.manifest)
            manifest["metadata"] = {**manifest["metadata"], "labels": {}}
            action = Create("Pod", "demo-worker-0", manifest)
            return Decision({"phase": "Running"}, () if observed.pods else (action,))

        world.start(reconcile=reconcile)
        world.submit("demo", 1)
        await clock.pass_time(300)
        assert world.server.counts["create", "pods", ""] <= 12

    run_virtual(main)
