"""The store: what is looked up, and what listeners are told."""

from __future__ import annotations

from paddock.kube.objects import Meta, Object, OwnerReference
from paddock.operator.runtime.informer import ObjectCache


def item(name: str, version: int, *, uid: str = "", owner: str = "") -> Object:
    """An object."""
    owners = (OwnerReference(uid=owner, controller=True),) if owner else None
    meta = Meta(
        name=name, namespace="ml", uid=uid or name, resourceVersion=str(version),
        ownerReferences=owners,
    )  # fmt: skip
    return Object(meta)


class Told:
    """A store and what it told: "old version -> new version" of each change."""

    def __init__(self) -> None:
        self.store: ObjectCache[Object] = ObjectCache(
            {"owner": lambda o: o.metadata.controller_uid}
        )
        self.lines: list[str] = []
        self.store.listen(self._tell)

    def _tell(self, old: Object | None, new: Object | None) -> None:
        self.lines.append(f"{_version(old)} -> {_version(new)}")


def _version(one: Object | None) -> str:
    return one.metadata.resourceVersion if one else "none"


def test_the_same_version_again_is_no_change() -> None:
    """A list after a short break would otherwise make every job be looked at."""
    told = Told()
    told.store.put(item("a", 1))
    told.store.put(item("a", 1))
    told.store.put(item("a", 2))
    assert told.lines == ["none -> 1", "1 -> 2"]


def test_children_are_found_by_owner_in_order_of_names() -> None:
    """Reconcile is pure only when it sees the same objects in the same order."""
    store = Told().store
    for name in ("c", "a", "b"):
        store.put(item(name, 1, owner="job"))
    store.put(item("x", 1, owner="other"))
    assert [o.metadata.name for o in store.find("owner", "job")] == ["a", "b", "c"]
    assert store.find("owner", "") == ()


def test_a_change_of_owner_moves_it_in_the_index() -> None:
    """A pod that was orphaned must not count for its job any more."""
    store = Told().store
    store.put(item("a", 1, owner="job"))
    store.put(item("a", 2))
    assert store.find("owner", "job") == ()
    store.drop(("ml", "a"))
    assert len(store) == 0


def test_another_object_of_that_name_is_told_as_two_changes() -> None:
    """Who waits for the old pod's end must hear of it, though a new one has its name."""
    told = Told()
    told.store.put(item("a", 1, uid="old"))
    told.store.put(item("a", 5, uid="new"))
    assert told.lines == ["none -> 1", "1 -> none", "none -> 5"]


def test_a_deletion_of_an_earlier_object_is_ignored() -> None:
    """Late news of the old pod must not remove the new one of that name."""
    told = Told()
    told.store.put(item("a", 5, uid="new"))
    told.store.drop(("ml", "a"), "old")
    assert told.store.get(("ml", "a")) is not None


def test_a_list_deletes_what_it_does_not_have_in_its_namespace_only() -> None:
    """Deletions during a break are known by absence; other namespaces have their own list."""
    told = Told()
    told.store.put(item("a", 1))
    elsewhere = Object(Meta(name="b", namespace="other", uid="b", resourceVersion="1"))
    told.store.put(elsewhere)
    told.store.replace([item("c", 2)], "ml")
    assert sorted(o.metadata.name for o in told.store) == ["b", "c"]
    told.store.replace([], "")
    assert len(told.store) == 0


def test_an_answer_is_followed_from_the_version_it_was_made_on_only() -> None:
    """An answer that comes after news of a later version must not take the store back."""
    store = Told().store
    store.put(item("a", 1))
    store.follow(item("a", 2), "1")
    assert _version(store.get(("ml", "a"))) == "2"
    store.put(item("a", 9))
    store.follow(item("a", 3), "2")
    assert _version(store.get(("ml", "a"))) == "9"
    store.follow(item("a", 10, uid="another"), "9")
    assert _version(store.get(("ml", "a"))) == "9"
    store.follow(item("gone", 2), "1")
    assert store.get(("ml", "gone")) is None
