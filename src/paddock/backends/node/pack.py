"""A host's files as one tar file, sent to the fetching submitter; unreadable files are left out.

A job may still write to files, and remove them, while they are read.
"""

from __future__ import annotations

import os
import tarfile
from types import SimpleNamespace

from paddock.backends.node.jobdir import INNER
from paddock.backends.node.wire import CHUNK_BYTES

LEFT_OUT_MAX = 10_000
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any


def pack(places: Mapping[str, str], send: Callable[[bytes], None]) -> list[str]:
    """Send the files at these paths as a tar file, under the given names.

    Returns the files left out, and why. A path may be a link to elsewhere; links below it are sent
    as links.
    """
    left_out: list[str] = []

    class Tar(tarfile.TarFile):
        """A tar file that goes on after entries that cannot be read."""

        inodes: dict[tuple[int, int], str]

        def add(self, name: Any, arcname: Any = None, *args: Any, **words: Any) -> None:
            try:
                super().add(name, arcname, *args, **words)
            except BrokenPipeError:
                raise
            except OSError as error:
                left_out.append(f"{arcname}: {error.strerror or error}")
            self.inodes.clear()  # a second name of a file comes as a file

        def addfile(self, tarinfo: tarfile.TarInfo, fileobj: Any = None) -> None:
            whole = _SizedFile(fileobj, tarinfo.size)
            super().addfile(tarinfo, whole if fileobj is not None else None)
            if whole.lacks:
                left_out.append(f"{tarinfo.name}: it became shorter while it was read")

    def without_inner(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
        return None if f"/{INNER}/" in f"/{entry.name}/" else entry

    sink = SimpleNamespace(write=send)
    with Tar.open(fileobj=sink, mode="w|", bufsize=CHUNK_BYTES) as tar:
        for name, path in places.items():
            if os.path.exists(path):
                tar.add(os.path.realpath(path), name, filter=without_inner)
    return left_out[:LEFT_OUT_MAX]


class _SizedFile:
    """A file read at its announced size: missing bytes are zeros. lacks: how many are missing."""

    def __init__(self, file: Any, size: int) -> None:
        self.lacks = 0
        self._file = file
        self._left = size

    def read(self, size: int = -1, /) -> bytes:
        """Return the next bytes."""
        size = self._left if size < 0 else min(size, self._left)
        try:
            data: bytes = self._file.read(size)
        except OSError:
            data = b""
        self.lacks += size - len(data)
        self._left -= size
        return data.ljust(size, b"\0")
