"""Checks of create, get, and what is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kube.twin_place import (
    NOT_SERVED,
    TWINS,
    changes,
    config_map,
    pod,
    refused,
    twin,
)
from paddock.kube.client import (
    CONFIG_MAPS,
    EVENTS,
    LEASES,
    PODS,
    SERVICES,
    KubeClient,
    Query,
    Resource,
)

if TYPE_CHECKING:
    from kube.twin_place import Place
    from paddock.kube.client import KubeClient


async def created_object_has_an_identity(client: KubeClient, place: Place) -> None:
    """uid, version and time come from the server, and get reads the same object."""
    made = await client.create(TWINS, place.namespace, twin())
    meta = made.metadata
    assert meta.uid and meta.resourceVersion and meta.creationTimestamp
    assert (meta.namespace, meta.generation) == (place.namespace, 1)
    assert await client.get(TWINS, place.namespace, "a") == made


async def generated_names_differ(client: KubeClient, place: Place) -> None:
    """Events are created so, many of the same prefix."""
    manifest: dict[str, object] = {"metadata": {"generateName": "made-"}}
    names = {
        (await client.create(CONFIG_MAPS, place.namespace, manifest)).metadata.name
        for _ in range(3)
    }
    assert len(names) == 3
    assert all(name.startswith("made-") and len(name) > 5 for name in names)


async def taken_name_is_already_exists(client: KubeClient, place: Place) -> None:
    """409 with this reason is how a lost answer to a create shows itself."""
    await client.create(PODS, place.namespace, pod())
    error = await refused(client.create(PODS, place.namespace, pod()))
    assert (error.status, error.reason) == (409, "AlreadyExists")
    assert error.message == 'pods "a" already exists'
    await client.create(TWINS, place.namespace, twin())
    error = await refused(client.create(TWINS, place.namespace, twin()))
    assert error.message == 'twins.test.paddlepaddle.org "a" already exists'


async def missing_object_is_not_found(client: KubeClient, place: Place) -> None:
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


async def missing_kind_is_not_found(client: KubeClient, place: Place) -> None:
    """The gang schedulers' kinds are often not installed: a condition, not a crash."""
    for error in (
        await refused(client.page(NOT_SERVED, Query())),
        await refused(client.create(NOT_SERVED, place.namespace, twin())),
        await refused(changes(client, NOT_SERVED, Query(), "1", 1)),
    ):
        assert (error.status, error.reason) == (404, "NotFound")


async def other_namespace_in_the_manifest_is_refused(client: KubeClient, place: Place) -> None:
    """A manifest cannot leave the namespace it is created in."""
    manifest = twin(metadata={"namespace": "elsewhere"})
    error = await refused(client.create(TWINS, place.namespace, manifest))
    assert (error.status, error.reason) == (400, "BadRequest")


async def invalid_pod_names_its_fields(client: KubeClient, place: Place) -> None:
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


async def names_have_lengths(client: KubeClient, place: Place) -> None:
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


async def dry_run_stores_nothing(client: KubeClient, place: Place) -> None:
    """It is how a template is tried before the first pod."""
    made = await client.create(PODS, place.namespace, pod(), dry_run=True)
    assert made.metadata.uid
    assert made.status.phase == "Pending"
    assert (await refused(client.get(PODS, place.namespace, "a"))).status == 404
    bad: dict[str, Any] = pod()
    bad["spec"]["containers"] = []
    assert (await refused(client.create(PODS, place.namespace, bad, dry_run=True))).status == 422


async def quota_refuses_pods_over_it(client: KubeClient, place: Place) -> None:
    """The sentence goes into the job's status; finished pods do not count."""
    await place.set_quota(1)
    await client.create(PODS, place.namespace, pod())
    error = await refused(client.create(PODS, place.namespace, pod("b")))
    assert (error.status, error.reason) == (403, "Forbidden")
    assert error.message == (
        'pods "b" is forbidden: exceeded quota: compute, requested: pods=1, used: pods=1,'
        " limited: pods=1"
    )


async def headless_service_and_config_map_are_plain(client: KubeClient, place: Place) -> None:
    """They have no generation; a headless Service needs no port."""
    service: dict[str, object] = {
        "metadata": {"name": "a"},
        "spec": {"clusterIP": "None", "publishNotReadyAddresses": True, "selector": {"a": "b"}},
    }
    made = await client.create(SERVICES, place.namespace, service)
    held = await client.create(CONFIG_MAPS, place.namespace, config_map("a"))
    assert made.metadata.generation == held.metadata.generation == 0
    assert held.data == {"a": "b"}


async def lease_keeps_microseconds(client: KubeClient, place: Place) -> None:
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
        "metadata": {"name": "a.1"}, "eventTime": "2026-11-21T08:00:00.000000Z",
        "reportingController": "paddlepaddle.org/paddock", "reportingInstance": "paddock-0",
        "action": "Creating", "reason": "Created", "type": "Normal", "note": "made",
        "regarding": {
            "apiVersion": TWINS.api_version, "kind": "Twin", "name": "a",
            "namespace": place.namespace,
        },
    }  # fmt: skip


