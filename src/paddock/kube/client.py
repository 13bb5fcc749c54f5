"""The few calls an operator makes of an API server, and how they fail.

``KubeClient`` is implemented by http_client.py (the real one) and, for tests, by an API server in
memory (tests/kube_memory); both pass tests/kube/test_client_twins.py.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, Literal, Protocol, TypeVar

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
        """Whether the namespace is being deleted: nothing new is taken, and soon nobody asks.

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
    """One event of a watch. A "bookmark" carries a resourceVersion only."""

    kind: Literal["added", "modified", "deleted", "bookmark"]
    object: T


@dataclass(frozen=True, slots=True)
class Query:
    """What to list or watch. namespace "": all of them."""

    namespace: str = ""
    labels: str = ""
    fields: str = ""
    limit: int = field(default=500, compare=False)


class KubeClient(Protocol):
    """Every call raises KubeError, and nothing else, when the server refuses or is away."""

    async def get(self, resource: Resource[T], namespace: str, name: str) -> T:
        """One object. Raises KubeError 404 when it is not there."""

    async def page(
        self, resource: Resource[T], query: Query, *, resource_version: str = "", rest: str = ""
    ) -> Page[T]:
        """A page of a list. resource_version "0": whatever the server has cached will do."""

    def watch(
        self, resource: Resource[T], query: Query, *, resource_version: str, timeout_seconds: float
    ) -> AsyncGenerator[Change[T], None]:
        """Changes after that version, bookmarks among them, until the server ends it.

        Raises KubeError 410 when the version is too old, and 0 when nothing at all, not even a
        bookmark, came for longer than the client's idle limit.
        """

    async def create(
        self, resource: Resource[T], namespace: str, manifest: Manifest, *,
        dry_run: bool = False, warn: Warn | None = None,
    ) -> T:  # fmt: skip
        """Create; the object as stored. metadata.name, or generateName, is in the manifest.

        warn: told what the server says of the manifest, as 'unknown field "spec.x"'.
        """

    async def patch(
        self,
        resource: Resource[T],
        namespace: str,
        name: str,
        change: Mapping[str, object] | list[object],
        *,
        kind: PatchKind = "merge",
        subresource: str = "",
    ) -> T:
        """Change part of an object; metadata.resourceVersion in it makes a stale one 409."""

    async def delete(
        self,
        resource: Resource[T],
        namespace: str,
        name: str,
        *,
        uid: str = "",
        grace_seconds: int | None = None,
    ) -> None:
        """Delete in the background; with uid, only that very object (409 otherwise)."""

    async def close(self) -> None:
        """Give back connections."""
