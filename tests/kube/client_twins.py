"""What every Client must do, as checks that run on the server in memory and on a real one.

Each check is given a client and a place of its own: a namespace, and what only the outside can do
there. Run by test_client_twins.py and by tests/cluster/test_client_twins_real.py. Where the two
differ, the real one is right.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import pytest

from paddock.kube.client import (
    CONFIG_MAPS,
    EVENTS,
    LEASES,
    PODS,
    SERVICES,
    Change,
    Client,
    KubeError,
    Query,
    Resource,
)
from paddock.kube.objects import PaddleJob

if TYPE_CHECKING:
    from collections.abc import Awaitable

T = TypeVar("T")
WAIT_SECONDS = 60.0

# A custom kind with a status subresource and no schema; its definition is TWIN_DEFINITION.
TWINS = Resource("test.paddlepaddle.org", "v1", "twins", "Twin", PaddleJob)
NOT_SERVED = Resource("test.paddlepaddle.org", "v1", "nothings", "Nothing", PaddleJob)
ANYTHING = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
TWIN_DEFINITION: dict[str, object] = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "twins.test.paddlepaddle.org"},
    "spec": {
        "group": "test.paddlepaddle.org",
        "scope": "Namespaced",
        "names": {"plural": "twins", "singular": "twin", "kind": "Twin"},
        "versions": [{
            "name": "v1", "served": True, "storage": True, "subresources": {"status": {}},
            "schema": {"openAPIV3Schema": {
                "type": "object", "properties": {"spec": ANYTHING, "status": ANYTHING},
            }},
        }],
    },
}  # fmt: skip


class Place(Protocol):
    """Where a check runs, and what no client can do."""

    namespace: str

    async def pass_time(self, seconds: float) -> None:
        """Let that time pass, for a server in memory by moving its clock."""

    async def set_quota(self, pods: int) -> None:
        """Allow so many pods here; comes back when it is in force."""

    async def compact(self) -> None:
        """Forget all history."""


Check = "Callable[[Client, Place], Awaitable[None]]"


# ------------------------------------------------------------------------------------- builders


def twin(name: str = "a", **more: Any) -> dict[str, object]:
    """A Twin. more: metadata, spec, status."""
    metadata = {"name": name} | more.pop("metadata", {})
    return {"metadata": metadata, "spec": {"x": 1}, **more}


def pod(name: str = "a", node: str = "", **metadata: Any) -> dict[str, object]:
    """A pod that no scheduler takes; node: one that does not exist, so that nothing runs it."""
    spec: dict[str, Any] = {"containers": [{"name": "main", "image": "none"}]}
    spec |= {"nodeName": node} if node else {"schedulerName": "nobody"}
    return {"metadata": {"name": name, **metadata}, "spec": spec}


def config_map(name: str, **metadata: Any) -> dict[str, object]:
    """A ConfigMap with something in it."""
    return {"metadata": {"name": name, **metadata}, "data": {"a": "b"}}


async def refused(call: Awaitable[object]) -> KubeError:
    """The error of a call that must fail."""
    with pytest.raises(KubeError) as caught:
        await call
    return caught.value


async def changes(
    client: Client, resource: Resource[T], query: Query, version: str, count: int
) -> list[Change[T]]:
    """So many changes after that version, bookmarks aside."""

    async def read() -> list[Change[T]]:
        seen: list[Change[T]] = []
        watch = client.watch(resource, query, resource_version=version, timeout_seconds=300)
        async for change in watch:
            if change.kind != "bookmark":
                seen.append(change)
            if len(seen) == count:
                break
        await watch.aclose()  # type: ignore[attr-defined]  # an async generator
        return seen

    return await asyncio.wait_for(read(), WAIT_SECONDS)


async def version_of(client: Client, place: Place, resource: Resource[Any] = TWINS) -> str:
    """The version of a list, to watch from."""
    return (await client.page(resource, Query(place.namespace))).resource_version


# --------------------------------------------------------------------------- create, get, refuse


async def created_object_has_an_identity(client: Client, place: Place) -> None:
    """uid, version and time come from the server, and get reads the same object."""
    made = await client.create(TWINS, place.namespace, twin())
    meta = made.metadata
    assert meta.uid and meta.resourceVersion and meta.creationTimestamp
    assert (meta.namespace, meta.generation) == (place.namespace, 1)
    assert await client.get(TWINS, place.namespace, "a") == made


async def generated_names_differ(client: Client, place: Place) -> None:
    """Events are created so, many of the same prefix."""
    manifest: dict[str, object] = {"metadata": {"generateName": "made-"}}
    names = {
        (await client.create(CONFIG_MAPS, place.namespace, manifest)).metadata.name
        for _ in range(3)
    }
    assert len(names) == 3
    assert all(name.startswith("made-") and len(name) > 5 for name in names)


async def taken_name_is_already_exists(client: Client, place: Place) -> None:
    """409 with this reason is how a lost answer to a create shows itself."""
    await client.create(PODS, place.namespace, pod())
    error = await refused(client.create(PODS, place.namespace, pod()))
    assert (error.status, error.reason) == (409, "AlreadyExists")
    assert error.message == 'pods "a" already exists'
    await client.create(TWINS, place.namespace, twin())
    error = await refused(client.create(TWINS, place.namespace, twin()))
    assert error.message == 'twins.test.paddlepaddle.org "a" already exists'


async def missing_object_is_not_found(client: Client, place: Place) -> None:
    """For every verb that names one."""
    calls = (
        client.get(PODS, place.namespace, "a"),
        client.patch(PODS, place.namespace, "a", {"metadata": {"labels": {"a": "b"}}}),
        client.patch(TWINS, place.namespace, "a", {"status": {"a": 1}}, subresource="status"),
        client.delete(PODS, place.namespace, "a", uid="u"),
    )
    errors = [await refused(call) for call in calls]
    assert {(error.status, error.reason) for error in errors} == {(404, "NotFound")}
    assert errors[0].message == 'pods "a" not found'


async def missing_kind_is_not_found(client: Client, place: Place) -> None:
    """The gang schedulers' kinds are often not installed: a condition, not a crash."""
    for error in (
        await refused(client.page(NOT_SERVED, Query())),
        await refused(client.create(NOT_SERVED, place.namespace, twin())),
        await refused(changes(client, NOT_SERVED, Query(), "1", 1)),
    ):
        assert (error.status, error.reason) == (404, "NotFound")


