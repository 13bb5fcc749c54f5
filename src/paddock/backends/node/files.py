"""Requests about files, as a host answers them. Standard library only.

op      body                      answer
------  ------------------------  -------------------------------------------------
put     contents (store.py)       {"received": n}
place   a manifest, as packed     {"placed": true}, or {"missing": n} with the hashes
offer   a key, 32 bytes, hashes   {"port": n}: given there to other hosts (relay.py); without a
                                  body that ends
take    a key, 32 bytes, hashes   {"received": n}: fetched from "address" and "port" of another

An unchanged package is placed in one round; otherwise the missing contents are put, and place is
asked again.
"""

from __future__ import annotations

import os

from paddock.backends.node.manifest import unpack
from paddock.backends.node.place import build, check_room
from paddock.backends.node.store import ContentStore, Receiver, default_folder, system_errors
from paddock.errors import PaddockError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from typing import Any

    from paddock.backends.node.wire import Wire


def serve(request: Mapping[str, Any], wire: Wire, store: ContentStore | None = None) -> None:
    """Answer put, place, offer or take; "directory" in the request is the job's."""
    try:
        if store is None:
            store = ContentStore(default_folder(os.environ))
        row, hashes = _answer(request, wire.body(), store)
    except PaddockError as error:
        row, hashes = {"error": error.message, "hint": error.hint}, []
    for _ in wire.body():  # of a request that was refused before it was read
        pass
    wire.send({"re": request["op"], **row}, join_hashes(hashes))


def join_hashes(hashes: Iterable[str]) -> bytes:
    """Pack hashes for the wire: 32 bytes each."""
    return b"".join(map(bytes.fromhex, hashes))


def split_hashes(data: bytes) -> list[str]:
    """Unpack the hashes that ``join_hashes`` packed."""
    return [data[at : at + 32].hex() for at in range(0, len(data), 32)]


def _answer(
    request: Mapping[str, Any], body: Iterator[bytes], store: ContentStore
) -> tuple[dict[str, object], list[str]]:
    if request["op"] == "put":
        with Receiver(store) as receiver:
            for piece in body:
                receiver.feed(piece)
            return {"received": receiver.finish()}, []
    data = b"".join(body)
    if request["op"] == "place":
        missing = _place(data, str(request["directory"]), store)
        return ({"missing": len(missing)} if missing else {"placed": True}), missing
    from paddock.backends.node import relay  # threads and sockets: for many hosts only

    key, hashes = data[: relay.KEY_BYTES], split_hashes(data[relay.KEY_BYTES :])
    address = str(request["address"])
    if request["op"] == "take":
        port = int(request["port"])
        return {"received": relay.take(store, key, hashes, address, port)}, []
    if key:
        return {"port": relay.offer(store, key, hashes, address)}, []
    relay.withdraw(store)
    return {}, []


def _place(data: bytes, directory: str, store: ContentStore) -> list[str]:
    """Make the directory, or answer with the hashes that are missing."""
    manifest = unpack(data)
    blobs = manifest.blobs
    with store.in_use(), system_errors(store.folder):
        missing = store.missing(blobs)
        if not missing:
            build(manifest, directory, lambda e: store.open(e.sha256), is_checked=True)
            return []
    check_room(store.folder, sum(blobs[each] for each in missing))
    check_room(directory, manifest.total_bytes)
    return missing
