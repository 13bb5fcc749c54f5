"""Informer: an ObjectCache of the objects of a kind, and the Reflector that keeps it equal to what
the API server has, through everything that happens to it.

event                             next
-------------------------------   ----------------------------------------------------------
started, or asked to be fresh     list, then watch from the list's version
watch ended by the server         watch from the last version, at once
watch ended at once with nothing  the same after a pause
no answer, dead watch, 429, 5xx   the same after a pause that doubles, with jitter
410, version too old              list again (what is missing then was deleted), watch
a pod of ours lost its label      the label is given back; the pod stays in the cache
404 of an optional kind           the cache is empty; asked again when somebody seeks it

A cache is changed only by its reflector, and by ``follow`` with the answer to a write of our own.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from paddock.kube.client import PODS, KubeError
from paddock.operator.names import LABEL_POD
from paddock.operator.runtime.clock import TimeLimit
from paddock.operator.runtime.guard import FencedError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from random import Random

    from paddock.kube.client import Change, KubeClient, Manifest, Query, Resource
    from paddock.kube.objects import Meta
    from paddock.operator.runtime.clock import Clock
    from paddock.operator.runtime.log import Logger

WATCH_SECONDS = (300.0, 600.0)  # client-go's minWatchTimeout and twice that
PAUSE_FIRST_SECONDS = 0.25
PAUSE_MAX_SECONDS = 30.0  # client-go's reflector
SHORT_WATCH_SECONDS = 1.0
GIVE_BACK_TRIES = 3  # more would keep news of all other pods waiting
SEEK_AGAIN_SECONDS = 1.0  # for all jobs together
SEEK_SECONDS_MAX = 5.0
SILENT_SECONDS_MAX = 900.0  # longer than any watch lives
ANY = "0"  # whatever the API server has cached
LATEST = ""  # at least as new as every write that was answered before


class HasMeta(Protocol):
    """Any Kubernetes object."""

    @property
    def metadata(self) -> Meta:
        """Its metadata."""


Key = tuple[str, str]  # (namespace, name)
T = TypeVar("T", bound=HasMeta)


def key_of(item: HasMeta) -> Key:
    """(namespace, name) of an object."""
    return item.metadata.namespace, item.metadata.name


class ObjectCache(Generic[T]):
    """Objects by key. indexers: name of an index -> what of an object is looked up in it.

    An index holds no object whose value is "". Listeners are called with (old, new) after each
    change, None standing for an object that is not there; an object that took the name of another
    is told as two changes.
    """

    def __init__(self, indexers: Mapping[str, Callable[[T], str]]) -> None:
        self._indexers = indexers
        self._objects: dict[Key, T] = {}
        self._indexes: dict[str, dict[str, dict[Key, T]]] = {name: {} for name in indexers}
        self._listeners: list[Callable[[T | None, T | None], None]] = []

    def __len__(self) -> int:
        return len(self._objects)

    def __iter__(self) -> Iterator[T]:
        return iter(self._objects.values())

    def listen(self, listener: Callable[[T | None, T | None], None]) -> None:
        """Call it after every change from now on."""
        self._listeners.append(listener)

    def get(self, key: Key) -> T | None:
        return self._objects.get(key)

    def find(self, index: str, value: str) -> tuple[T, ...]:
        """The objects of that value, sorted by namespace and name."""
        found = self._indexes[index].get(value)
        return tuple(found[key] for key in sorted(found)) if found else ()

    def put(self, item: T) -> None:
        """The object is like this now. One that is known in this version already is no change."""
        key = key_of(item)
        old = self._objects.get(key)
        if old is not None and old.metadata.uid != item.metadata.uid:
            self.drop(key)
            old = None
        elif old is not None and old.metadata.resourceVersion == item.metadata.resourceVersion:
            return
        if old is not None:
            self._unindex(key, old)
        self._objects[key] = item
        for name, value_of in self._indexers.items():
            if value := value_of(item):
                self._indexes[name].setdefault(value, {})[key] = item
        self._notify(old, item)

    def drop(self, key: Key, uid: str = "") -> None:
        """The object is gone. uid: only if it is that very one."""
        old = self._objects.get(key)
        if old is None or (uid and old.metadata.uid != uid):
            return
        del self._objects[key]
        self._unindex(key, old)
        self._notify(old, None)

    def replace(self, items: Iterable[T], namespace: str) -> None:
        """These are all objects there are in the namespace ("": anywhere)."""
        now = {key_of(item): item for item in items}
        gone = [k for k in self._objects if k not in now and namespace in ("", k[0])]
        for key in gone:
            self.drop(key)
        for item in now.values():
            self.put(item)

    def follow(self, item: T, version: str) -> None:
        """A write on top of that version was answered with the object.

        Put only where the store still has the version that the write was made on: then the answer
        is the very next version, which the watch has not brought yet. Versions have no order that
        clients may rely on, so nothing else is safe.
        """
        known = self._objects.get(key_of(item))
        if (
            known is not None
            and known.metadata.uid == item.metadata.uid
            and known.metadata.resourceVersion == version
        ):
            self.put(item)

    def _unindex(self, key: Key, old: T) -> None:
        for name, value_of in self._indexers.items():
            value = value_of(old)
            entries = self._indexes[name].get(value)
            if entries is not None:
                entries.pop(key, None)
                if not entries:
                    del self._indexes[name][value]

    def _notify(self, old: T | None, new: T | None) -> None:
        for listener in self._listeners:
            listener(old, new)


@dataclass(eq=False)
class Reflector(Generic[T]):
    """A list and watch. Its task is ``run``; the cache has no other writer of that namespace.

    first: the version of the first list, ANY or LATEST; every later list is LATEST, so that the
    store never goes back. is_optional: the kind may not be served. restarted: called for every
    watch that ended in an error.
    """

    client: KubeClient
    resource: Resource[T]
    query: Query
    store: ObjectCache[T]
    _: KW_ONLY
    clock: Clock
    rng: Random
    log: Logger
    restarted: Callable[[str], None]
    first: str = ANY
    is_optional: bool = False

    def __post_init__(self) -> None:
        self.synced = asyncio.Event()
        self.is_served = not self.is_optional
        self.reset()
        self._list_version = self.first
        self._wanted = asyncio.Event()  # somebody seeks a kind that was not served
        self._tried = asyncio.Event()
        # As `kubectl get` takes it: podgroups.scheduling.volcano.sh.
        self.name = ".".join(part for part in (self.resource.plural, self.resource.group) if part)

    def reset(self) -> None:
        """Believe nothing that was heard: the next ``run`` lists anew. Not while it runs."""
        self._version = ""  # of the last thing heard; "" means list first
        self._list_version = LATEST
        self._failures = 0
        self._step_at = self.clock.monotonic()
        self.synced.clear()

    @property
    def silent_seconds(self) -> float:
        """Since anything happened: an event, a bookmark, an error. Above SILENT_SECONDS_MAX it
        hangs."""
        if not self.is_served and self.synced.is_set():
            return 0.0
        return self.clock.monotonic() - self._step_at

    async def seek(self) -> bool:
        """Ask again for a kind that was not served, unless that was just now; whether it is."""
        if not self.is_served and self.clock.monotonic() - self._step_at >= SEEK_AGAIN_SECONDS:
            self._tried.clear()
            self._wanted.set()
            try:
                async with TimeLimit(SEEK_SECONDS_MAX):
                    await self._tried.wait()
            except asyncio.TimeoutError:
                return False
        return self.is_served

    async def run(self) -> None:
        """Follow the API server until cancelled."""
        pause: float | None
        while True:
            try:
                pause = await self._follow()
            except KubeError as error:
                pause = self._pause_after(error)
            except Exception as error:  # noqa: BLE001  A bug must not end the watch of all jobs.
                self._version = ""
                self._failures += 1
                pause = self._backoff()
                self.restarted(self.name)
                self.log.error("watch failed", kind=self.name, cause=error)
            self._step_at = self.clock.monotonic()
            if pause is not None:
                await self.clock.sleep(pause)
            else:  # An idle operator asks for nothing.
                self._wanted.clear()
                await self._wanted.wait()

    async def _follow(self) -> float:
        """A list when one is due, then one watch to its end; how long to pause after it."""
        if not self._version:
            await self._list()
        began = self.clock.monotonic()
        watched = self.client.watch(
            self.resource,
            self.query,
            resource_version=self._version,
            timeout_seconds=self.rng.uniform(*WATCH_SECONDS),
        )
        heard = False
        async with contextlib.aclosing(watched) as stream:
            async for change in stream:
                await self._take(change)
                heard = True
                self._failures = 0
        if heard or self.clock.monotonic() - began >= SHORT_WATCH_SECONDS:
            return 0.0
        self._failures += 1
        return self._backoff()

    async def _list(self) -> None:
        items: list[T] = []
        rest = ""
        while True:
            page = await self.client.page(
                self.resource, self.query, resource_version=self._list_version, rest=rest
            )
            self._step_at = self.clock.monotonic()
            items.extend(page.items)
            rest = page.rest
            if not rest:
                break
        self._list_version = LATEST
        self.is_served = True
        self.store.replace(items, self.query.namespace)
        self._version = page.resource_version
        self.synced.set()
        self._tried.set()
        self.log.debug("listed", kind=self.name, objects=len(items))

    async def _take(self, change: Change[T]) -> None:
        self._step_at = self.clock.monotonic()
        metadata = change.object.metadata
        if change.kind == "deleted" and not await self._is_shown_again(metadata):
            self.store.drop((metadata.namespace, metadata.name), metadata.uid)
        elif change.kind in ("added", "modified"):
            self.store.put(change.object)
        self._version = metadata.resourceVersion or self._version

    async def _is_shown_again(self, meta: Meta) -> bool:
        """True for a pod that lost only the label by which it is seen: it gets that back.

        A watch calls both deleted, but a pod that is deleted has a deletionTimestamp. Raises
        KubeError where asking again may help: the watch begins anew, and tells of it again.
        """
        is_ours = self.resource.kind == PODS.kind and meta.controller.kind == "PaddleJob"
        if not is_ours or meta.deletionTimestamp:
            return False
        change: Manifest = {"metadata": {"uid": meta.uid, "labels": {LABEL_POD: meta.name}}}
        try:
            answer = await self.client.patch(self.resource, meta.namespace, meta.name, change)
        except FencedError:  # another operator's to change
            return False
        except KubeError as error:
            if error.retryable and error.status != 409 and self._failures < GIVE_BACK_TRIES:
                raise
            return False  # it is gone after all
        if not answer.metadata.label(LABEL_POD):
            return False  # a webhook takes it away: no watch would tell of the pod any more
        self.log.info("took back what had no label", kind=self.name, name=meta.name,
                       label=LABEL_POD)  # fmt: skip
        return True

    def _pause_after(self, error: KubeError) -> float | None:
        """Seconds; None until somebody seeks the kind, which is not served."""
        kind = self.name
        self._failures += 1
        if self.is_optional and error.status in (403, 404):
            if self.is_served or not self.synced.is_set():
                self.log.info("kind is not served", kind=kind, reason=error.reason)
            self._version = ""
            self._failures = 0
            self.is_served = False
            self.store.replace((), self.query.namespace)
            self.synced.set()
            self._tried.set()
            return None
        self.restarted(kind)
        if error.status == 410:
            self._version = ""
            self._list_version = LATEST
            self.log.info("version is too old, listing again", kind=kind)
            return 0.0 if self._failures == 1 else self._backoff()
        pause = max(self._backoff(), error.retry_after)
        log = self.log.warning if error.status != 404 else self.log.error
        log("watch failed", kind=kind, reason=error.message, again_in=f"{pause:.1f}s")
        return pause

    def _backoff(self) -> float:
        """Doubles from the first failure on; half of it is chance, so that not all come at once."""
        most = min(PAUSE_MAX_SECONDS, PAUSE_FIRST_SECONDS * 2.0 ** min(self._failures - 1, 20))
        return most * self.rng.uniform(0.5, 1.0)