async def other_namespace_in_the_manifest_is_refused(client: Client, place: Place) -> None:
    """A manifest cannot leave the namespace it is created in."""
    manifest = twin(metadata={"namespace": "elsewhere"})
    error = await refused(client.create(TWINS, place.namespace, manifest))
    assert (error.status, error.reason) == (400, "BadRequest")


async def invalid_pod_names_its_fields(client: Client, place: Place) -> None:
    """The status of a job shows these sentences."""
    bad: dict[str, Any] = pod()
    bad["spec"]["containers"] = []
    error = await refused(client.create(PODS, place.namespace, bad))
    assert (error.status, error.reason) == (422, "Invalid")
    assert error.message == 'Pod "a" is invalid: spec.containers: Required value'
    assert error.causes == (("spec.containers", "Required value"),)
    bad["spec"] = {"containers": [{"name": "A"}], "restartPolicy": "Sometimes"}
    bad["metadata"]["labels"] = {"job": "x" * 64}
    error = await refused(client.create(PODS, place.namespace, bad))
    assert {field for field, _ in error.causes} == {
        "spec.containers[0].name", "spec.containers[0].image", "spec.restartPolicy",
        "metadata.labels",
    }  # fmt: skip


async def names_have_lengths(client: Client, place: Place) -> None:
    """A pod's name may have 253 characters, its hostname, a label and a Service's name 63."""
    long = "a" * 64
    await client.create(PODS, place.namespace, pod(long))
    for resource, manifest, field in (
        (PODS, pod("a" * 254), "metadata.name"),
        (PODS, pod("A_b"), "metadata.name"),
        (SERVICES, {"metadata": {"name": long}, "spec": {"clusterIP": "None"}}, "metadata.name"),
        (SERVICES, {"metadata": {"name": "1a"}, "spec": {"clusterIP": "None"}}, "metadata.name"),
        (CONFIG_MAPS, config_map("b", labels={"a": long}), "metadata.labels"),
        (CONFIG_MAPS, config_map("b", labels={long: "a"}), "metadata.labels"),
        (CONFIG_MAPS, {"metadata": {"name": "b"}, "data": {"a b": ""}}, "data[a b]"),
    ):
        chosen: Resource[Any] = resource
        error = await refused(client.create(chosen, place.namespace, manifest))
        assert (error.status, [name for name, _ in error.causes]) == (422, [field])
    hosted: dict[str, Any] = pod("b")
    hosted["spec"]["hostname"] = long
    error = await refused(client.create(PODS, place.namespace, hosted))
    assert [name for name, _ in error.causes] == ["spec.hostname"]


