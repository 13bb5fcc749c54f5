"""Create, patch and delete by the API server's rules (generation, status, graceful deletion)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from kube_memory import refusals, rules
from kube_memory.patches import PatchError, applied, json_patched, merged
from kube_memory.refusals import qualified
from kube_memory.store import Stored
from kube_memory.typed import leave_out, refuse_wrong_types
from paddock.kube.client import KubeError
from paddock.kube.objects import rfc3339, seconds

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kube_memory.selectors import Document
    from kube_memory.server import MemoryServer
    from kube_memory.store import Key
    from paddock.kube.client import Manifest, PatchKind, Resource, Warn

# Kinds without a status subresource: their status is a field as any other. All others have one.
NO_STATUS = ("configmaps", "leases.coordination.k8s.io", "events.events.k8s.io")
# Kinds of the server itself whose generation it does not count. Custom ones are all counted.
NO_GENERATION = (*NO_STATUS, "services")
TERMINAL = ("Succeeded", "Failed")
# Set by the server, whatever a client sends.
FIXED = (
    "namespace", "uid", "generation", "creationTimestamp", "deletionTimestamp",
    "deletionGracePeriodSeconds", "resourceVersion",
)  # fmt: skip


def create(
    server: MemoryServer,
    resource: Resource[Any],
    namespace: str,
    manifest: Manifest,
    *,
    dry_run: bool = False,
    warn: Warn | None = None,
) -> Stored:
    """A new object. Raises KubeError 400, 403, 409 or 422, in the order the real server checks."""
    kind = qualified(resource)
    document = _copied(manifest)
    metadata = document.get("metadata")
    if not isinstance(metadata, dict):
        metadata = document["metadata"] = {}
    refuse_wrong_types(resource, kind, document)
    for field in leave_out(kind, document):
        if warn is not None:
            warn(f'unknown field "{field}"')
    if metadata.get("resourceVersion"):
        raise refusals.internal_error("resourceVersion should not be set on objects to be created")
    if (metadata.get("namespace") or namespace) != namespace:
        raise refusals.bad_request(
            "the namespace of the provided object does not match the namespace sent on the request"
        )
    metadata["namespace"] = namespace
    prefix = metadata.get("generateName") or ""
    if not metadata.get("name") and not prefix:
        raise refusals.invalid(
            resource, "", [("metadata.name", "Required value: name or generateName is required")]
        )
    if not metadata.get("name"):
        metadata["name"] = f"{prefix[:58]}{server.next_number():05d}"
    if not namespace:
        del metadata["namespace"]
    name = str(metadata["name"])
    _admit(server, resource, namespace, name)
    document.setdefault("apiVersion", resource.api_version)
    document.setdefault("kind", resource.kind)
    for field in FIXED[1:]:
        metadata.pop(field, None)
    if kind not in NO_GENERATION:
        metadata["generation"] = 1
    if kind not in NO_STATUS:
        document.pop("status", None)
    if kind in server.mutates:
        server.mutates[kind](document)
    rules.filled_in(kind, document)
    _normalise(metadata)
    _refuse_invalid(server, resource, document)
    if server.store.get(kind, (namespace, name)) is not None:
        raise refusals.already_exists(resource, name)
    metadata["creationTimestamp"] = rfc3339(server.now())
    metadata["uid"] = f"{server.next_number():08x}-0000-4000-8000-000000000000"
    if dry_run:
        return Stored(0, msgspec.json.encode(document))
    return server.store.put(kind, document)


def patch(
    server: MemoryServer,
    resource: Resource[Any],
    key: Key,
    change: Mapping[str, object] | list[object],
    how: PatchKind,
    subresource: str,
) -> Stored:
    """An object after a patch; a patch that changes nothing leaves the version as it was."""
    kind = qualified(resource)
    stored = server.store.get(kind, key)
    if subresource not in ("", "status") or (subresource and kind in NO_STATUS):
        raise KubeError(
            "the server could not find the requested resource", status=404, reason="NotFound"
        )
    if stored is None:
        if how == "apply" and not subresource and isinstance(change, dict):
            return _applied_new(server, resource, key, change)
        raise refusals.not_found(resource, key[1])
    before = stored.document
    after = _patched(server, resource, before, change, how, subresource)
    _refuse_stale(resource, before, after, subresource)
    if subresource == "status":
        after = _with_status(_copied(before), after)
    elif kind not in NO_STATUS:
        after = _with_status(after, before)
    found = before["metadata"]
    asked = {name: value for name, value in after["metadata"].items() if name not in FIXED}
    after["metadata"] = asked | {name: found[name] for name in FIXED if name in found}
    _normalise(after["metadata"])
    if after == before:
        return stored
    _refuse_invalid(server, resource, after)
    changes = rules.change_causes(kind, before, after)
    if changes:
        raise refusals.invalid(resource, key[1], changes)
    if kind not in NO_GENERATION and _spec(before) != _spec(after):
        after["metadata"]["generation"] = before["metadata"].get("generation", 0) + 1
    return put(server, kind, after)


def put(server: MemoryServer, kind: str, document: Document) -> Stored:
    """Store a version; what waited only for its last finalizer is removed."""
    stored = server.store.put(kind, document)
    metadata = document["metadata"]
    if (
        metadata.get("deletionTimestamp")
        and not metadata.get("finalizers")
        and not metadata.get("deletionGracePeriodSeconds")
    ):
        return _removed(server, kind, stored)
    return stored


def delete(
    server: MemoryServer,
    resource: Resource[Any],
    key: Key,
    *,
    uid: str,
    grace_seconds: int | None,
) -> None:
    """Delete an object, or mark it as being deleted. Raises KubeError 404, 409."""
    kind = qualified(resource)
    stored = server.store.get(kind, key)
    if stored is None:
        raise refusals.not_found(resource, key[1])
    if uid and uid != stored.uid:
        raise refusals.wrong_uid(resource, key[1], uid, stored.uid)
    delete_stored(server, kind, key, grace_seconds)


def delete_stored(server: MemoryServer, kind: str, key: Key, grace_seconds: int | None) -> None:
    """Delete what is there, whoever asks for it."""
    stored = server.store.get(kind, key)
    assert stored is not None
    document = stored.document
    metadata = document["metadata"]
    grace = _grace(kind, document, grace_seconds)
    if not grace and not metadata.get("finalizers"):
        _removed(server, kind, stored)
        return
    # A second delete can only make the time shorter.
    left = metadata.get("deletionGracePeriodSeconds")
    if metadata.get("deletionTimestamp") and (left is None or grace >= left):
        return
    if not metadata.get("deletionTimestamp") and metadata.get("generation"):
        metadata["generation"] += 1
    asked_at = seconds(metadata.get("deletionTimestamp")) - (left or 0) or server.now()
    metadata["deletionTimestamp"] = rfc3339(asked_at + grace)
    metadata["deletionGracePeriodSeconds"] = grace
    put(server, kind, document)


def _grace(kind: str, document: Document, asked: int | None) -> int:
    """Seconds that a pod may take to end; others, and pods that do not run, take none."""
    if kind != "pods" or not document["spec"].get("nodeName"):
        return 0
    if document["status"].get("phase") in TERMINAL:
        return 0
    if asked is not None:
        return max(asked, 0)
    return int(document["spec"].get("terminationGracePeriodSeconds", 30))


def _removed(server: MemoryServer, kind: str, stored: Stored) -> Stored:
    metadata = stored.peek["metadata"]
    for subresource in ("", "status"):
        server.last_applied.pop((metadata["uid"], subresource), None)
    return server.store.remove(kind, (metadata.get("namespace", ""), metadata["name"]))


def _admit(server: MemoryServer, resource: Resource[Any], namespace: str, name: str) -> None:
    """Refuse what the namespace cannot take."""
    if namespace in server.terminating:
        raise _of_a_dying_namespace(server, resource, namespace, name)
    if qualified(resource) == "pods" and namespace in server.quotas:
        quota, limit = server.quotas[namespace]
        used = sum(
            key[0] == namespace and stored.peek["status"].get("phase") not in TERMINAL
            for key, stored in server.store.all("pods")
        )
        if used >= limit:
            raise refusals.forbidden(
                resource, name,
                f"exceeded quota: {quota}, requested: pods=1, used: pods={used},"
                f" limited: pods={limit}",
            )  # fmt: skip


def _of_a_dying_namespace(
    server: MemoryServer, resource: Resource[Any], namespace: str, name: str
) -> KubeError:
    """403 while something is left in it, 404 after that."""
    kinds = server.store.kinds()
    if all(key[0] != namespace for kind in kinds for key, _ in server.store.all(kind)):
        return KubeError(f'namespaces "{namespace}" not found', status=404, reason="NotFound")
    error = refusals.forbidden(
        resource, name,
        f"unable to create new content in namespace {namespace} because it is being terminated",
    )  # fmt: skip
    error.causes = (("metadata.namespace", f"namespace {namespace} is being terminated"),)
    return error


def _refuse_invalid(server: MemoryServer, resource: Resource[Any], document: Document) -> None:
    kind = qualified(resource)
    refuse_wrong_types(resource, kind, document)
    found = rules.causes(kind, document)
    if kind in server.checks:
        found += server.checks[kind](document)
    if found:
        raise refusals.invalid(resource, document["metadata"]["name"], found)


def _refuse_stale(
    resource: Resource[Any], before: Document, after: Document, subresource: str
) -> None:
    """Refuse a patch that meant another object or version. The order is the real server's.

    A wrong uid in the status of a custom kind is not noticed there, so not here.
    """
    asked, found = after["metadata"], before["metadata"]
    name = found["name"]
    if asked.get("name") != name:
        raise refusals.bad_request(
            f"the name of the object ({asked.get('name')}) does not match the name on the URL"
            f" ({name})"
        )
    if asked.get("resourceVersion") not in (found["resourceVersion"], None, ""):
        raise refusals.stale(resource, name)
    is_custom_status = subresource == "status" and "." in resource.group
    if asked.get("uid") not in (found["uid"], None, "") and not is_custom_status:
        cause = ("metadata.uid", f'Invalid value: "{asked["uid"]}": field is immutable')
        raise refusals.invalid(resource, name, [cause])


def _patched(
    server: MemoryServer,
    resource: Resource[Any],
    before: Document,
    change: Mapping[str, object] | list[object],
    how: PatchKind,
    subresource: str,
) -> Document:
    if how == "merge":
        after = merged(before, _copied(change))
    elif how == "apply":
        last = (before["metadata"]["uid"], subresource)
        after = applied(before, server.last_applied.get(last), _identified(change))
        server.last_applied[last] = _identified(change)
    else:
        assert isinstance(change, list)
        try:
            after = json_patched(before, _copied(change))
        except PatchError as error:
            raise KubeError(
                "the server rejected our request due to an error in our request",
                status=422,
                reason="Invalid",
            ) from error
    if not isinstance(after, dict) or not isinstance(after.get("metadata"), dict):
        raise refusals.bad_request("metadata: must be an object")
    return after


def _identified(change: Any) -> Document:
    """An apply's own fields; the name and version of the object are not among them."""
    given: Document = _copied(change)
    given.pop("apiVersion", None)
    given.pop("kind", None)
    metadata = given.get("metadata")
    if isinstance(metadata, dict):
        metadata.pop("name", None)
        metadata.pop("namespace", None)
    return given


def _applied_new(
    server: MemoryServer, resource: Resource[Any], key: Key, change: Mapping[str, object]
) -> Stored:
    document = merged(_copied(change), {"metadata": {"name": key[1]}})
    stored = create(server, resource, key[0], document)
    server.last_applied[stored.uid, ""] = _identified(change)
    return stored


def _with_status(document: Document, source: Document) -> Document:
    """document with the status of source."""
    result = {name: value for name, value in document.items() if name != "status"}
    return result | ({"status": source["status"]} if "status" in source else {})


def _spec(document: Document) -> Document:
    return {name: value for name, value in document.items() if name not in ("metadata", "status")}


def _normalise(metadata: Document) -> None:
    """Leave out what is empty, as the real server's types do."""
    for name in ("labels", "annotations", "ownerReferences", "finalizers"):
        if not metadata.get(name):
            metadata.pop(name, None)


def _copied(value: Any) -> Any:
    """As it arrives through JSON: a copy, with lists for tuples."""
    return msgspec.json.decode(msgspec.json.encode(value))
