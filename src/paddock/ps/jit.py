"""Compiles the kernels with numba where it is installed; without it they run as numpy, slower.

A kernel module writes its loops for numba and, beside them, the same in whole-array numpy; it
asks HAVE_NUMBA which of the two to use. PADDOCK_PS_NUMBA=0 forces numpy (tests do).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])

try:
    if os.environ.get("PADDOCK_PS_NUMBA") == "0":
        raise ImportError
    import numba

    HAVE_NUMBA = True
except ImportError:
    HAVE_NUMBA = False


def kernel(function: F) -> F:
    """The function compiled when first called, its machine code kept for the next process.

    The GIL is released while it runs. error_model "numpy": no check for division by zero, which
    would keep the loop from being vectorised. fastmath stays off: the same bits everywhere.
    """
    if not HAVE_NUMBA:
        return function
    compiled: F = numba.njit(cache=True, nogil=True, error_model="numpy")(function)
    return compiled