async def dry_run_stores_nothing(client: Client, place: Place) -> None:
    """It is how a template is tried before the first pod."""
    made = await client.create(PODS, place.namespace, pod(), dry_run=True)
    assert made.metadata.uid
    assert made.status.phase == "Pending"
    assert (await refused(client.get(PODS, place.namespace, "a"))).status == 404
    bad: dict[str, Any] = pod()
    bad["spec"]["containers"] = []
    assert (await refused(client.create(PODS, place.namespace, bad, dry_run=True))).status == 422


async def quota_refuses_pods_over_it(client: Client, place: Place) -> None:
    """The sentence goes into the job's status; finished pods do not count."""
    await place.set_quota(1)
    await client.create(PODS, place.namespace, pod())
    error = await refused(client.create(PODS, place.namespace, pod("b")))
    assert (error.status, error.reason) == (403, "Forbidden")
    assert error.message == (
        'pods "b" is forbidden: exceeded quota: compute, requested: pods=1, used: pods=1,'
        " limited: pods=1"
    )


async def headless_service_and_config_map_are_plain(client: Client, place: Place) -> None:
    """They have no generation; a headless Service needs no port."""
    service: dict[str, object] = {
        "metadata": {"name": "a"},
        "spec": {"clusterIP": "None", "publishNotReadyAddresses": True, "selector": {"a": "b"}},
    }
    made = await client.create(SERVICES, place.namespace, service)
    held = await client.create(CONFIG_MAPS, place.namespace, config_map("a"))
    assert made.metadata.generation == held.metadata.generation == 0
    assert held.data == {"a": "b"}


async def lease_keeps_microseconds(client: Client, place: Place) -> None:
    """Leadership is renewed more often than once a second."""
    at = "2026-11-21T08:00:00.250000Z"
    spec = {"holderIdentity": "me", "leaseDurationSeconds": 15, "renewTime": at}
    made = await client.create(LEASES, place.namespace, {"metadata": {"name": "l"}, "spec": spec})
    assert (made.spec.holderIdentity, made.spec.renewTime) == ("me", at)
    change = {"metadata": {"resourceVersion": made.metadata.resourceVersion}, "spec": {}}
    change["spec"] = {"holderIdentity": "other"}
    taken = await client.patch(LEASES, place.namespace, "l", change)
    assert (taken.spec.holderIdentity, taken.spec.leaseDurationSeconds) == ("other", 15)
    assert (await refused(client.patch(LEASES, place.namespace, "l", change))).status == 409


