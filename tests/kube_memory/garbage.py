"""The garbage collector: what belongs to nobody any more is deleted.

Source: https://kubernetes.io/docs/concepts/architecture/garbage-collection/. An owner counts only
in the dependent's own namespace, or when it has none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kube_memory import writes

if TYPE_CHECKING:
    from kube_memory.server import MemoryServer


def collect(server: MemoryServer) -> int:
    """Delete, in the background, every object whose owners are all gone; how many."""
    alive: set[tuple[str, str]] = set()
    owned: list[tuple[str, tuple[str, str], list[str]]] = []
    for kind in server.store.kinds():
        for key, stored in server.store.all(kind):
            metadata = stored.peek["metadata"]
            alive.add((key[0], metadata["uid"]))
            owners = [owner["uid"] for owner in metadata.get("ownerReferences") or ()]
            if owners and not metadata.get("deletionTimestamp"):
                owned.append((kind, key, owners))
    orphans = [
        (kind, key)
        for kind, key, owners in owned
        if not any((key[0], uid) in alive or ("", uid) in alive for uid in owners)
    ]
    for kind, key in orphans:
        writes.delete_stored(server, kind, key, None)
    return len(orphans)
