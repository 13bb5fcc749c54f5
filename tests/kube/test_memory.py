"""The server in memory: faults that tests order, what time does, and that it stays apart.

What it does as the real one is checked by client_twins.py.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from kube.memory_world import World, pod, taken
from kube_memory import refusals
from paddock.kube.client import (
    CONFIG_MAPS,
    PADDLE_JOBS,
    PODS,
    VOLCANO_GROUPS,
    KubeError,
    Query,
)

if TYPE_CHECKING:
    from kube_memory import Call

JOBS = "paddlejobs.batch.paddlepaddle.org"


async def refused(call: Any) -> KubeError:
    """The error of a call that must fail."""
    with pytest.raises(KubeError) as caught:
        await call
    return caught.value


# ---------------------------------------------------------------------------------- faults of calls


def test_next_calls_that_fit_fail_and_then_no_more() -> None:
    """A test says which call, how often and how; nothing else is touched."""

    async def scenario(world: World) -> None:
        def creates(call: Call) -> bool:
            return call.verb == "create" and call.name == "a"

        world.server.fail(refusals.internal_error(), times=2, when=creates)
        for _ in range(2):
            assert (await refused(world.client.create(PODS, "ml", pod("a")))).status == 500
            await world.client.page(PODS, Query())
        await world.client.create(PODS, "ml", pod("a"))

    World.run(scenario)


def test_storm_lasts_until_it_is_called_off() -> None:
    """429 to everybody: what an overloaded server says, with the time to wait."""

    async def scenario(world: World) -> None:
        storm = world.server.fail(refusals.too_many_requests(3.0), times=None)
        errors = [await refused(world.client.page(PODS, Query())) for _ in range(5)]
        assert {(error.status, error.retry_after) for error in errors} == {(429, 3.0)}
        assert len({id(error) for error in errors}) == 5
        storm.cancel()
        assert (await world.client.page(PODS, Query())).items == ()

    World.run(scenario)


def test_lost_answer_leaves_the_object_behind() -> None:
    """The hardest fault: the pod exists, and who made it does not know."""

    async def scenario(world: World) -> None:
        world.server.fail(refusals.unreachable(), lost=True)
        error = await refused(world.client.create(PODS, "ml", pod("a")))
        assert (error.status, error.retryable) == (0, True)
        error = await refused(world.client.create(PODS, "ml", pod("a")))
        assert error.reason == "AlreadyExists"

    World.run(scenario)


def test_faults_can_be_for_one_client_only() -> None:
    """One of two operators is cut off: the other must lead."""

    async def scenario(world: World) -> None:
        other = world.server.client("other")
        world.server.fail(
            refusals.unreachable(), times=None, when=lambda call: call.client == "other"
        )
        assert (await refused(other.page(PODS, Query()))).status == 0
        await world.client.page(PODS, Query())

    World.run(scenario)


def test_admission_is_refused_by_what_a_manifest_says() -> None:
    """A webhook that wants a label on every pod."""

    async def scenario(world: World) -> None:
        denied = refusals.forbidden(PODS, "a", 'admission webhook "w" denied the request: no team')
        world.server.fail(
            denied, times=None,
            when=lambda call: call.verb == "create"
            and "team" not in (call.body["metadata"].get("labels") or {}),
        )  # fmt: skip
        error = await refused(world.client.create(PODS, "ml", pod("a")))
        assert "denied the request" in error.message
        await world.client.create(PODS, "ml", pod("a", labels={"team": "x"}))

    World.run(scenario)


def test_custom_kinds_are_checked_by_a_function() -> None:
    """There is no schema in memory; a simulation gives one, in Python."""

    async def scenario(world: World) -> None:
        world.server.checks[JOBS] = lambda job: (
            [] if job.get("spec") else [("spec", "Required value")]
        )
        error = await refused(world.client.create(PADDLE_JOBS, "ml", {"metadata": {"name": "j"}}))
        assert error.message == (
            'PaddleJob.batch.paddlepaddle.org "j" is invalid: spec: Required value'
        )
        manifest: dict[str, object] = {"metadata": {"name": "j"}, "spec": {"a": 1}}
        await world.client.create(PADDLE_JOBS, "ml", manifest)
        change: dict[str, object] = {"spec": None}
        error = await refused(world.client.patch(PADDLE_JOBS, "ml", "j", change))
        assert error.status == 422

    World.run(scenario)


def test_removed_definition_takes_its_objects_and_watches_along() -> None:
    """`kubectl delete crd` while the operator runs."""

    async def scenario(world: World) -> None:
        group: dict[str, object] = {"metadata": {"name": "g"}}
        await world.client.create(VOLCANO_GROUPS, "ml", group)
        watch = world.watch(VOLCANO_GROUPS)
        reading = asyncio.ensure_future(taken(watch))
        await world.turn()
        world.server.serve(VOLCANO_GROUPS, False)
        assert [change.kind for change in await reading] == ["deleted"]
        assert (await refused(world.client.page(VOLCANO_GROUPS, Query()))).status == 404
        world.server.serve(VOLCANO_GROUPS, True)
        assert (await world.client.page(VOLCANO_GROUPS, Query())).items == ()

    World.run(scenario)


def test_namespace_that_is_deleted_refuses_and_then_is_gone() -> None:
    """403 while a pod is still ending there, 404 after that; both go into no status."""

    async def scenario(world: World) -> None:
        await world.client.create(PODS, "ml", pod("a"))
        world.server.kubelet.run("ml/a")
        await world.client.create(PODS, "other", pod("a"))
        world.server.terminate_namespace("ml")
        error = await refused(world.client.create(PODS, "ml", pod("b")))
        assert (error.status, error.causes[0][0]) == (403, "metadata.namespace")
        world.server.kubelet.let_go("ml/a")
        error = await refused(world.client.create(PODS, "ml", pod("b")))
        assert (error.status, error.message) == (404, 'namespaces "ml" not found')
        assert (await world.client.get(PODS, "other", "a")).metadata.name == "a"

    World.run(scenario)


def test_quota_counts_pods_that_may_run() -> None:
    """A pod that ended frees its place."""

    async def scenario(world: World) -> None:
        world.server.set_quota("ml", 1)
        await world.client.create(PODS, "ml", pod("a"))
        assert (await refused(world.client.create(PODS, "ml", pod("b")))).status == 403
        await world.client.create(PODS, "other", pod("b"))
        world.server.kubelet.fail("ml/a", 1)
        await world.client.create(PODS, "ml", pod("b"))
        world.server.set_quota("ml", None)
        await world.client.create(PODS, "ml", pod("c"))

    World.run(scenario)


def test_caller_can_be_ended_between_write_and_answer() -> None:
    """The operator is killed at any point; pause is where a simulation does it."""

    async def scenario(world: World) -> None:
        reached = 0

        async def pause() -> None:
            nonlocal reached
            reached += 1
            if reached == 2:
                raise asyncio.CancelledError

        client = world.server.client("killed", pause=pause)
        with pytest.raises(asyncio.CancelledError):
            await client.create(PODS, "ml", pod("a"))
        assert (await world.client.get(PODS, "ml", "a")).metadata.name == "a"

    World.run(scenario)


def test_calls_are_counted_by_verb_and_kind() -> None:
    """One status write per observed change, and no idle requests: tests count them."""

    async def scenario(world: World) -> None:
        await world.client.create(PADDLE_JOBS, "ml", {"metadata": {"name": "j"}})
        change: dict[str, object] = {"status": {"phase": "Running"}}
        await world.client.patch(PADDLE_JOBS, "ml", "j", change, subresource="status")
        world.server.patch(PADDLE_JOBS, "ml", "j", {"spec": {}})
        assert world.server.counts == {("create", JOBS, ""): 1, ("patch", JOBS, "status"): 1}

    World.run(scenario)


# -------------------------------------------------------------------------------- watches and time


def test_late_changes_keep_their_order() -> None:
    """A cache that lags: a status is decided on pods as they were some seconds ago."""

    async def scenario(world: World) -> None:
        delays = iter([5.0, 1.0, 0.0])
        world.server.faults.watch_delay = lambda: next(delays)
        reading = asyncio.ensure_future(taken(world.watch(CONFIG_MAPS), 3))
        await world.turn()
        for name in "abc":
            await world.client.create(CONFIG_MAPS, "ml", {"metadata": {"name": name}})
        await world.pass_time(4.0)
        assert not reading.done()
        await world.pass_time(1.0)
        names = [change.object.metadata.name for change in await reading]
        assert names == ["a", "b", "c"]

    World.run(scenario)


def test_bookmark_does_not_overtake_a_late_change() -> None:
    """A reader that goes on from a bookmark would otherwise never see the change."""

    async def scenario(world: World) -> None:
        world.server.faults.watch_delay = lambda: 100.0
        reading = asyncio.ensure_future(taken(world.watch(CONFIG_MAPS), 2))
        await world.turn()
        made = await world.client.create(CONFIG_MAPS, "ml", {"metadata": {"name": "a"}})
        for _ in range(17):
            await world.pass_time(10.0)
        seen = await reading
        assert [change.kind for change in seen] == ["added", "bookmark"]
        assert seen[1].object.metadata.resourceVersion == made.metadata.resourceVersion

    World.run(scenario)


def test_bookmarks_come_every_minute() -> None:
    """As those of the real server, so that an idle limit above a minute never ends a good watch."""

    async def scenario(world: World) -> None:
        reading = asyncio.ensure_future(taken(world.watch(PODS)))
        for _ in range(301):
            await world.pass_time(1.0)
        kinds = [change.kind for change in await reading]
        assert kinds == ["bookmark"] * 5

    World.run(scenario)


def test_silent_watch_ends_by_the_clients_own_limit() -> None:
    """Half-open connections: the server believes it delivers, and nothing arrives."""

    async def scenario(world: World) -> None:
        reading = asyncio.ensure_future(taken(world.watch(PODS)))
        await world.turn()
        assert world.server.silence_watches() == 1
        await world.client.create(PODS, "ml", pod("a"))
        await world.pass_time(74.0)
        assert not reading.done()
        await world.pass_time(1.0)
        error = await refused(reading)
        assert (error.status, error.reason) == (0, "Unreachable")
        assert world.server.open_watches == ()

    World.run(scenario)


def test_dropped_watches_deliver_what_was_there_before() -> None:
    """With an error or as a polite end; the reader goes on from what it saw."""

    async def scenario(world: World) -> None:
        polite = asyncio.ensure_future(taken(world.watch(PODS)))
        rude = asyncio.ensure_future(taken(world.watch(CONFIG_MAPS)))
        await world.turn()
        await world.client.create(PODS, "ml", pod("a"))
        world.server.drop_watches(lambda stream: stream.kind == "pods")
        world.server.drop_watches(lambda stream: stream.kind != "pods", refusals.unreachable())
        assert [change.kind for change in await polite] == ["added"]
        assert (await refused(rude)).status == 0

    World.run(scenario)


def test_history_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """A long simulation must not fill the memory; old versions are 410 by themselves then."""
    monkeypatch.setattr("kube_memory.store.HISTORY_MAX", 10)

    async def scenario(world: World) -> None:
        version = (await world.client.page(PODS, Query())).resource_version
        for name in range(12):
            await world.client.create(PODS, "ml", pod(f"a{name}"))
        assert (await refused(taken(world.watch(PODS, version)))).status == 410

    World.run(scenario)


def test_garbage_is_collected_when_time_passes_or_when_told() -> None:
    """A simulation can look at what happens before the collector comes."""

    async def scenario(world: World) -> None:
        owner = await world.client.create(PADDLE_JOBS, "ml", {"metadata": {"name": "j"}})
        reference = {
            "apiVersion": PADDLE_JOBS.api_version, "kind": "PaddleJob", "name": "j",
            "uid": owner.metadata.uid, "controller": True,
        }  # fmt: skip
        for namespace in ("ml", "other"):
            await world.client.create(PODS, namespace, pod("a", ownerReferences=[reference]))
        # An owner in another namespace is none.
        assert world.server.collect() == 1
        await world.client.delete(PADDLE_JOBS, "ml", "j")
        assert (await world.client.get(PODS, "ml", "a")).metadata.uid
        await world.pass_time(0.0)
        assert (await refused(world.client.get(PODS, "ml", "a"))).status == 404

    World.run(scenario)


def test_what_a_caller_holds_is_not_the_servers() -> None:
    """Neither what it gave nor what it got: a mutation there would be a write without a version."""

    async def scenario(world: World) -> None:
        manifest: dict[str, Any] = {"metadata": {"name": "j"}, "spec": {"list": [1]}}
        made = await world.client.create(PADDLE_JOBS, "ml", manifest)
        manifest["spec"]["list"].append(2)
        held: Any = made.spec
        held["list"].append(3)
        world.server.get(PADDLE_JOBS, "ml", "j").document["spec"]["list"].append(4)
        assert (await world.client.get(PADDLE_JOBS, "ml", "j")).spec == {"list": [1]}

    World.run(scenario)


def test_closed_client_has_no_watches_left() -> None:
    """An operator that ends leaves nothing open."""

    async def scenario(world: World) -> None:
        reading = asyncio.ensure_future(taken(world.watch(PODS)))
        await world.turn()
        await world.client.close()
        assert await reading == []
        assert world.server.open_watches == ()

    World.run(scenario)


def test_same_story_gives_the_same_objects() -> None:
    """Names, uids and versions come from counters: a seed replays exactly."""

    def story() -> list[Any]:
        seen: list[Any] = []

        async def scenario(world: World) -> None:
            for _ in range(3):
                manifest: dict[str, object] = {"metadata": {"generateName": "a-"}}
                seen.append(await world.client.create(CONFIG_MAPS, "ml", manifest))

        World.run(scenario)
        return seen

    assert story() == story()