def an_event(place: Place) -> dict[str, object]:
    """An event about a Twin."""
    return {
        "metadata": {"generateName": "a."}, "eventTime": "2026-11-21T08:00:00.000000Z",
        "reportingController": "paddlepaddle.org/paddock", "reportingInstance": "paddock-0",
        "action": "Creating", "reason": "Created", "type": "Normal", "note": "made",
        "regarding": {
            "apiVersion": TWINS.api_version, "kind": "Twin", "name": "a",
            "namespace": place.namespace,
        },
    }  # fmt: skip


async def event_must_be_complete_and_may_only_be_counted(client: Client, place: Place) -> None:
    """Each missing part is refused; later only its series may change."""
    whole = an_event(place)
    for field in ("eventTime", "reportingController", "reportingInstance", "action", "reason"):
        part = {name: value for name, value in whole.items() if name != field}
        error = await refused(client.create(EVENTS, place.namespace, part))
        assert (error.status, field in error.message) == (422, True)
    error = await refused(client.create(EVENTS, place.namespace, whole | {"note": "x" * 1025}))
    assert "note" in error.message
    made = await client.create(EVENTS, place.namespace, whole)
    series = {"series": {"count": 2, "lastObservedTime": "2026-11-21T08:00:01.000000Z"}}
    await client.patch(EVENTS, place.namespace, made.metadata.name, series)
    change = {"note": "other"}
    error = await refused(client.patch(EVENTS, place.namespace, made.metadata.name, change))
    assert error.status == 422


# ----------------------------------------------------------------------------- patch and versions


async def status_and_spec_are_written_apart(client: Client, place: Place) -> None:
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


async def write_that_changes_nothing_keeps_the_version(client: Client, place: Place) -> None:
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


async def stale_version_and_wrong_uid_conflict(client: Client, place: Place) -> None:
    """An operator that was asleep must not write what it decided before."""
    made = await client.create(TWINS, place.namespace, twin())
    old = {"resourceVersion": made.metadata.resourceVersion, "uid": made.metadata.uid}
    change: dict[str, object] = {"metadata": old, "status": {"n": 1}}
    await client.patch(TWINS, place.namespace, "a", change, subresource="status")
    error = await refused(client.patch(TWINS, place.namespace, "a", change, subresource="status"))
    assert (error.status, error.reason) == (409, "Conflict")
    assert "the object has been modified" in error.message
    other = {"metadata": {"uid": "00000000-0000-4000-8000-000000000000"}, "spec": {"x": 3}}
    for kind in ("merge", "apply"):
        error = await refused(
            client.patch(TWINS, place.namespace, "a", other, kind=kind)  # type: ignore[arg-type]
        )
        assert (error.status, error.reason) == (409, "Conflict")
    assert (await client.get(TWINS, place.namespace, "a")).spec == {"x": 1}


async def merge_removes_with_null(client: Client, place: Place) -> None:
    """Lists are replaced as a whole."""
    await client.create(TWINS, place.namespace, twin(spec={"a": {"b": 1, "c": 2}, "l": [1, 2]}))
    change: dict[str, object] = {"spec": {"a": {"b": None}, "l": [3]}}
    changed = await client.patch(TWINS, place.namespace, "a", change)
    assert changed.spec == {"a": {"c": 2}, "l": [3]}


async def json_patch_may_test_first(client: Client, place: Place) -> None:
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


async def apply_makes_sets_and_takes_back(client: Client, place: Place) -> None:
    """What the last apply gave and this does not is removed; what others set stays."""
    first = {"metadata": {"labels": {"ours": "1"}}, "spec": {"a": 1, "b": {"c": 1}}}
    made = await client.patch(TWINS, place.namespace, "a", first, kind="apply")
    assert (made.spec, made.metadata.labels) == ({"a": 1, "b": {"c": 1}}, {"ours": "1"})
    steps: list[object] = [{"op": "add", "path": "/spec/other", "value": 7}]
    await client.patch(TWINS, place.namespace, "a", steps, kind="json")
    second = {"metadata": {}, "spec": {"a": 2}}
    changed = await client.patch(TWINS, place.namespace, "a", second, kind="apply")
    assert (changed.spec, changed.metadata.labels) == ({"a": 2, "other": 7}, None)


