"""What is made here works with numba, or as a host has it that has numpy only."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from paddock.ps import jit

# Both where numba is installed; numpy alone elsewhere.
ENGINES = pytest.mark.parametrize("compiled", [False, True][: 1 + jit.HAVE_NUMBA])


@contextmanager
def engine(compiled: bool) -> Iterator[None]:
    """With numba or without: functions called, and objects made, meanwhile."""
    was, jit.HAVE_NUMBA = jit.HAVE_NUMBA, compiled
    try:
        yield
    finally:
        jit.HAVE_NUMBA = was
