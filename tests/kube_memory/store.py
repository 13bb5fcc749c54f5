"""Objects, their versions, and the history that watches read. No rules of the API here.

One counter gives every write its resourceVersion. An object is kept as encoded JSON: what a caller
decodes is a copy, and no mutation of it reaches the store.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

T = TypeVar("T")
Document = dict[str, Any]
Key = tuple[str, str]  # namespace, name
ChangeKind = Literal["added", "modified", "deleted"]
HISTORY_MAX = 200_000  # entries kept; the older half is compacted away beyond that


@dataclass(frozen=True)
class Stored:
    """One version of one object."""

    version: int
    text: bytes

    @property
    def document(self) -> Document:
        """The object as JSON has it; a copy, yours to change."""
        found: Document = msgspec.json.decode(self.text)
        return found

    def read(self, shape: type[T]) -> T:
        """The object in a shape of objects.py."""
        return msgspec.json.decode(self.text, type=shape)

    @cached_property
    def peek(self) -> Document:
        """The object, shared: to be looked at only."""
        return self.document

    @property
    def uid(self) -> str:
        """metadata.uid."""
        return str(self.peek["metadata"]["uid"])


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of the history. was: the object before, which selectors need."""

    kind: ChangeKind
    now: Stored
    was: Stored | None


class Store:
    """All objects of all kinds. written: called after every change with its kind and entry."""

    def __init__(self, first_version: int, written: Callable[[str, Entry], None]) -> None:
        self.version = first_version
        self.compacted = first_version  # history before this is gone
        self._objects: dict[str, dict[Key, Stored]] = {}
        self._history: deque[tuple[str, Entry]] = deque()
        self._written = written

    def get(self, kind: str, key: Key) -> Stored | None:
        """That object, or None."""
        return self._objects.get(kind, {}).get(key)

    def all(self, kind: str) -> list[tuple[Key, Stored]]:
        """Every object of a kind, by namespace and name, as etcd orders them."""
        return sorted(self._objects.get(kind, {}).items())

    def kinds(self) -> list[str]:
        """Kinds that have an object, in order of their first one."""
        return [kind for kind, objects in self._objects.items() if objects]

    def put(self, kind: str, document: Document) -> Stored:
        """Store a new version of an object; its resourceVersion is set here."""
        key = _key(document)
        was = self.get(kind, key)
        now = self._stamped(document)
        self._objects.setdefault(kind, {})[key] = now
        self._log(kind, Entry("modified" if was else "added", now, was))
        return now

    def remove(self, kind: str, key: Key) -> Stored:
        """Remove an object; its last state, with the version of the removal."""
        was = self._objects[kind].pop(key)
        now = self._stamped(was.document)
        self._log(kind, Entry("deleted", now, was))
        return now

    def since(self, kind: str, version: int) -> Iterator[Entry]:
        """Changes after that version, oldest first. It must not be older than compacted."""
        return (entry for of, entry in self._history if of == kind and entry.now.version > version)

    def compact(self) -> None:
        """Forget the history up to now."""
        self._history.clear()
        self.compacted = self.version

    def _stamped(self, document: Document) -> Stored:
        self.version += 1
        document["metadata"]["resourceVersion"] = str(self.version)
        return Stored(self.version, msgspec.json.encode(document))

    def _log(self, kind: str, entry: Entry) -> None:
        self._history.append((kind, entry))
        if len(self._history) > HISTORY_MAX:
            while len(self._history) > HISTORY_MAX // 2:
                _, dropped = self._history.popleft()
                self.compacted = dropped.now.version
        self._written(kind, entry)


def _key(document: Document) -> Key:
    metadata = document["metadata"]
    return metadata.get("namespace", ""), metadata["name"]
