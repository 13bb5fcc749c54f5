"""The hash cache: a file that has not changed since it was hashed is not read again.

    $XDG_CACHE_HOME/paddock/hashes/ROOT.json   one file for every package's directory

A file is the same as before when its device, inode, size and times are (mtime and ctime, to the
nanosecond). A file that changed a moment before it was read is not remembered: it might change
again within one tick of the file system's clock.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from paddock.local.runs.entry import cache_folder

TICK_NS = 2_000_000_000  # the coarsest clock of a file system: FAT, and NFS before version 3


class Hashes:
    """The cached hashes of one directory. A missing cache only costs time."""

    def __init__(self, root: bytes, env: Mapping[str, str]) -> None:
        folder = Path(cache_folder(env)) / "hashes"
        self.path = folder / f"{hashlib.sha256(root).hexdigest()[:32]}.json"
        self._kept: dict[str, str] = {}
        self._is_new = False
        try:
            found = json.loads(self.path.read_bytes())
        except (OSError, ValueError):
            found = {}
        self._known: dict[str, str] = found if isinstance(found, dict) else {}

    def find(self, status: os.stat_result) -> str | None:
        """Return the hash of a file, if it is known."""
        key = key_of(status)
        found = self._known.get(key)
        if found is not None:
            self._kept[key] = found
        return found

    def remember(self, status: os.stat_result, sha256: str) -> None:
        """Remember the hash of a file that was just read."""
        if max(status.st_mtime_ns, status.st_ctime_ns) < time.time_ns() - TICK_NS:
            self._kept[key_of(status)] = sha256
            self._is_new = True

    def keep(self) -> None:
        """Write the hashes that were found or remembered since the cache was read."""
        if not self._is_new and len(self._kept) == len(self._known):
            return
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            fd, temporary = tempfile.mkstemp(dir=self.path.parent)
            with open(fd, "w", encoding="ascii") as file:
                json.dump(self._kept, file)
            os.replace(temporary, self.path)
        except OSError:
            return


def key_of(status: os.stat_result) -> str:
    """Return the text that is another one as soon as a file may have changed."""
    place = f"{status.st_dev}:{status.st_ino}:{status.st_size}"
    return f"{place}:{status.st_mtime_ns}:{status.st_ctime_ns}"