async def event_must_be_complete_and_may_only_be_counted(client: KubeClient, place: Place) -> None:
    """Each missing part is refused; later only its series and metadata may change."""
    whole = an_event(place)
    for field in ("eventTime", "reportingController", "reportingInstance", "action", "reason"):
        part = {name: value for name, value in whole.items() if name != field}
        error = await refused(client.create(EVENTS, place.namespace, part))
        assert (error.status, error.causes[0]) == (422, (field, "Required value"))
    for field, bad, said in (
        ("note", "x" * 1025, "message"), ("type", "Good", "type"), ("reason", "x" * 129, "reason"),
        ("reportingController", "a b", "reportingController"),
        ("metadata", {"generateName": "a."}, "metadata.generateName"),
    ):  # fmt: skip
        error = await refused(client.create(EVENTS, place.namespace, whole | {field: bad}))
        assert (error.status, error.causes[0][0]) == (422, said)
    coarse = whole | {"eventTime": "2026-11-21T08:00:00Z"}
    assert (await refused(client.create(EVENTS, place.namespace, coarse))).status == 400
    made = await client.create(EVENTS, place.namespace, whole)
    series = {"series": {"count": 2, "lastObservedTime": "2026-11-21T08:00:01.000000Z"}}
    await client.patch(EVENTS, place.namespace, made.metadata.name, series)
    labels = {"metadata": {"labels": {"a": "b"}}}
    await client.patch(EVENTS, place.namespace, made.metadata.name, labels)
    change = {"note": "other"}
    error = await refused(client.patch(EVENTS, place.namespace, made.metadata.name, change))
    assert (error.status, error.causes[0][0]) == (422, "message")


async def wrong_types_are_bad_requests(client: KubeClient, place: Place) -> None:
    """A template's number where text belongs is not even decoded; nothing names the field well."""
    containers: tuple[Any, ...] = (
        "x",
        [{"name": "main", "image": "i", "env": [{"name": "a", "value": 1}]}],
        [{"name": "main", "image": "i", "resources": {"limits": {"cpu": "lots"}}}],
        [{"name": "main", "image": "i", "command": "sh"}],
    )
    bad: dict[str, Any] = pod()
    for one in containers:
        bad["spec"]["containers"] = one
        error = await refused(client.create(PODS, place.namespace, bad))
        assert (error.status, error.reason) == (400, "BadRequest")
        assert error.message.startswith('Pod in version "v1" cannot be handled as a Pod: ')
    manifest: Any
    for resource, manifest in (
        (CONFIG_MAPS, config_map("a", labels={"a": 1})),
        (CONFIG_MAPS, {"metadata": {"name": "a"}, "data": {"a": 1}}),
        (SERVICES, {"metadata": {"name": "a"}, "spec": {"ports": [{"port": "http"}]}}),
        (LEASES, {"metadata": {"name": "a"}, "spec": {"renewTime": "2026-11-21T08:00:00Z"}}),
    ):
        chosen: Resource[Any] = resource
        assert (await refused(client.create(chosen, place.namespace, manifest))).status == 400
    empty: dict[str, object] = {"metadata": {"name": "a"}, "spec": None}
    error = await refused(client.create(PODS, place.namespace, empty))
    assert error.causes == (("spec.containers", "Required value"),)


async def container_names_every_mistake(client: KubeClient, place: Place) -> None:
    """All at once, so that a user corrects a template once."""
    bad: dict[str, Any] = pod()
    bad["spec"] |= {
        "terminationGracePeriodSeconds": -1,  # taken as 1
        "volumes": [{"name": "v", "emptyDir": {}}, {"name": "v", "emptyDir": {}}],
        "containers": [
            {
                "name": "a", "image": "i",
                "env": [{"name": ""}, {"name": "A B"}, {"name": "=a"}],
                "ports": [
                    {"containerPort": 0}, {"containerPort": 70000, "name": "x" * 16},
                    {"containerPort": 80, "name": "a"}, {"containerPort": 81, "name": "a"},
                ],
                "volumeMounts": [{"name": "w", "mountPath": "/a"}, {"name": "v"}],
            },
            {"name": "a", "image": "i"},
            {},
        ],
    }  # fmt: skip
    error = await refused(client.create(PODS, place.namespace, bad))
    assert sorted(field for field, _ in error.causes) == [
        "spec.containers[0].env[0].name", "spec.containers[0].env[2].name",
        "spec.containers[0].ports[0].containerPort", "spec.containers[0].ports[1].containerPort",
        "spec.containers[0].ports[1].name", "spec.containers[0].ports[3].name",
        "spec.containers[0].volumeMounts[0].name", "spec.containers[0].volumeMounts[1].mountPath",
        "spec.containers[1].name", "spec.containers[2].image", "spec.containers[2].name",
        "spec.volumes[1].name",
    ]  # fmt: skip


async def unknown_fields_of_a_pod_are_said_and_left_out(client: KubeClient, place: Place) -> None:
    """A PaddleJob's template is not checked when it is applied, and a pod is made all the same."""
    bad: dict[str, Any] = pod()
    bad["spec"] |= {"nodeSelectr": {"gpu": "yes"}, "hostPID": False}
    bad["spec"]["containers"][0] |= {"resurces": {}, "stdin": False}
    said: list[str] = []
    await client.create(PODS, place.namespace, bad, warn=said.append)
    assert sorted(said) == [
        'unknown field "spec.containers[0].resurces"', 'unknown field "spec.nodeSelectr"'
    ]  # fmt: skip
    assert (await client.get(PODS, place.namespace, "a")).metadata.name == "a"