async def apply_of_a_status_takes_back_too(client: Client, place: Place) -> None:
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


async def pod_keeps_its_spec(client: Client, place: Place) -> None:
    """Labels may change; a pod with another command is another pod."""
    made = await client.create(PODS, place.namespace, pod())
    labelled = await client.patch(PODS, place.namespace, "a", {"metadata": {"labels": {"a": "b"}}})
    assert labelled.metadata.labels == {"a": "b"}
    assert labelled.metadata.generation == made.metadata.generation == 1
    error = await refused(client.patch(PODS, place.namespace, "a", {"spec": {"hostname": "b"}}))
    assert (error.status, error.causes[0][0]) == (422, "spec")


async def pod_status_is_the_kubelets(client: Client, place: Place) -> None:
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


# ------------------------------------------------------------------------------------- delete


async def delete_means_that_very_object(client: Client, place: Place) -> None:
    """A wrong uid is a conflict, and nothing happens."""
    made = await client.create(PODS, place.namespace, pod())
    error = await refused(
        client.delete(PODS, place.namespace, "a", uid="00000000-0000-4000-8000-000000000000")
    )
    assert (error.status, error.reason) == (409, "Conflict")
    assert "UID" in error.message
    await client.delete(PODS, place.namespace, "a", uid=made.metadata.uid)
    assert (await refused(client.get(PODS, place.namespace, "a"))).status == 404


async def pod_on_a_node_leaves_slowly(client: Client, place: Place) -> None:
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


async def finished_pod_leaves_at_once(client: Client, place: Place) -> None:
    """Its kubelet has nothing more to do."""
    await client.create(PODS, place.namespace, pod(node="ghost"))
    done = {"status": {"phase": "Succeeded"}}
    await client.patch(PODS, place.namespace, "a", done, subresource="status")
    await client.delete(PODS, place.namespace, "a")
    assert (await refused(client.get(PODS, place.namespace, "a"))).status == 404


async def finalizer_keeps_an_object(client: Client, place: Place) -> None:
    """It goes with its last finalizer; until then its name is taken."""
    await client.create(TWINS, place.namespace, twin(metadata={"finalizers": ["test.org/a"]}))
    await client.delete(TWINS, place.namespace, "a")
    kept = await client.get(TWINS, place.namespace, "a")
    assert kept.metadata.deletionTimestamp
    assert (kept.metadata.deletionGracePeriodSeconds, kept.metadata.generation) == (0, 2)
    assert (await refused(client.create(TWINS, place.namespace, twin()))).status == 409
    await client.patch(TWINS, place.namespace, "a", {"metadata": {"finalizers": None}})
    assert (await refused(client.get(TWINS, place.namespace, "a"))).status == 404


async def objects_of_a_deleted_owner_go(client: Client, place: Place) -> None:
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


# --------------------------------------------------------------------------------- list and watch


async def page_by_page_is_one_moment(client: Client, place: Place) -> None:
    """What is created meanwhile is not in the rest, so the version fits all of it."""
    for name in "abcde":
        await client.create(CONFIG_MAPS, place.namespace, config_map(name, labels={"t": "x"}))
    query = Query(place.namespace, labels="t=x", limit=2)
    page = await client.page(CONFIG_MAPS, query)
    await client.create(CONFIG_MAPS, place.namespace, config_map("bb", labels={"t": "x"}))
    names, versions = [], set()
    while True:
        names += [one.metadata.name for one in page.items]
        versions.add(page.resource_version)
        if not page.rest:
            break
        page = await client.page(CONFIG_MAPS, query, rest=page.rest)
    assert names == ["a", "b", "c", "d", "e"]
    assert len(versions) == 1
    seen = await changes(client, CONFIG_MAPS, query, versions.pop(), 1)
    assert seen[0].object.metadata.name == "bb"


