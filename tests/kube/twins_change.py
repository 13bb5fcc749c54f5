"""Checks of patch and delete."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kube.twin_place import (
    TWINS,
    changes,
    config_map,
    pod,
    refused,
    twin,
)
from paddock.kube.client import (
    CONFIG_MAPS,
    PODS,
    KubeClient,
    Query,
    Resource,
)

if TYPE_CHECKING:
    from kube.twin_place import Place
    from paddock.kube.client import KubeClient
    from paddock.kube.objects import PaddleJob


async def status_and_spec_are_written_apart(client: KubeClient, place: Place) -> None:
    """A status cannot be created, and neither write touches the other's part."""
    made = await client.create(TWINS, place.namespace, twin(status={"phase": "Running"}))
    assert made.status is None
    both = {"spec": {"x": 2}, "status": {"phase": "Pending"}}
    told = await client.patch(TWINS, place.namespace, "a", both, subresource="status")
    assert (told.spec, told.status) == ({"x": 1}, {"phase": "Pending"})
    assert told.metadata.generation == 1
    both["status"] = {"phase": "Failed"}
    changed = await client.patch(TWINS, place.namespace, "a", both)
    assert (changed.spec, changed.status) == ({"x": 2}, {"phase": "Pending"})
    assert changed.metadata.generation == 2
    labelled = await client.patch(TWINS, place.namespace, "a", {"metadata": {"labels": {"a": "b"}}})
    assert labelled.metadata.generation == 2
    assert int(labelled.metadata.resourceVersion) > int(changed.metadata.resourceVersion)


async def write_that_changes_nothing_keeps_the_version(client: KubeClient, place: Place) -> None:
    """And tells no watcher, which is what ends a status storm."""
    made = await client.create(TWINS, place.namespace, twin(metadata={"labels": {"a": "b"}}))
    same = await client.patch(TWINS, place.namespace, "a", {"metadata": {"labels": {"a": "b"}}})
    assert same.metadata.resourceVersion == made.metadata.resourceVersion
    told = await client.patch(
        TWINS, place.namespace, "a", {"status": {"n": [1, {"a": 1}]}}, subresource="status"
    )
    again = await client.patch(
        TWINS, place.namespace, "a", {"status": {"n": [1, {"a": 1}]}}, subresource="status"
    )
    assert again.metadata.resourceVersion == told.metadata.resourceVersion
    last = await client.patch(TWINS, place.namespace, "a", {"spec": {"x": 2}})
    seen = await changes(client, TWINS, Query(place.namespace), made.metadata.resourceVersion, 2)
    assert [change.object.metadata.resourceVersion for change in seen] == [
        told.metadata.resourceVersion, last.metadata.resourceVersion,
    ]  # fmt: skip


async def stale_version_conflicts(client: KubeClient, place: Place) -> None:
    """An operator that was asleep must not write what it decided before, to spec or status."""
    made = await client.create(TWINS, place.namespace, twin())
    old = {"resourceVersion": made.metadata.resourceVersion}
    change: dict[str, object] = {"metadata": old, "status": {"n": 1}}
    await client.patch(TWINS, place.namespace, "a", change, subresource="status")
    for subresource in ("", "status"):
        error = await refused(
            client.patch(TWINS, place.namespace, "a", change, subresource=subresource)
        )
        assert (error.status, error.reason) == (409, "Conflict")
        assert error.message == (
            'Operation cannot be fulfilled on twins.test.paddlepaddle.org "a": the object has'
            " been modified; please apply your changes to the latest version and try again"
        )


async def wrong_uid_in_a_patch_is_invalid(client: KubeClient, place: Place) -> None:
    """Not a conflict, and in the status of a custom kind not even noticed: there it takes a
    resourceVersion to mean that very object."""
    await client.create(TWINS, place.namespace, twin())
    await client.create(PODS, place.namespace, pod())
    other = {"uid": "00000000-0000-4000-8000-000000000000"}
    change: dict[str, object] = {"metadata": other | {"labels": {"a": "b"}}, "status": {"n": 1}}
    for resource, kind, subresource in (
        (TWINS, "merge", ""), (TWINS, "apply", ""), (PODS, "merge", ""), (PODS, "merge", "status"),
    ):  # fmt: skip
        chosen: Resource[Any] = resource
        how: Any = kind
        error = await refused(
            client.patch(chosen, place.namespace, "a", change, kind=how, subresource=subresource)
        )
        assert (error.status, error.reason) == (422, "Invalid")
        assert error.causes[0][0] == "metadata.uid"
    told = await client.patch(TWINS, place.namespace, "a", change, subresource="status")
    assert told.status == {"n": 1}


