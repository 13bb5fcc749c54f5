"""Store: the objects of one kind, as far as the API server has told, found by name or by index.

Changed only by its reflector, and by ``follow`` with the answer to a write of our own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from paddock.kube.objects import Meta


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
        """The object of that name, or None."""
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
