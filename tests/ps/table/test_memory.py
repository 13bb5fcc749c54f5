"""Reserved arrays and their fallback."""

from __future__ import annotations

import errno

import numpy as np
import pytest

from paddock.ps.table import memory
from paddock.ps.table.memory import GrowableArray


def refused(*_: object, **__: object) -> None:
    """As mmap answers where address space is limited."""
    raise OSError(errno.ENOMEM, "Cannot allocate memory")


@pytest.mark.parametrize("refused_from", ["never", "later", "start"])
def test_content_survives_growth_beyond_the_reservation(
    refused_from: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the address space was too small, or refused, the array moves."""
    if refused_from == "start":
        monkeypatch.setattr(memory.mmap, "mmap", refused)
    growing = GrowableArray(np.float32, (3,), reserve=100)
    growing.need(10)
    growing.array[:10] = np.arange(30).reshape(10, 3)
    if refused_from == "later":
        monkeypatch.setattr(memory.mmap, "mmap", refused)
    before = growing.array
    growing.need(5000)
    assert growing.array is not before
    assert len(growing.array) >= 5000
    assert growing.array[:10].ravel().tolist() == list(range(30))
    assert not growing.array[10:5000].any()
    assert growing.nbytes == 5000 * 12


def test_growth_within_the_reservation_does_not_move() -> None:
    """Kernels may keep the array; a growing table is never copied."""
    growing = GrowableArray(np.int64, reserve=1_000_000)
    array = growing.array
    growing.need(900_000)
    assert growing.array is array


def test_released_memory_is_given_back() -> None:
    """The kernel hands out zero pages where some were released."""
    growing = GrowableArray(np.int64, reserve=1_000_000)
    growing.need(1_000_000)
    growing.array[:] = 7
    growing.release(1000, 2000)
    assert (growing.array[:1000] == 7).all()
    assert (growing.array[1000:2000] == 0).any()
    assert (growing.array[2000:] == 7).all()
    growing.clear()
    assert (growing.nbytes, growing.array.any()) == (0, False)


def test_a_refused_reservation_grows_by_copy() -> None:
    """More addresses than a process has cannot be reserved."""
    growing = GrowableArray(np.int8, reserve=1 << 39)
    held = [growing]
    for _ in range(400):
        held.append(GrowableArray(np.int8, reserve=1 << 40))
        if held[-1]._map is None:
            break
    last = held[-1]
    assert last._map is None
    last.need(1000)
    last.array[:1000] = 3
    last.need(100_000)
    assert last.array[:1000].sum() == 3000
