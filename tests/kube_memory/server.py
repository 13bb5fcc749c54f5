"""MemoryServer: an API server in memory, right where it decides whether an operator is right.

Made for simulations and for tests of programs that use ``paddock.kube``; see the package's
docstring for an example. One rule: nothing here asks for the time or for chance. The clock is
given, and what time does (bookmarks, ends of watches, late changes, garbage) happens in ``tick``.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Any

from kube_memory import refusals, writes
from kube_memory.client import MemoryClient
from kube_memory.faults import Call, Faults, Rule
from kube_memory.garbage import collect
from kube_memory.kubelet import Kubelet
from kube_memory.refusals import qualified
from kube_memory.selectors import matcher
from kube_memory.store import Entry, Store, Stored
from kube_memory.stream import Stream

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from kube_memory.rules import Cause
    from kube_memory.selectors import Document
    from paddock.kube.client import KubeError, Manifest, PatchKind, Query, Resource, Warn

BOOKMARK_SECONDS = 60.0  # as the real server
SNAPSHOTS_MAX = 100  # unfinished lists; the oldest is forgotten, and its rest is 410


async def no_pause() -> None:
    """Let the other tasks have their turn."""
    await asyncio.sleep(0)


def everything(_: object) -> bool:
    """Whatever it is."""
    return True


class MemoryServer:
    """All objects of one cluster. now: seconds since 1970.

    collects: whether ``tick`` collects garbage; without it only ``collect`` does.
    checks: more causes to refuse an object of a kind, as a definition's schema would, by the kind's
    name (``refusals.qualified``). mutates: what a webhook changes in place in each new object of a
    kind. counts: calls so far, by (verb, kind, subresource).
    """

    def __init__(
        self, now: Callable[[], float], *, collects: bool = True, first_version: int = 1000
    ) -> None:
        self.now = now
        self.faults = Faults()
        self.checks: dict[str, Callable[[Document], list[Cause]]] = {}
        self.mutates: dict[str, Callable[[Document], object]] = {}
        self.counts: Counter[tuple[str, str, str]] = Counter()
        self.kubelet = Kubelet(self)
        self.quotas: dict[str, tuple[str, int]] = {}
        self.terminating: set[str] = set()
        self.last_applied: dict[tuple[str, str], Any] = {}
        self.store = Store(first_version, self._written)
        self._collects = collects
        self._unserved: set[str] = set()
        self._streams: list[Stream] = []
        self._snapshots: dict[str, tuple[int, list[Stored]]] = {}
        self._names = 0
        self._may_have_garbage = False

    def client(
        self,
        name: str = "client",
        *,
        idle_seconds: float = 75.0,
        pause: Callable[[], Awaitable[None]] = no_pause,
    ) -> MemoryClient:
        """One more client; name is what faults tell clients apart by."""
        return MemoryClient(self, name, idle_seconds=idle_seconds, pause=pause)

    # ------------------------------------------------------------------- what clients ask

    def get(self, resource: Resource[Any], namespace: str, name: str) -> Stored:
        """One object. Raises KubeError 404."""
        self._served(resource)
        found = self.store.get(qualified(resource), (self._scope(resource, namespace), name))
        if found is None:
            raise refusals.not_found(resource, name)
        return found

    def all(
        self, resource: Resource[Any], namespace: str = "", *, labels: str = "", fields: str = ""
    ) -> list[Stored]:
        """Every selected object, by namespace and name."""
        self._served(resource)
        kind = qualified(resource)
        fits = matcher(kind, labels, fields)
        return [
            stored
            for (found_in, _), stored in self.store.all(kind)
            if (not namespace or found_in == namespace) and fits(stored.peek)
        ]

    def page(
        self, resource: Resource[Any], query: Query, resource_version: str = "", rest: str = ""
    ) -> tuple[list[Stored], int, str]:
        """(objects, version, token of what is left). Pages are of one moment, the first one's."""
        if rest:
            version, left = self._snapshots.get(rest, (0, []))
            if version < self.store.compacted or not version:
                raise refusals.expired(
                    "The provided continue parameter is too old to display a consistent list"
                    " result. You can start a new list without the continue parameter."
                )
        else:
            left = self.all(resource, query.namespace, labels=query.labels, fields=query.fields)
            version = self.store.version
        if resource_version == "0" or not query.limit or len(left) <= query.limit:
            return left, version, ""
        token = f"{version}-{self.next_number()}"
        self._snapshots[token] = (version, left[query.limit :])
        if len(self._snapshots) > SNAPSHOTS_MAX:
            del self._snapshots[next(iter(self._snapshots))]
        return left[: query.limit], version, token

    def create(
        self,
        resource: Resource[Any],
        namespace: str,
        manifest: Manifest,
        *,
        dry_run: bool = False,
        warn: Warn | None = None,
    ) -> Stored:
        """Store a new object, or with dry_run say what it would be. warn: as of KubeClient."""
        self._served(resource)
        scope = self._scope(resource, namespace)
        return writes.create(self, resource, scope, manifest, dry_run=dry_run, warn=warn)

    def patch(
        self,
        resource: Resource[Any],
        namespace: str,
        name: str,
        change: Mapping[str, object] | list[object],
        *,
        kind: PatchKind = "merge",
        subresource: str = "",
    ) -> Stored:
        """Change an object or its status."""
        self._served(resource)
        scope = self._scope(resource, namespace)
        return writes.patch(self, resource, (scope, name), change, kind, subresource)

    def delete(
        self,
        resource: Resource[Any],
        namespace: str,
        name: str,
        *,
        uid: str = "",
        grace_seconds: int | None = None,
    ) -> None:
        """Delete; a pod that has a node, and what has a finalizer, stays until let go."""
        self._served(resource)
        scope = self._scope(resource, namespace)
        writes.delete(self, resource, (scope, name), uid=uid, grace_seconds=grace_seconds)

    def open_watch(
        self,
        resource: Resource[Any],
        query: Query,
        resource_version: str,
        timeout_seconds: float,
        *,
        client: str,
        idle_seconds: float,
    ) -> Stream:
        """A stream of changes. Version "" or "0": first what there is, as added."""
        self._served(resource)
        kind, now = qualified(resource), self.now()
        stream = Stream(
            kind, query.namespace, matcher(kind, query.labels, query.fields),
            client=client, opened_at=now, ends_at=now + timeout_seconds, idle_seconds=idle_seconds,
        )  # fmt: skip
        if resource_version in ("", "0"):
            for _, stored in self.store.all(kind):
                stream.offer(Entry("added", stored, None), now, 0.0)
        elif not resource_version.isdigit():
            raise refusals.internal_error(f'resourceVersion: Invalid value: "{resource_version}"')
        elif int(resource_version) < self.store.compacted:
            raise refusals.expired(
                f"too old resource version: {resource_version} ({self.store.compacted})"
            )
        else:
            for entry in self.store.since(kind, int(resource_version)):
                stream.offer(entry, now, 0.0)
        self._streams.append(stream)
        return stream

    def close_watch(self, stream: Stream) -> None:
        """The client no longer reads it."""
        if stream in self._streams:
            self._streams.remove(stream)

    def count(self, call: Call) -> None:
        """One more call."""
        self.counts[call.verb, qualified(call.resource), call.subresource] += 1

    # -------------------------------------------------------------------- what time does

    def tick(self) -> None:
        """Do what is due: call it after the clock moved."""
        if self._collects and self._may_have_garbage:
            self.collect()
        for stream in tuple(self._streams):
            stream.tick(self.now(), self.store.version, BOOKMARK_SECONDS)

    def collect(self) -> int:
        """Delete what has owners of which none is left; how many objects were deleted."""
        self._may_have_garbage = False
        return collect(self)

    # ------------------------------------------------------------------ what tests order

    def fail(
        self,
        error: KubeError,
        *,
        times: int | None = 1,
        when: Callable[[Call], bool] = everything,
        lost: bool = False,
    ) -> Rule:
        """Let the next calls that fit fail. times None: all of them until the rule's ``cancel``.

        lost: the call is carried out, and its answer does not arrive.
        """
        return self.faults.add(Rule(error, when, times, lost))

    def compact(self) -> None:
        """Forget the history: later watches from an older version, and pages, meet 410."""
        self.store.compact()

    def drop_watches(
        self,
        which: Callable[[Stream], bool] = everything,
        error: KubeError | None = None,
    ) -> int:
        """End open watches, with an error when one is given; how many."""
        chosen = [stream for stream in self._streams if which(stream)]
        for stream in chosen:
            if error is None:
                stream.end()
            else:
                stream.cut(refusals.again(error))
        return len(chosen)

    def silence_watches(self, which: Callable[[Stream], bool] = everything) -> int:
        """Open watches deliver nothing more and do not end, as on a half-open connection."""
        chosen = [stream for stream in self._streams if which(stream)]
        for stream in chosen:
            stream.die()
        return len(chosen)

    def set_quota(self, namespace: str, pods: int | None, *, name: str = "compute") -> None:
        """Refuse to create more pods there than that; None takes the quota away."""
        if pods is None:
            self.quotas.pop(namespace, None)
        else:
            self.quotas[namespace] = (name, pods)

    def serve(self, resource: Resource[Any], served: bool) -> None:
        """Install a definition, or remove it with all its objects."""
        kind = qualified(resource)
        if served:
            self._unserved.discard(kind)
            return
        for key, _ in self.store.all(kind):
            self.store.remove(kind, key)
        self.drop_watches(lambda stream: stream.kind == kind)
        self._unserved.add(kind)

    def terminate_namespace(self, namespace: str) -> None:
        """Delete all its objects, and refuse new ones."""
        self.terminating.add(namespace)
        for kind in self.store.kinds():
            for key, _ in self.store.all(kind):
                if key[0] == namespace:
                    writes.delete_stored(self, kind, key, None)

    @property
    def open_watches(self) -> tuple[Stream, ...]:
        """Watches that are open now."""
        return tuple(self._streams)

    def next_number(self) -> int:
        """A number for a name or a uid that nobody has had."""
        self._names += 1
        return self._names

    def _served(self, resource: Resource[Any]) -> None:
        if qualified(resource) in self._unserved:
            raise refusals.not_served(resource)

    def _scope(self, resource: Resource[Any], namespace: str) -> str:
        if not resource.namespaced:
            return ""
        if not namespace:
            raise refusals.not_served(resource)
        return namespace

    def _written(self, kind: str, entry: Entry) -> None:
        if entry.kind == "deleted" or entry.now.peek["metadata"].get("ownerReferences"):
            self._may_have_garbage = True
        for stream in tuple(self._streams):
            if stream.kind == kind:
                stream.offer(entry, self.now(), self.faults.watch_delay())
