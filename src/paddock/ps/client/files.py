"""A checkpoint's files over the wire, for servers that do not see the directory of this process.

Piece by piece, a server after the other: a frame of memory here and there, and the time that the
network needs for all of them. The other side of it is storage/spool.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from paddock.errors import PaddockError
from paddock.ps.client.server_connection import ServerConnection
from paddock.ps.storage.checkpoint import MANIFEST, PART, SAME, Checkpoint
from paddock.ps.storage.files import sync_files, sync_path, writing
from paddock.ps.storage.spool import LOAD, SAVE
from paddock.ps.wire.frames import BODY_MAX, Op

PIECE = BODY_MAX // 2  # With the file's name it is a frame.


def fetch(peer: ServerConnection, files: Iterable[tuple[str, int]], into: Path) -> None:
    """A server's part of a checkpoint, which it then forgets. files: name there, bytes.

    Raises PaddockError.
    """
    with writing("cannot save a checkpoint", into.parent):
        into.mkdir(parents=True, exist_ok=True)
        for file, size in files:
            with (into / Path(file).name).open("wb") as written:
                while (at := written.tell()) < size:
                    if not written.write(peer.read_file(file, at)):
                        raise PaddockError(
                            f"server {peer.index}: {file} ends at {at} instead of {size} bytes",
                            hint="save again",
                            retryable=True,
                        )
        sync_files(into)
        sync_path(into)
    _forget(peer, SAVE)


def send(peer: ServerConnection, checkpoint: Checkpoint) -> None:
    """Sends a server what it needs to load its share: all manifests, the files of its shards."""
    owned = {table["spec"]["name"]: set(table["owned"]) for table in peer.tables()}
    for one in (checkpoint, *checkpoint.bases()):
        for path in _needed(one, owned):
            file = f"{LOAD}{checkpoint.checksum}/{one.name}/{path.relative_to(one.path)}"
            with path.open("rb") as opened:
                at = 0
                while piece := opened.read(PIECE):
                    peer.write_file(file, at, piece)
                    at += len(piece)


def _needed(one: Checkpoint, owned: dict[str, set[int]]) -> Iterator[Path]:
    yield one.path / MANIFEST
    yield from sorted(one.path.glob(f"server-*/{PART}"))
    for entry in one.entries.values():
        if entry.kind != SAME and entry.shard in owned.get(entry.table, ()):
            yield one.path / entry.written.file


def forget(peer: ServerConnection, checkpoint: Checkpoint) -> None:
    """The server has loaded it."""
    _forget(peer, LOAD + checkpoint.checksum)


def _forget(peer: ServerConnection, files: str) -> None:
    peer.ask(Op.CONTROL, {"do": "forget", "files": files})