async def rest_of_a_list_expires(client: Client, place: Place) -> None:
    """A slow reader has to begin again."""
    for name in "abc":
        await client.create(TWINS, place.namespace, twin(name))
    query = Query(place.namespace, limit=1)
    page = await client.page(TWINS, query)
    await client.create(TWINS, place.namespace, twin("d"))
    await place.compact()
    error = await refused(client.page(TWINS, query, rest=page.rest))
    assert (error.status, error.reason) == (410, "Expired")


async def selectors_choose_by_label_and_field(client: Client, place: Place) -> None:
    """In one namespace or in all."""
    for name, labels in (("a", {"x": "1"}), ("b", {"x": "2", "y": "1"}), ("c", {})):
        await client.create(PODS, place.namespace, pod(name, labels=labels))
    failed = {"status": {"phase": "Failed"}}
    await client.patch(PODS, place.namespace, "b", failed, subresource="status")

    async def names(labels: str = "", fields: str = "", namespace: str = "") -> str:
        query = Query(namespace or place.namespace, labels=labels, fields=fields)
        page = await client.page(PODS, query)
        return "".join(one.metadata.name for one in page.items)

    assert await names(labels="x=1") == "a"
    assert await names(labels="x") == "ab"
    assert await names(labels="!x") == "c"
    assert await names(labels="x in (1, 2),y") == "b"
    assert await names(labels="x notin (1)") == "bc"
    assert await names(labels="x!=2") == "ac"
    assert await names(fields="metadata.name=c") == "c"
    assert await names(fields="status.phase=Failed") == "b"
    assert await names(fields="status.phase!=Failed,metadata.name!=a") == "c"
    everywhere = Query(fields=f"metadata.namespace={place.namespace}")
    assert len((await client.page(PODS, everywhere)).items) == 3
    error = await refused(client.page(PODS, Query(place.namespace, fields="spec.nothing=1")))
    assert (error.status, error.reason) == (400, "BadRequest")
    error = await refused(client.page(PODS, Query(place.namespace, labels="a b")))
    assert error.status == 400


async def watch_tells_every_change_in_order(client: Client, place: Place) -> None:
    """Versions only grow, and the last state of what was deleted comes with a new one."""
    version = await version_of(client, place)
    await client.create(TWINS, place.namespace, twin())
    await client.patch(TWINS, place.namespace, "a", {"spec": {"x": 2}})
    await client.patch(TWINS, place.namespace, "a", {"status": {"n": 1}}, subresource="status")
    await client.delete(TWINS, place.namespace, "a")
    await client.create(TWINS, place.namespace, twin())
    seen = await changes(client, TWINS, Query(place.namespace), version, 5)
    assert [change.kind for change in seen] == [
        "added", "modified", "modified", "deleted", "added",
    ]  # fmt: skip
    versions = [int(change.object.metadata.resourceVersion) for change in seen]
    assert versions == sorted(set(versions))
    assert (seen[3].object.spec, seen[3].object.status) == ({"x": 2}, {"n": 1})
    assert seen[3].object.metadata.uid != seen[4].object.metadata.uid


async def watch_that_is_open_tells_what_happens_then(client: Client, place: Place) -> None:
    """The usual case: nothing to tell at first."""
    version = await version_of(client, place)
    reading = asyncio.create_task(changes(client, TWINS, Query(place.namespace), version, 2))
    await place.pass_time(0.2)
    await client.create(TWINS, place.namespace, twin())
    await client.delete(TWINS, place.namespace, "a")
    assert [change.kind for change in await reading] == ["added", "deleted"]


