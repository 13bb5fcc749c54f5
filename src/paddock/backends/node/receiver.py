"""Contents on their way into the store. Standard library only.

The stream has frames: 32 bytes of SHA-256, 8 of the size, the content. It may be cut anywhere.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import tempfile
import time

from paddock.backends.node.store import ContentStore, told
from paddock.errors import PaddockError

HEAD_BYTES = 40
ABANDONED_SECONDS = 60.0  # far more than from making a file to locking it


def frame_head(sha256: str, size: int) -> bytes:
    """Return the head of a frame: SHA-256 and size of its content."""
    return bytes.fromhex(sha256) + size.to_bytes(8, "big")


class Receiver:
    """The receiver of a stream. A content gets its name once it is whole and its hash is right.

    After a problem the rest of the stream is passed over; finish() raises it.
    """

    def __init__(self, store: ContentStore) -> None:
        self._store = store
        self._head = b""
        self._coming: _PartialContent | None = None
        self._problem: PaddockError | None = None
        self._count = 0
        with told(store.folder):
            _remove_abandoned(store.new)

    def feed(self, data: bytes) -> None:
        """Take the next bytes of the stream."""
        if self._problem is not None:
            return
        try:
            with told(self._store.folder):
                self._take(memoryview(data))
        except PaddockError as error:
            self._problem = error
            self.drop()

    def finish(self) -> int:
        """Return how many contents came.

        Raises PaddockError if one is incomplete or its hash is wrong.
        """
        if self._problem is None and (self._head or self._coming is not None):
            self._problem = PaddockError("the transfer broke off", retryable=True)
        self.drop()
        self._store.trim()
        if self._problem is not None:
            raise self._problem
        return self._count

    def drop(self) -> None:
        """Remove the incomplete content."""
        if self._coming is not None:
            self._coming.drop()
            self._coming = None

    def _take(self, data: memoryview) -> None:
        while data:
            if self._coming is None:
                part = data[: HEAD_BYTES - len(self._head)]
                self._head += part
                data = data[len(part) :]
                if len(self._head) < HEAD_BYTES:
                    return
                size = int.from_bytes(self._head[32:], "big")
                self._coming = _PartialContent(self._store, self._head[:32].hex(), size)
                self._head = b""
            part = data[: self._coming.left]
            data = data[len(part) :]
            self._coming.write(part)
            if not self._coming.left:
                self._coming.end()
                self._coming = None
                self._count += 1


class _PartialContent:
    """A content that is not whole yet. left: bytes to come."""

    def __init__(self, store: ContentStore, sha256: str, size: int) -> None:
        self.left = size
        self._sha256 = sha256
        self._path = store.path(sha256)
        self._seen = hashlib.sha256()
        self._fd, self._temporary = tempfile.mkstemp(dir=store.new)
        _lock(self._fd)  # while it is held, it does not count as abandoned

    def write(self, part: memoryview) -> None:
        """Write the next bytes of the content. Raises OSError."""
        self._seen.update(part)
        self.left -= len(part)
        while part:
            part = part[os.write(self._fd, part) :]

    def end(self) -> None:
        """Check the hash of the whole content and give it its name.

        Raises PaddockError if it differs.
        """
        if self._seen.hexdigest() != self._sha256:
            raise PaddockError(
                "the transfer is damaged: a file came that is not what was announced",
                hint="was it written to while it was sent? submit again",
            )
        try:
            os.rename(self._temporary, self._path)
        except FileNotFoundError:
            os.makedirs(os.path.dirname(self._path), mode=0o700, exist_ok=True)
            os.rename(self._temporary, self._path)
        os.close(self._fd)

    def drop(self) -> None:
        """Remove what has come of the content."""
        os.unlink(self._temporary)
        os.close(self._fd)


def _remove_abandoned(folder: str) -> None:
    """Remove the partial contents of receivers that were killed."""
    for name in os.listdir(folder):
        path = os.path.join(folder, name)
        try:
            fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            continue
        try:
            is_old = os.fstat(fd).st_mtime < time.time() - ABANDONED_SECONDS
            if is_old and _lock(fd) and os.path.exists(path):
                os.unlink(path)
        finally:
            os.close(fd)


def _lock(fd: int) -> bool:
    """Lock a partial content; False if another process has it, or the file system has no locks."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
