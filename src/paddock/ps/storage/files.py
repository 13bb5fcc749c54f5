"""Durable files share this: whole writes, atomic replacement, JSON that tells damage.

Rule: a name that readers look for appears only after its bytes are on the disk.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shutil
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

from paddock.errors import PaddockError
from paddock.ps.xxh3 import Buffer, xxh3

# fsync(2) mostly waits: a few at once keep the disk's queue full.
_SYNC_THREADS = 8
_FULL = (errno.ENOSPC, errno.EDQUOT)
_FULL_HINT = "free space there, or choose another directory"
_NOT_ALLOWED = "make the directory writable for this user, or choose another"
_IS_FILE = "it is, or lies below, a file: choose a directory"
# What a wrong path leads to: how full the disk is does not matter then.
_WRONG_PATH = {
    errno.ENOENT: "is the path right? no directory can be made there; choose another",
    errno.ENOTDIR: _IS_FILE,
    errno.EEXIST: _IS_FILE,
    errno.EACCES: _NOT_ALLOWED,
    errno.EPERM: _NOT_ALLOWED,
    errno.EROFS: _NOT_ALLOWED,
}


class DamageError(PaddockError):
    """A file is not what was written: truncated, flipped bits, or missing."""


def write_error(what: str, directory: Path, error: OSError) -> PaddockError:
    """The error of a failed write: what, where, why, and how much room is left."""
    is_full, text = error.errno in _FULL, f"{what} in {directory}: {error.strerror or error}"
    hint = _FULL_HINT if is_full else "look at the disk's health (dmesg)"
    if error.errno not in _WRONG_PATH:
        with suppress(OSError):
            facts = os.statvfs(directory)
            text += f", {facts.f_bavail * facts.f_frsize} bytes free there"
    return PaddockError(text, hint=_WRONG_PATH.get(error.errno or 0, hint), retryable=is_full)


@contextmanager
def writing(what: str, directory: Path) -> Iterator[None]:
    """An OSError within becomes the error of a failed write."""
    try:
        yield
    except OSError as error:
        raise write_error(what, directory, error) from error


def lock_directory(directory: Path, what: str, in_use: PaddockError, *, file: str = "") -> int:
    """Makes a directory and locks it, or a file in it, for this process; the descriptor.

    flock(2): the lock is held until the descriptor is closed or the process dies. Raises `in_use`
    when another holds it, PaddockError with `what` in it when the directory cannot be opened.
    """
    with writing(what, directory):
        directory.mkdir(parents=True, exist_ok=True)
        how = os.O_RDWR | os.O_CREAT if file else os.O_RDONLY
        fd = os.open(directory / file, how | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(fd)
        raise in_use from error
    return fd


def sync_path(path: Path) -> None:
    """Makes a file's content durable, or a directory's names (a file's own fsync(2) does not)."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def sync_files(directory: Path) -> None:
    """Makes the content of every file in the directory durable."""
    with ThreadPoolExecutor(_SYNC_THREADS) as pool:
        list(pool.map(sync_path, sorted(directory.iterdir())))


def write_file(path: Path, pieces: Iterable[Buffer], *, sync: bool) -> int:
    """Writes a new file of these bytes under its own name; the bytes written. Raises OSError."""
    with path.open("wb") as file:
        file.writelines(pieces)
        file.flush()
        if sync:
            os.fsync(file.fileno())
        return file.tell()


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A file to write that takes the path's place when it is whole and on the disk.

    The path holds either what it held or all of it, whenever the machine stops.
    """
    temporary = path.with_name(path.name + ".tmp")
    try:
        with temporary.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.rename(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_path(path.parent)


@contextmanager
def new_directory(path: Path, what: str) -> Iterator[Path]:
    """A directory to fill that gets its name when it is whole; who fills it syncs the files.

    Removes what was left half made of directories named so: `<word>-<number>`. Raises PaddockError
    with `what` in it when it cannot be written.
    """
    with writing(what, path.parent):
        path.parent.mkdir(parents=True, exist_ok=True)
        for leftover in path.parent.glob(path.name.partition("-")[0] + "-*.tmp"):
            remove_tree(leftover)
        temporary = path.with_suffix(".tmp")
        temporary.mkdir()
        try:
            yield temporary
        except BaseException:
            remove_tree(temporary)
            raise
        temporary.rename(path)
        sync_path(path.parent)


def remove_tree(path: Path) -> None:
    """Removes a directory; one that is half gone or missing is no error."""
    shutil.rmtree(path, ignore_errors=True)


def hash_of(data: Buffer) -> str:
    """xxh3-64 as 16 hexadecimal digits."""
    return f"{xxh3(data):016x}"


def _checksum(value: dict[str, Any]) -> str:
    """The checksum of a JSON value; equal values have the same."""
    return hash_of(json.dumps(value, sort_keys=True, separators=(",", ":")).encode())


def write_json(path: Path, value: dict[str, Any]) -> str:
    """Writes the value with its checksum inside, atomically; the checksum."""
    checksum = _checksum(value)
    text = json.dumps({**value, "checksum": checksum}, indent=1, sort_keys=True)
    with replacing(path) as file:
        file.write(text.encode())
    return checksum


def read_json(path: Path, what: str, format: int = 0) -> tuple[dict[str, Any], str]:
    """The value that write_json wrote, and its checksum. format: its "format"; 0: it has none.

    Raises DamageError when the file is missing, is not JSON, or is not what was written.
    """
    try:
        value = json.loads(path.read_bytes())
    except FileNotFoundError as error:
        raise DamageError(f"{what} {path} is missing") from error
    except OSError as error:
        raise DamageError(f"{what} {path} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise DamageError(f"{what} {path} is damaged: {error}") from error
    if not isinstance(value, dict) or not isinstance(value.get("checksum"), str):
        raise DamageError(f"{what} {path} is damaged: it holds no checksum")
    checksum = value.pop("checksum")
    if _checksum(value) != checksum:
        raise DamageError(f"{what} {path} is damaged: its checksum does not fit its content")
    if format and value.get("format") != format:
        raise DamageError(
            f"{what} {path} has format {value.get('format')}, this paddock reads {format}",
            hint="read it with the paddock that wrote it",
        )
    return value, checksum