async def watch_follows_its_selector(client: Client, place: Place) -> None:
    """What no longer fits is deleted for this watcher, with its new state."""
    version = await version_of(client, place, CONFIG_MAPS)
    query = Query(place.namespace, labels="t=x")
    await client.create(CONFIG_MAPS, place.namespace, config_map("other"))
    await client.create(CONFIG_MAPS, place.namespace, config_map("a"))
    for label in ("x", "y", "x", None):
        change = {"metadata": {"labels": {"t": label}}}
        await client.patch(CONFIG_MAPS, place.namespace, "a", change)
    await client.delete(CONFIG_MAPS, place.namespace, "a")
    await client.create(CONFIG_MAPS, place.namespace, config_map("last", labels={"t": "x"}))
    seen = await changes(client, CONFIG_MAPS, query, version, 5)
    assert [(change.kind, change.object.metadata.name) for change in seen] == [
        ("added", "a"), ("deleted", "a"), ("added", "a"), ("deleted", "a"), ("added", "last"),
    ]  # fmt: skip


async def watch_from_zero_begins_with_what_there_is(client: Client, place: Place) -> None:
    """As added; then it goes on."""
    for name in "ab":
        await client.create(TWINS, place.namespace, twin(name))
    seen = await changes(client, TWINS, Query(place.namespace), "0", 2)
    assert sorted((change.kind, change.object.metadata.name) for change in seen) == [
        ("added", "a"), ("added", "b"),
    ]  # fmt: skip


async def watch_from_too_old_a_version_is_expired(client: Client, place: Place) -> None:
    """The reader lists again."""
    version = await version_of(client, place)
    await client.create(TWINS, place.namespace, twin())
    await place.compact()
    error = await refused(changes(client, TWINS, Query(place.namespace), version, 1))
    assert (error.status, error.reason) == (410, "Expired")


async def watch_ends_when_asked_with_a_bookmark(client: Client, place: Place) -> None:
    """Just before its end a quiet watch is told the version, to go on from there."""
    version = await version_of(client, place)
    await client.create(CONFIG_MAPS, place.namespace, config_map("a"))  # another kind's version

    async def read() -> list[Change[PaddleJob]]:
        query = Query(place.namespace)
        watch = client.watch(TWINS, query, resource_version=version, timeout_seconds=4)
        return [change async for change in watch]

    reading = asyncio.create_task(read())
    for _ in range(5):
        await place.pass_time(1.0)
    seen = await asyncio.wait_for(reading, WAIT_SECONDS)
    assert {change.kind for change in seen} == {"bookmark"}
    assert int(seen[-1].object.metadata.resourceVersion) > int(version)


CHECKS = (
    created_object_has_an_identity, generated_names_differ, taken_name_is_already_exists,
    missing_object_is_not_found, missing_kind_is_not_found,
    other_namespace_in_the_manifest_is_refused, invalid_pod_names_its_fields, names_have_lengths,
    dry_run_stores_nothing, quota_refuses_pods_over_it, headless_service_and_config_map_are_plain,
    lease_keeps_microseconds, event_must_be_complete_and_may_only_be_counted,
    status_and_spec_are_written_apart, write_that_changes_nothing_keeps_the_version,
    stale_version_and_wrong_uid_conflict, merge_removes_with_null, json_patch_may_test_first,
    apply_makes_sets_and_takes_back, apply_of_a_status_takes_back_too, pod_keeps_its_spec,
    pod_status_is_the_kubelets, delete_means_that_very_object, pod_on_a_node_leaves_slowly,
    finished_pod_leaves_at_once, finalizer_keeps_an_object, objects_of_a_deleted_owner_go,
    page_by_page_is_one_moment, rest_of_a_list_expires, selectors_choose_by_label_and_field,
    watch_tells_every_change_in_order, watch_that_is_open_tells_what_happens_then,
    watch_follows_its_selector, watch_from_zero_begins_with_what_there_is,
    watch_from_too_old_a_version_is_expired, watch_ends_when_asked_with_a_bookmark,
)  # fmt: skip
