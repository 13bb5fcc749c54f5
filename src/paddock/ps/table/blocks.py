"""Where the shards' blocks lie inside one flat array: a buddy allocator of powers of two."""

from __future__ import annotations


class Blocks:
    """Offsets of blocks; every size is a power of two and every block is aligned to its size.

    >>> blocks = Blocks()
    >>> [blocks.take(4), blocks.take(8), blocks.take(4)]
    [0, 8, 4]
    >>> blocks.give(0, 4); blocks.give(4, 4); blocks.take(8)
    0
    """

    def __init__(self) -> None:
        self.end = 0
        self._free: dict[int, set[int]] = {}

    def take(self, size: int) -> int:
        """The offset of a block that is now in use; the lowest free one, or one at the end."""
        fitting = [s for s, offsets in self._free.items() if s >= size and offsets]
        if not fitting:
            while self.end % size:
                gap = self.end & -self.end
                self._put(self.end, gap)
                self.end += gap
            self.end += size
            return self.end - size
        have = min(fitting)
        offset = min(self._free[have])
        self._free[have].remove(offset)
        while have > size:
            have //= 2
            self._put(offset + have, have)
        return offset

    def give(self, offset: int, size: int) -> None:
        """Frees a block, joined with its neighbour while that is free too."""
        while offset ^ size in self._free.get(size, ()):
            self._free[size].remove(offset ^ size)
            offset &= ~size
            size *= 2
        self._put(offset, size)

    @property
    def free(self) -> int:
        """Entries below `end` that no block uses."""
        return sum(size * len(offsets) for size, offsets in self._free.items())

    def _put(self, offset: int, size: int) -> None:
        self._free.setdefault(size, set()).add(offset)