async def merge_removes_with_null(client: KubeClient, place: Place) -> None:
    """Lists are replaced as a whole."""
    await client.create(TWINS, place.namespace, twin(spec={"a": {"b": 1, "c": 2}, "l": [1, 2]}))
    change: dict[str, object] = {"spec": {"a": {"b": None}, "l": [3]}}
    changed = await client.patch(TWINS, place.namespace, "a", change)
    assert changed.spec == {"a": {"c": 2}, "l": [3]}


async def json_patch_may_test_first(client: KubeClient, place: Place) -> None:
    """All steps, or none."""
    await client.create(TWINS, place.namespace, twin())
    steps: list[object] = [
        {"op": "test", "path": "/spec/x", "value": 1},
        {"op": "replace", "path": "/spec/x", "value": 2},
    ]
    changed = await client.patch(TWINS, place.namespace, "a", steps, kind="json")
    assert changed.spec == {"x": 2}
    error = await refused(client.patch(TWINS, place.namespace, "a", steps, kind="json"))
    assert (error.status, error.reason) == (422, "Invalid")


async def apply_makes_sets_and_takes_back(client: KubeClient, place: Place) -> None:
    """What the last apply gave and this does not is removed; what others set stays."""
    first = {"metadata": {"labels": {"ours": "1"}}, "spec": {"a": 1, "b": {"c": 1}}}
    made = await client.patch(TWINS, place.namespace, "a", first, kind="apply")
    assert (made.spec, made.metadata.labels) == ({"a": 1, "b": {"c": 1}}, {"ours": "1"})
    steps: list[object] = [{"op": "add", "path": "/spec/other", "value": 7}]
    await client.patch(TWINS, place.namespace, "a", steps, kind="json")
    second = {"metadata": {}, "spec": {"a": 2}}
    changed = await client.patch(TWINS, place.namespace, "a", second, kind="apply")
    assert (changed.spec, changed.metadata.labels) == ({"a": 2, "other": 7}, None)


async def apply_of_a_status_takes_back_too(client: KubeClient, place: Place) -> None:
    """completionTime must go when a job runs again."""
    await client.create(TWINS, place.namespace, twin())
    for status in ({"phase": "Failed", "at": "now"}, {"phase": "Running"}):
        told = await client.patch(
            TWINS, place.namespace, "a", {"status": status}, kind="apply", subresource="status"
        )
        assert told.status == status
    again = await client.patch(
        TWINS, place.namespace, "a", {"status": status}, kind="apply", subresource="status"
    )
    assert again.metadata.resourceVersion == told.metadata.resourceVersion


async def pod_keeps_its_spec(client: KubeClient, place: Place) -> None:
    """Labels may change; a pod with another command is another pod."""
    made = await client.create(PODS, place.namespace, pod())
    labelled = await client.patch(PODS, place.namespace, "a", {"metadata": {"labels": {"a": "b"}}})
    assert labelled.metadata.labels == {"a": "b"}
    assert labelled.metadata.generation == made.metadata.generation == 1
    error = await refused(client.patch(PODS, place.namespace, "a", {"spec": {"hostname": "b"}}))
    assert (error.status, error.causes[0][0]) == (422, "spec")


async def pod_status_is_the_kubelets(client: KubeClient, place: Place) -> None:
    """It is written apart, as a fake kubelet does in tests."""
    await client.create(PODS, place.namespace, pod())
    status = {"phase": "Failed", "containerStatuses": [{
        "name": "main", "image": "i", "imageID": "", "ready": False, "restartCount": 0,
        "state": {"terminated": {"exitCode": 3, "message": "why"}},
    }]}  # fmt: skip
    told = await client.patch(PODS, place.namespace, "a", {"status": status}, subresource="status")
    assert told.status.phase == "Failed"
    assert told.status.containerStatuses is not None
    ended = told.status.containerStatuses[0].state.terminated
    assert ended is not None
    assert (ended.exitCode, ended.message) == (3, "why")


