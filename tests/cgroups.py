"""A control group that may use little memory, for tests of what the kernel kills."""

from __future__ import annotations

import uuid
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from real.conftest import lack

if TYPE_CHECKING:
    from collections.abc import Iterator

PLACES = (
    (Path("/sys/fs/cgroup/memory"), "memory.limit_in_bytes"),  # version 1
    (Path("/sys/fs/cgroup"), "memory.max"),  # version 2
)


@contextmanager
def small_memory_group(limit_bytes: int) -> Iterator[Path]:
    """A group with this limit; removed at the end. Skips where none can be made; fails in CI."""
    for root, limit in PLACES:
        group = root / f"paddock-test-{uuid.uuid4().hex[:8]}"
        try:
            group.mkdir()
        except OSError:
            continue
        try:
            try:
                (group / limit).write_text(str(limit_bytes))
            except OSError:
                continue
            yield group
            return
        finally:
            group.rmdir()
    lack("a memory cgroup that this user may make", "run as root with cgroups mounted writable")
