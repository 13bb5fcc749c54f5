"""The calls of an API server as values, the verbs that make them, and how they fail.

``KubeClient`` is implemented by http_client.py (the real one) and, for tests, by an API server in
memory (tests/kube_memory); both pass tests/kube/test_client_twins.py.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

from paddock.errors import PaddockError
from paddock.kube import objects
from paddock.kube.resource import GROUP as GROUP
from paddock.kube.resource import Manifest as Manifest
from paddock.kube.resource import Resource as Resource

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Mapping

    Warn = Callable[[str], object]

T = TypeVar("T")
PatchKind = Literal["merge", "apply", "json"]
Verb = Literal["get", "list", "watch", "create", "patch", "delete"]


PADDLE_JOBS = Resource(GROUP, "v1", "paddlejobs", "PaddleJob", objects.PaddleJob)
PODS = Resource("", "v1", "pods", "Pod", objects.Pod)
SERVICES = Resource("", "v1", "services", "Service", objects.Object)
CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap", objects.ConfigMap)
EVENTS = Resource("events.k8s.io", "v1", "events", "Event", objects.Object)
LEASES = Resource("coordination.k8s.io", "v1", "leases", "Lease", objects.Lease)
VOLCANO_GROUPS = Resource(
    "scheduling.volcano.sh", "v1beta1", "podgroups", "PodGroup", objects.PodGroup
)
COSCHEDULING_GROUPS = Resource(
    "scheduling.x-k8s.io", "v1alpha1", "podgroups", "PodGroup", objects.PodGroup
)
CRDS = Resource(
    "apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition",
    objects.Object, namespaced=False,
)  # fmt: skip


class KubeError(PaddockError):
    """An API server said no, or could not be asked.

    status: the HTTP status, 0 when there was no answer. reason: Status.reason, as "AlreadyExists",
    "Forbidden", "Invalid", "Conflict", "Expired", "NotFound", "TooManyRequests"; "Unreachable" when
    there was no answer. causes: (field, message) of a refused object. retry_after: seconds the
    server asked to wait, or 0.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int = 0,
        reason: str = "Unreachable",
        causes: tuple[tuple[str, str], ...] = (),
        retry_after: float = 0.0,
    ) -> None:
        super().__init__(message, retryable=status in (0, 409, 429) or status >= 500)
        self.status = status
        self.reason = reason
        self.causes = causes
        self.retry_after = retry_after

    @property
    def is_of_ending_namespace(self) -> bool:
        """True while the namespace is being deleted: the server takes nothing new in it.

        Source: the field of cause NamespaceTerminating, of the admission plugin NamespaceLifecycle.
        """
        return self.status == 403 and any(field == "metadata.namespace" for field, _ in self.causes)


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """A part of a list. rest: give it back for the next part, "" at the end."""

    items: tuple[T, ...]
    resource_version: str
    rest: str = ""


@dataclass(frozen=True, slots=True)
class Change(Generic[T]):
    """An event of a watch. A "bookmark" carries a resourceVersion only."""

    kind: Literal["added", "modified", "deleted", "bookmark"]
    object: T


@dataclass(frozen=True, slots=True)
class Query:
    """A selection to list or watch. namespace "": all of them."""

    namespace: str = ""
    labels: str = ""
    fields: str = ""
    limit: int = field(default=500, compare=False)


@dataclass(frozen=True, slots=True)
class Call:
    """A call of an API server as a value; middleware measures, limits and passes it on.

    list: query, resource_version, rest. watch: query, resource_version, timeout_seconds. create:
    body (the manifest), dry_run, warn. patch: body (the change), kind. delete: uid, grace_seconds.
    """

    verb: Verb
    resource: Resource[Any]
    namespace: str = ""
    name: str = ""
    subresource: str = ""
    query: Query = Query()
    resource_version: str = ""
    rest: str = ""
    timeout_seconds: float = 0.0
    body: Any = None
    kind: PatchKind = "merge"
    dry_run: bool = False
    warn: Warn | None = None
    uid: str = ""
    grace_seconds: int | None = None

    @property
    def is_write(self) -> bool:
        """True for a create, patch or delete, also one with dry_run."""
        return self.verb in ("create", "patch", "delete")

    @property
    def target(self) -> str:
        """The plural, with the subresource: "pods", "paddlejobs/status"."""
        plural = self.resource.plural
        return f"{plural}/{self.subresource}" if self.subresource else plural


class KubeClient(ABC):
    """A client implements ``request``, ``stream`` and ``close``; the verbs make a Call for them.

    Every call raises KubeError, and nothing else, when the server refuses or is away.
    """

    @abstractmethod
    async def request(self, call: Call) -> Any:
        """The reply: an object, the Page of a list, None for a delete. Any call but a watch."""

    @abstractmethod
    def stream(self, call: Call) -> AsyncGenerator[Change[Any], None]:
        """The changes of a watch."""

    @abstractmethod
    async def close(self) -> None:
        """Give back connections."""

    async def get(self, resource: Resource[T], namespace: str, name: str) -> T:
        """Read one object. Raises KubeError 404 when it is not there."""
        found: T = await self.request(Call("get", resource, namespace, name))
        return found

    async def page(
        self, resource: Resource[T], query: Query, *, resource_version: str = "", rest: str = ""
    ) -> Page[T]:
        """List one page. resource_version "0": whatever the server has cached will do."""
        found: Page[T] = await self.request(
            Call(
                "list", resource, query.namespace,
                query=query, resource_version=resource_version, rest=rest,
            )
        )  # fmt: skip
        return found

    def watch(
        self, resource: Resource[T], query: Query, *, resource_version: str, timeout_seconds: float
    ) -> AsyncGenerator[Change[T], None]:
        """Yield changes after that version, bookmarks among them, until the server ends it.

        Raises KubeError 410 when the version is too old, and 0 when nothing at all, not even a
        bookmark, came for longer than the client's idle limit.
        """
        return self.stream(
            Call(
                "watch", resource, query.namespace, query=query,
                resource_version=resource_version, timeout_seconds=timeout_seconds,
            )
        )  # fmt: skip

    async def create(
        self, resource: Resource[T], namespace: str, manifest: Manifest, *,
        dry_run: bool = False, warn: Warn | None = None,
    ) -> T:  # fmt: skip
        """Create an object; returns it as stored. Its name, or generateName, is in the manifest.

        warn: called with each warning of the server, as 'unknown field "spec.x"'.
        """
        metadata: Any = manifest.get("metadata")
        name = str(metadata.get("name", "")) if isinstance(metadata, dict) else ""
        found: T = await self.request(
            Call("create", resource, namespace, name, body=manifest, dry_run=dry_run, warn=warn)
        )
        return found

    async def patch(
        self, resource: Resource[T], namespace: str, name: str,
        change: Mapping[str, object] | list[object], *,
        kind: PatchKind = "merge", subresource: str = "",
    ) -> T:  # fmt: skip
        """Change part of an object; metadata.resourceVersion in it makes a stale one 409.

        kind "apply" takes over fields that others had set (force).
        """
        body = change if isinstance(change, list) else dict(change)
        found: T = await self.request(
            Call("patch", resource, namespace, name, subresource, body=body, kind=kind)
        )
        return found

    async def delete(
        self, resource: Resource[T], namespace: str, name: str, *,
        uid: str = "", grace_seconds: int | None = None,
    ) -> None:  # fmt: skip
        """Delete in the background; with uid, only that very object (409 otherwise)."""
        await self.request(
            Call("delete", resource, namespace, name, uid=uid, grace_seconds=grace_seconds)
        )
