"""The content store of a host: file contents by their SHA-256, so that each is sent only once.

    ~/.cache/paddock/blobs/ab/abcd...   one content, whole and checked
    ~/.cache/paddock/blobs/new/         partial contents
    ~/.cache/paddock/blobs/lock         locked, shared to use contents, exclusive to trim

Contents come as a stream of frames: 32 bytes of SHA-256, 8 of the size, the content. The mtime is
the time of its last use, give or take half an hour. Standard library only.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import tempfile
import time
from contextlib import contextmanager

from paddock.errors import PaddockError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

LIMIT_BYTES = 10 << 30
HEAD_BYTES = 40  # of a frame
ABANDONED_SECONDS = 60.0  # far more than from making a file to locking it
SPARED_SECONDS = 3600.0  # contents used since then are never trimmed
CHUNK_BYTES = 1 << 20
READ_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC


class ContentStore:
    """The contents that one user has on this host."""

    def __init__(self, folder: str, limit_bytes: int = LIMIT_BYTES) -> None:
        """Make the store's folder. Raises PaddockError if other users may write there."""
        self.folder = folder
        self.limit_bytes = limit_bytes
        with system_errors(folder):
            os.makedirs(self.new, mode=0o700, exist_ok=True)
            for each in (os.path.dirname(folder), folder):
                found = os.stat(each)
                if found.st_uid != os.geteuid() or found.st_mode & 0o022:
                    raise PaddockError(
                        f"{each} is refused: it is somebody else's, or others may write there",
                        hint="make it yours alone (chmod 700), or set XDG_CACHE_HOME there",
                    )

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Lock the contents against trimming while the context is open."""
        with open(self._locked(fcntl.LOCK_SH)):
            yield

    def missing(self, blobs: Mapping[str, int]) -> list[str]:
        """Return the hashes of `blobs` (SHA-256 -> size) that are not here whole. Raises OSError.

        A content last used before this machine's boot is read and compared: a loss of power may
        have left half a file. Damaged contents are removed.
        """
        started_at = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
        found = []
        for sha256, size in blobs.items():
            path = self.path(sha256)
            try:
                status = os.stat(path)
            except FileNotFoundError:
                found.append(sha256)
                continue
            is_whole = status.st_size == size
            if is_whole and status.st_mtime < started_at + 1:
                is_whole = _hash_of(path) == sha256
            if not is_whole:
                os.unlink(path)
                found.append(sha256)
        return found

    @property
    def new(self) -> str:
        """The folder of partial contents, which are still being received."""
        return os.path.join(self.folder, "new")

    def path(self, sha256: str) -> str:
        """Return the path of a content, whether or not it is here."""
        return os.path.join(self.folder, sha256[:2], sha256)

    def open(self, sha256: str) -> int:
        """Return a descriptor of a content and mark it as used now. Raises OSError."""
        fd = os.open(self.path(sha256), READ_FLAGS)
        if os.fstat(fd).st_mtime < time.time() - SPARED_SECONDS / 2:
            os.utime(fd)
        return fd

    def trim(self, now: float | None = None) -> int:
        """Remove the least recently used contents down to the limit. Returns the bytes removed.

        Does nothing while contents are in use; contents used in the last hour stay.
        """
        try:
            fd = self._locked(fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return 0
        removed, now = 0, time.time() if now is None else now
        with open(fd):
            rows = self._contents()
            excess = sum(size for _, size, _ in rows) - self.limit_bytes
            for used_at, size, path in sorted(rows):
                if used_at > now - SPARED_SECONDS or removed >= excess:
                    break
                os.unlink(path)
                removed += size
        return removed

    def clear(self) -> tuple[int, int]:
        """Remove all; return number and bytes of contents. Raises PaddockError if one is in use."""
        with system_errors(self.folder):
            try:
                fd = self._locked(fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                hint = "again when no job is being submitted there"
                raise PaddockError(f"{self.folder} is in use", hint=hint) from error
            with open(fd):
                rows = self._contents()
                for _, _, path in rows:
                    os.unlink(path)
        return len(rows), sum(size for _, size, _ in rows)

    def _contents(self) -> list[tuple[float, int, str]]:
        """Return (used at, bytes, path) of each content."""
        rows = []
        for folder in os.scandir(self.folder):
            # What is being received comes and goes meanwhile, and is the receiver's to remove.
            if folder.is_dir(follow_symlinks=False) and folder.path != self.new:
                for each in os.scandir(folder.path):
                    found = each.stat(follow_symlinks=False)
                    rows.append((found.st_mtime, found.st_size, each.path))
        return rows

    def _locked(self, how: int) -> int:
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        fd = os.open(os.path.join(self.folder, "lock"), flags, 0o600)
        try:
            fcntl.flock(fd, how)
        except OSError:
            os.close(fd)
            raise
        return fd


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
        with system_errors(store.folder):
            _remove_abandoned(store.new)

    def __enter__(self) -> Receiver:
        return self

    def __exit__(self, *_: object) -> None:
        self.drop()

    def feed(self, data: bytes) -> None:
        """Take the next bytes of the stream."""
        if self._problem is not None:
            return
        try:
            with system_errors(self._store.folder):
                self._take(memoryview(data))
        except PaddockError as error:
            self._problem = error
            self.drop()

    def finish(self) -> int:
        """Return how many contents came. Raises PaddockError for one that is torn or wrong."""
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
        """Give the content its name. Raises PaddockError if its hash is not what was announced."""
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


def default_folder(env: Mapping[str, str]) -> str:
    """Return the folder of the content store on this host."""
    home = env.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return os.path.join(home, "paddock", "blobs")


@contextmanager
def system_errors(where: str) -> Iterator[None]:
    """Raise the system's refusals as PaddockError, a sentence that names `where`."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise PaddockError(
                f"no space is left for {where}: {error.strerror}; {size_text(free_bytes(where))}"
                " are free there",
                hint="make room there, or send less (.paddockignore, --workspace)",
            ) from error
        raise PaddockError(f"{_text(error.filename or where)}: {error.strerror}") from error


def free_bytes(path: str) -> int:
    """Return the bytes that this user can still write at a path; -1 where that is unknown."""
    try:
        while not os.path.exists(path):
            path = os.path.dirname(path)
        found = os.statvfs(path)
    except OSError:
        return -1
    if not found.f_blocks:
        return -1
    blocks = found.f_bfree if os.geteuid() == 0 else found.f_bavail
    return blocks * found.f_frsize


def size_text(size: float) -> str:
    """Return a number of bytes as people read it.

    >>> size_text(812), size_text(100 << 20), size_text(3.1 * (1 << 30))
    ('812 B', '100.0 MiB', '3.1 GiB')
    """
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


def _hash_of(path: str) -> str:
    seen = hashlib.sha256()
    with open(path, "rb", buffering=0) as file:
        while chunk := file.read(CHUNK_BYTES):
            seen.update(chunk)
    return seen.hexdigest()


def _text(name: str | bytes) -> str:
    return name if isinstance(name, str) else name.decode("utf-8", "backslashreplace")
