"""A package placed in a job's directory: whole, or not at all. Standard library only.

All is made in a directory beside our own files, below one descriptor and closed to others, and then
moved up. Contents are copied, never linked: a script may write into its files.
"""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import tempfile
from contextlib import suppress

from paddock.backends.node.manifest import (
    RESERVED,
    PackageEntry,
    PackageManifest,
    changed_problem,
    raw,
    refuse_unsafe_entries,
)
from paddock.backends.node.store import CHUNK_BYTES, free_bytes, size_text, system_errors
from paddock.errors import PaddockError, UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

NEW_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
OURS = {RESERVED, "nodes"}  # made by prepare (main.py)
OWNERS = 0o700  # what its owner may always do in a directory: the job writes there, delete removes


def build(
    manifest: PackageManifest,
    directory: str,
    source: Callable[[PackageEntry], int],
    *,
    is_checked: bool,
) -> None:
    """Make the manifest's entries in `directory`, which may have our own files already.

    source: returns a descriptor to read an entry's content from. is_checked: contents are known to
    match the manifest; otherwise they are compared while they are copied. Raises PaddockError, a
    UsageError for a file that was changed meanwhile, and then leaves nothing.
    """
    refuse_unsafe_entries(manifest.entries)
    if not os.path.isabs(directory):
        raise PaddockError(f"the job's directory {directory} is not absolute")
    with system_errors(directory):
        check_room(directory, manifest.total_bytes)
        os.makedirs(directory, 0o700, exist_ok=True)
        _refuse_taken(directory, manifest)
        temporary = tempfile.mkdtemp(prefix=f"{RESERVED}.tmp-", dir=directory)
        try:
            root = os.open(temporary, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                _fill(manifest, root, source, is_checked=is_checked)
            finally:
                os.close(root)
            _move_up(temporary, directory)
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True)  # a Ctrl-C may come after the move
            with suppress(OSError):  # it has our own files
                os.rmdir(directory)
            raise


def _refuse_taken(directory: str, manifest: PackageManifest) -> None:
    """Raise PaddockError if a directory has others' files, or the package has a name of ours."""
    names = set(os.listdir(directory))
    if os.path.islink(directory) or names - OURS:
        raise PaddockError(f"{directory} is there already, and is not empty")
    if taken := names & {entry.path for entry in manifest.entries}:
        raise PaddockError(f"the package has {', '.join(taken)}: in a job's directory that is ours")


def _move_up(temporary: str, directory: str) -> None:
    """Move all entries of a directory into its parent; or none."""
    moved = []
    try:
        for name in os.listdir(temporary):
            os.rename(os.path.join(temporary, name), os.path.join(directory, name))
            moved.append(name)
        os.rmdir(temporary)
    except BaseException:
        for name in moved:
            os.rename(os.path.join(directory, name), os.path.join(temporary, name))
        raise


def check_room(where: str, needed: int) -> None:
    """Check that so many bytes can be written there. Raises PaddockError."""
    free = free_bytes(where)
    if 0 <= free < needed:
        raise PaddockError(
            f"no space is left for {where}: {size_text(needed)} are needed, {size_text(free)} are"
            " free there",
            hint="make room there, or send less (.paddockignore, --workspace)",
        )


def _fill(
    manifest: PackageManifest, root: int, source: Callable[[PackageEntry], int], *, is_checked: bool
) -> None:
    for entry in manifest.entries:
        name = raw(entry.path)
        if entry.kind == "dir":
            os.mkdir(name, 0o700, dir_fd=root)
        elif entry.kind == "link":
            os.symlink(raw(entry.target), name, dir_fd=root)
        else:
            _copy(entry, name, root, source, is_checked=is_checked)
    for entry in manifest.entries:
        if entry.kind == "dir":
            os.chmod(raw(entry.path), entry.mode | OWNERS, dir_fd=root)


def _copy(
    entry: PackageEntry,
    name: bytes,
    root: int,
    source: Callable[[PackageEntry], int],
    *,
    is_checked: bool,
) -> None:
    come = source(entry)
    try:
        go = os.open(name, NEW_FLAGS, 0o600, dir_fd=root)
        try:
            if not is_checked or not _copy_in_kernel(come, go, entry.size):
                _copy_checked(entry, come, go)
            os.fchmod(go, entry.mode)
        finally:
            os.close(go)
    finally:
        os.close(come)


def _copy_in_kernel(come: int, go: int, size: int) -> bool:
    """Copy a file inside the kernel. False, with nothing lost, where that does not copy it all."""
    copy = getattr(os, "copy_file_range", None)
    left = size
    try:
        while left and copy is not None:
            done = copy(come, go, left)
            if not done:
                break
            left -= done
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EIO):
            raise
    if left:
        for fd in (come, go):
            os.lseek(fd, 0, os.SEEK_SET)
        os.ftruncate(go, 0)
    return not left


def _copy_checked(entry: PackageEntry, come: int, go: int) -> None:
    seen = hashlib.sha256()
    for chunk in chunks(os.dup(come), entry.size):
        seen.update(chunk)
        view = memoryview(chunk)
        while view:
            view = view[os.write(go, view) :]
    if seen.hexdigest() != entry.sha256:
        raise UsageError.of([changed_problem(entry.path)])


def chunks(fd: int, size: int) -> Iterator[bytes]:
    """Yield the first `size` bytes of a file, or all it has, and close it. Raises OSError."""
    with open(fd, "rb", buffering=0) as file:
        while size and (chunk := file.read(min(size, CHUNK_BYTES))):
            size -= len(chunk)
            yield chunk
