"""Arrays that grow without being copied: address space is reserved, pages come when touched.

Where addresses are limited (ulimit -v), or reserving is refused (strict overcommit), an array grows
by copy.
"""

from __future__ import annotations

import math
import mmap
import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

# mmap.MAP_NORESERVE came with Python 3.13. Linux, asm-generic/mman-common.h: 0x4000.
_NORESERVE = getattr(mmap, "MAP_NORESERVE", 0x4000) if sys.platform == "linux" else 0
_PAGE = mmap.PAGESIZE
# Below this an array keeps small pages, so that a small table stays small; above, huge pages
# save most of the address lookups of random access.
_HUGE_FROM_BYTES = 4 << 20
# One mapping is never wider: a process has 128 TiB of addresses for all of its tables.
_RESERVE_MAX = 1 << 40
_PROCESS_BYTES = 256 << 20  # of a process, beside its tables


def machine_bytes(root: Path = Path("/")) -> int:
    """Memory of this machine, or of the container; more is never worth reserving for one array."""
    try:
        physical = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError):
        physical = 64 << 30
    return min([physical, *_cgroup_limits(root)])


def memory_for_tables(servers: int) -> int:
    """Bytes that the tables of each of so many servers may take, beside the processes."""
    total = machine_bytes() // servers
    return total - max(total // 8, min(_PROCESS_BYTES, total // 2))


def _cgroup_limits(root: Path) -> Iterator[int]:
    """The limits of this process's control groups, from its own up (cgroups(7))."""
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, group = line.split(":", 2)
        if controllers and "memory" not in controllers.split(","):
            continue
        mount = root / "sys/fs/cgroup" / ("memory" if controllers else "")
        name = "memory.limit_in_bytes" if controllers else "memory.max"
        here = mount / group.strip("/")
        # In a container its own group is the mount; the name that it has outside is not there.
        for folder in (here, *here.parents):
            if not folder.is_relative_to(mount):
                break
            try:
                yield int((folder / name).read_text())
            except (OSError, ValueError):  # Not there, or "max".
                continue


class GrowableArray:
    """An array whose first `length` entries are in use and that can grow at its end.

    array: (capacity, *tail). The same object until ``need`` asks for more than was reserved.
    Entries never used are zero.
    """

    def __init__(self, dtype: Any, tail: tuple[int, ...] = (), *, reserve: int) -> None:
        """reserve: entries to hold addresses for."""
        self.dtype: np.dtype[Any] = np.dtype(dtype)
        self.tail = tail
        self.entry_bytes: int = self.dtype.itemsize * math.prod(tail)
        self.length = 0
        self._map: mmap.mmap | None = None
        self._huge = False
        fit = max(1, min(reserve, _RESERVE_MAX // max(1, self.entry_bytes)))
        self.array: NDArray[Any] = self._reserved(fit, least=16)

    @property
    def nbytes(self) -> int:
        """Bytes of the entries in use."""
        return self.length * self.entry_bytes

    def hold(self, length: int) -> None:
        """Makes room for `length` entries; `array` may be another object then.

        Raises: MemoryError; nothing has changed then.
        """
        if length <= len(self.array):
            return
        old, wanted = self.array, max(length, len(self.array) * 3 // 2)
        if self._map is not None:
            self.array = self._reserved(max(length, 2 * len(old)), least=wanted)
        else:
            try:
                self.array = self._plain(wanted)
            except MemoryError:  # Old and new are there at once: a smaller step may fit.
                self.array = self._plain(max(length, len(old) * 17 // 16))
        self._huge = False
        self.array[: self.length] = old[: self.length]

    def need(self, length: int) -> None:
        """Takes `length` entries into use, as ``hold`` does."""
        if length <= self.length:
            return
        self.hold(length)
        self.length = length
        if self._map is not None and not self._huge and self.nbytes >= _HUGE_FROM_BYTES:
            self._huge = True
            _advise(self._map, "MADV_HUGEPAGE", 0, len(self._map))

    def release(self, start: int, stop: int) -> None:
        """Gives the memory of these entries back; what is read there afterwards is not defined."""
        first = -(-start * self.entry_bytes // _PAGE) * _PAGE
        end = stop * self.entry_bytes // _PAGE * _PAGE
        if self._map is not None and end > first:
            _advise(self._map, "MADV_DONTNEED", first, end - first)

    def clear(self) -> None:
        """Takes all entries out of use and gives their memory back."""
        if self._map is not None and self.length:
            _advise(self._map, "MADV_DONTNEED", 0, len(self._map))
        self.length = 0

    def _plain(self, entries: int) -> NDArray[Any]:
        array = np.zeros((entries, *self.tail), self.dtype)
        self._map = None
        return array

    def _reserved(self, entries: int, *, least: int) -> NDArray[Any]:
        """least: entries of one that grows by copy, where reserving is refused or limited."""
        if _are_addresses_limited():
            return self._plain(least)
        size = -(-max(1, entries * self.entry_bytes) // _PAGE) * _PAGE
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NORESERVE
        try:
            self._map = mmap.mmap(-1, size, flags=flags)
        except (OSError, ValueError, OverflowError):
            return self._plain(least)
        flat = np.frombuffer(self._map, self.dtype, entries * math.prod(self.tail))
        return flat.reshape(entries, *self.tail)


def _are_addresses_limited() -> bool:
    """Reserved addresses count against a limit (ulimit -v), as if they were used."""
    if sys.platform == "win32":
        return False
    import resource  # not on Windows

    return resource.getrlimit(resource.RLIMIT_AS)[0] != resource.RLIM_INFINITY


def _advise(mapping: mmap.mmap, name: str, start: int, length: int) -> None:
    """madvise(2), where this system has the advice. It is advice: a refusal changes nothing."""
    with suppress(AttributeError, OSError):
        mapping.madvise(getattr(mmap, name), start, length)