async def delete_means_that_very_object(client: KubeClient, place: Place) -> None:
    """A wrong uid is a conflict, and nothing happens."""
    made = await client.create(PODS, place.namespace, pod())
    error = await refused(
        client.delete(PODS, place.namespace, "a", uid="00000000-0000-4000-8000-000000000000")
    )
    assert (error.status, error.reason) == (409, "Conflict")
    assert error.message.startswith(
        'Operation cannot be fulfilled on Pod "a": the UID in the precondition (00000000-'
    )
    await client.delete(PODS, place.namespace, "a", uid=made.metadata.uid)
    assert (await refused(client.get(PODS, place.namespace, "a"))).status == 404


async def pod_on_a_node_leaves_slowly(client: KubeClient, place: Place) -> None:
    """It stays, marked, until its kubelet says so; a second delete cannot make it longer."""
    await client.create(PODS, place.namespace, pod(node="ghost"))
    await client.delete(PODS, place.namespace, "a", grace_seconds=20)
    leaving = (await client.get(PODS, place.namespace, "a")).metadata
    assert leaving.deletionTimestamp
    assert (leaving.deletionGracePeriodSeconds, leaving.generation) == (20, 2)
    await client.delete(PODS, place.namespace, "a")
    assert (await client.get(PODS, place.namespace, "a")).metadata == leaving
    error = await refused(client.create(PODS, place.namespace, pod()))
    assert error.reason == "AlreadyExists"
    await client.delete(PODS, place.namespace, "a", grace_seconds=0)
    assert (await refused(client.get(PODS, place.namespace, "a"))).status == 404


async def finished_pod_leaves_at_once(client: KubeClient, place: Place) -> None:
    """Its kubelet has nothing more to do."""
    await client.create(PODS, place.namespace, pod(node="ghost"))
    done = {"status": {"phase": "Succeeded"}}
    await client.patch(PODS, place.namespace, "a", done, subresource="status")
    await client.delete(PODS, place.namespace, "a")
    assert (await refused(client.get(PODS, place.namespace, "a"))).status == 404


async def finalizer_keeps_an_object(client: KubeClient, place: Place) -> None:
    """It goes with its last finalizer; until then its name is taken."""
    await client.create(TWINS, place.namespace, twin(metadata={"finalizers": ["test.org/a"]}))
    await client.delete(TWINS, place.namespace, "a")
    kept = await client.get(TWINS, place.namespace, "a")
    assert kept.metadata.deletionTimestamp
    assert (kept.metadata.deletionGracePeriodSeconds, kept.metadata.generation) == (0, 2)
    assert (await refused(client.create(TWINS, place.namespace, twin()))).status == 409
    await client.patch(TWINS, place.namespace, "a", {"metadata": {"finalizers": None}})
    assert (await refused(client.get(TWINS, place.namespace, "a"))).status == 404


async def objects_of_a_deleted_owner_go(client: KubeClient, place: Place) -> None:
    """By uid: a new owner of the same name keeps nothing, a second owner does."""
    one, two = [await client.create(TWINS, place.namespace, twin(name)) for name in ("a", "b")]

    def owned(name: str, *owners: PaddleJob) -> dict[str, object]:
        references = [
            {"apiVersion": TWINS.api_version, "kind": "Twin", "name": owner.metadata.name,
             "uid": owner.metadata.uid, "controller": owner is one}
            for owner in owners
        ]  # fmt: skip
        return config_map(name, labels={"test": "x"}, ownerReferences=references)

    made = await client.create(CONFIG_MAPS, place.namespace, owned("owned", one))
    assert made.metadata.controller_uid == one.metadata.uid
    await client.create(CONFIG_MAPS, place.namespace, owned("shared", one, two))
    await client.delete(TWINS, place.namespace, "a")
    await client.create(TWINS, place.namespace, twin("a"))
    query = Query(place.namespace, labels="test=x")
    version = made.metadata.resourceVersion
    await place.pass_time(0.0)
    seen = await changes(client, CONFIG_MAPS, query, version, 2)
    gone = [change.object.metadata.name for change in seen if change.kind == "deleted"]
    if not gone:  # The collector may first take the dead owner off the shared one.
        seen = await changes(client, CONFIG_MAPS, query, version, 3)
        gone = [change.object.metadata.name for change in seen if change.kind == "deleted"]
    assert gone == ["owned"]
